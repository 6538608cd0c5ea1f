"""What the engine is asked and what it answers; the HTTP front builds on these records and on `Engine` alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from draftbench.errors import DraftbenchError

Method = Literal["AR", "DFLASH", "DDTREE"]
DataType = Literal["auto", "bfloat16", "float32"]
Device = Literal["auto", "cpu", "cuda"]
FinishReason = Literal["stop", "length", "abort"]
TokenLogprob = tuple[float, int]
"""(natural log-probability, token id)."""


class RequestRefusedError(DraftbenchError):
    """A request that the engine cannot serve as asked; the message says what is allowed."""


@dataclass(frozen=True)
class EngineSettings:
    """One engine instance.

    `draft_budget` counts draft-tree nodes without the root: None for AR, None or at most block_size - 1 for DFLASH,
    at least 1 for DDTREE.
    `draft_vocabulary`: drafts are chosen among the first so many token ids (None: all); a byte-pair vocabulary is in
    merge order, frequent tokens first. Output is unaffected; half of a draft pass on a CPU is the drafter's head.
    """

    target: Path
    drafter: Path | None
    method: Method
    draft_budget: int | None
    max_running_requests: int
    tree_top_k: int = 8
    draft_vocabulary: int | None = 16384
    context_length: int = 8192
    dtype: DataType = "auto"
    device: Device = "auto"
    threads: int | None = None
    seed: int = 0
    prefix_reuse: bool = True

    def __post_init__(self) -> None:
        assert self.max_running_requests >= 1, "max_running_requests is at least 1"
        assert self.tree_top_k >= 1, "tree_top_k is at least 1"
        assert self.draft_vocabulary is None or self.draft_vocabulary >= 1, "draft_vocabulary is at least 1"
        assert self.context_length >= 2, "context_length is at least 2"
        assert self.method == "AR" or self.drafter is not None, f"{self.method} needs a drafter"
        assert self.method != "AR" or self.draft_budget is None, "AR takes no draft budget"
        assert self.method != "DDTREE" or self.draft_budget is not None, "DDTREE needs a draft budget"
        assert self.draft_budget is None or self.draft_budget >= 1, "draft_budget is at least 1"


@dataclass(frozen=True)
class SamplingSettings:
    """How tokens are chosen and when to stop; temperature 0 is greedy, `top_k` -1 means the whole vocabulary.

    `ignore_eos` switches off the model's end tokens and `stop_token_ids` alike, as in SGLang.
    """

    temperature: float
    max_new_tokens: int
    top_p: float = 1.0
    top_k: int = -1
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0.0:
            raise RequestRefusedError(f"temperature must be 0 or more, got {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise RequestRefusedError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k != -1 and self.top_k < 1:
            raise RequestRefusedError(f"top_k must be -1 (all) or at least 1, got {self.top_k}")
        if self.max_new_tokens < 0:
            raise RequestRefusedError(f"max_new_tokens must be 0 or more, got {self.max_new_tokens}")


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt.

    `return_top_logprobs`: so many (logprob, id) pairs for each output token; AR only, 0 for none.
    `return_input_logprobs`: score the prompt itself; positions from `input_logprobs_start` on, which are then
    computed afresh and never taken from the prefix cache.
    """

    request_id: str
    input_ids: tuple[int, ...]
    sampling: SamplingSettings
    return_top_logprobs: int = 0
    return_input_logprobs: bool = False
    input_logprobs_start: int = 0


@dataclass(frozen=True)
class InputLogprob:
    """How the target scores one prompt token given those before it; position 0 has no score.

    `top2` and `top2_logits` are the two best candidates at this position, best first.
    """

    position: int
    token_id: int
    logprob: float | None
    top2: tuple[TokenLogprob, ...]
    top2_logits: tuple[float, ...]


@dataclass(frozen=True)
class OutputLogprob:
    """The log-probability of one output token (before temperature) and the best candidates at its position."""

    token_id: int
    logprob: float
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True)
class TokenEvent:
    """What one engine step did for one request; counters are totals since the request came.

    `completion_tokens` counts emitted tokens, an end token included.
    The speculative counters keep the full accepted run of the last step even where a stop or the length limit cut
    its emission, as SGLang does: `accept_histogram[a]` steps accepted a drafts, its sum is `verify_steps` and its
    first moment `accepted_drafts`.
    """

    request_id: str
    new_ids: tuple[int, ...]
    finish: FinishReason | None
    matched_stop: int | None
    cached_tokens: int
    prompt_tokens: int
    completion_tokens: int
    verify_steps: int = 0
    accepted_drafts: int = 0
    proposed_drafts: int = 0
    accept_histogram: tuple[int, ...] = ()
    output_logprobs: tuple[OutputLogprob, ...] | None = None
    input_logprobs: tuple[InputLogprob, ...] | None = None
