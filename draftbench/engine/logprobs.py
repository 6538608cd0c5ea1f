"""Log-probabilities of output tokens and of the prompt itself, in float32 and before temperature."""

from collections.abc import Sequence

import torch

from draftbench.engine.interface import InputLogprob, OutputLogprob


def score_output(logits: torch.Tensor, token_id: int, top: int) -> OutputLogprob:
    """One chosen token and the `top` best candidates; `logits` is one row [vocabulary]."""
    logprobs = logits.float().log_softmax(-1)
    best = logprobs.topk(top)
    pairs = tuple(zip(best.values.tolist(), best.indices.tolist(), strict=True))
    return OutputLogprob(token_id, float(logprobs[token_id]), pairs)


def score_input(logits: torch.Tensor, following: Sequence[int], first_position: int) -> list[InputLogprob]:
    """How each row of `logits` scores the token that follows it; row 0's follower stands at `first_position`."""
    rows = logits.float()
    logprobs = rows.log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(following, device=rows.device).unsqueeze(1)).squeeze(1).tolist()
    best = logprobs.topk(2)
    best_logits = rows.gather(1, best.indices).tolist()
    found = zip(following, chosen, best.values.tolist(), best.indices.tolist(), best_logits, strict=True)
    return [
        InputLogprob(first_position + index, token, logprob, tuple(zip(values, ids, strict=True)), tuple(raw))
        for index, (token, logprob, values, ids, raw) in enumerate(found)
    ]
