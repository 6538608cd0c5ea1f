"""Prefill: run the part of a prompt that no slot holds yet, in chunks, and choose the first token."""

import numpy as np
import torch

from draftbench.engine.attention import Segment, additive_mask
from draftbench.engine.drafter_model import DrafterModel
from draftbench.engine.interface import InputLogprob
from draftbench.engine.logprobs import score_input, score_output
from draftbench.engine.running import Advance, RunningRequest
from draftbench.engine.target_model import TargetModel

CHUNK = 256
"""Prompt tokens a forward pass: bounds the masks and the scored logits in memory."""


def reusable_tokens(prompt_tokens: int, scored_from: int | None) -> int:
    """How much of a prompt may come from the cache: never its last token, nor a row whose logits are wanted."""
    limit = prompt_tokens - 1
    return limit if scored_from is None else max(0, min(limit, scored_from - 1))


def prefill(target: TargetModel, drafter: DrafterModel | None, running: RunningRequest) -> Advance:
    """Fill the slot with the whole prompt and choose the first token."""
    request, slot = running.request, running.slot
    scored = [InputLogprob(0, request.input_ids[0], None, (), ())] if _scores_start(running) else []
    last = torch.empty(0)
    while slot.length < len(request.input_ids):
        start = slot.length
        ids = request.input_ids[start : start + CHUNK]
        hidden = _run_chunk(target, drafter, running, ids)
        if request.return_input_logprobs:
            scored += _score_chunk(target, hidden, running, start)
        last = hidden[-1:]
    logits = target.logits(last)[0]
    token, top = running.sampler.choose(logits), request.return_top_logprobs
    return Advance(
        (token,),
        output_logprobs=(score_output(logits, token, top),) if top else None,
        input_logprobs=tuple(scored) if request.return_input_logprobs else None,
    )


def _scores_start(running: RunningRequest) -> bool:
    return running.request.return_input_logprobs and running.request.input_logprobs_start == 0


def _run_chunk(
    target: TargetModel, drafter: DrafterModel | None, running: RunningRequest, ids: tuple[int, ...]
) -> torch.Tensor:
    slot, count = running.slot, len(ids)
    start, device = slot.length, target.device
    causal = np.tril(np.ones((count, count), dtype=np.bool_))
    mask = additive_mask(causal, start, target.config.shape.group, target.dtype, device) if count > 1 else None
    hidden, features = target.forward(
        torch.tensor(ids, device=device),
        torch.arange(start, start + count, device=device),
        [Segment(slot.target, start, count, mask)],
    )
    if drafter is not None and features is not None and slot.drafter is not None:
        drafter.extend_context(features, [(slot.drafter, start, count)])
    slot.commit(ids, range(count))
    return hidden


def _score_chunk(target: TargetModel, hidden: torch.Tensor, running: RunningRequest, start: int) -> list[InputLogprob]:
    """Scores of the tokens after the chunk's rows, from the wanted position on."""
    prompt, wanted = running.request.input_ids, running.request.input_logprobs_start
    first = max(start, wanted - 1)
    following = prompt[first + 1 : start + len(hidden) + 1]
    if not following:
        return []
    rows = hidden[first - start : first - start + len(following)]
    return score_input(target.logits(rows), following, first + 1)
