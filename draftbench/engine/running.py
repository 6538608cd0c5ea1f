"""One running request: its slot, its sampler, and what has been counted so far."""

from dataclasses import dataclass, field

from draftbench.engine.acceptance import AcceptanceCount, Emission, emit
from draftbench.engine.interface import GenerationRequest, InputLogprob, OutputLogprob, TokenEvent
from draftbench.engine.sampling import TokenSampler
from draftbench.engine.slots import Slot


@dataclass(frozen=True)
class Advance:
    """What one step chose for one request; `accepted` and `proposed` are None outside verify steps."""

    chosen: tuple[int, ...]
    accepted: int | None = None
    proposed: int | None = None
    output_logprobs: tuple[OutputLogprob, ...] | None = None
    input_logprobs: tuple[InputLogprob, ...] | None = None


@dataclass(eq=False)
class RunningRequest:
    """A request that holds a slot.

    `pending` is the last chosen token, not yet run through the target: the next step's root.
    """

    request: GenerationRequest
    slot: Slot
    sampler: TokenSampler
    stops: frozenset[int]
    cached_tokens: int
    pending: int = -1
    completion_tokens: int = 0
    counts: AcceptanceCount = field(default_factory=AcceptanceCount)

    def advance(self, step: Advance) -> TokenEvent:
        """Take over a step's tokens and report them."""
        if step.accepted is not None and step.proposed is not None:
            self.counts.add(step.accepted, step.proposed)
        emission = emit(step.chosen, self.completion_tokens, self.request.sampling.max_new_tokens, self.stops)
        self.completion_tokens += len(emission.tokens)
        self.pending = step.chosen[-1]
        return self._event(emission, step)

    def abort(self) -> TokenEvent:
        """The event of a request that ends unasked."""
        return self._event(Emission((), "abort", None), Advance(()))

    def _event(self, emission: Emission, step: Advance) -> TokenEvent:
        scored = step.output_logprobs
        return TokenEvent(
            request_id=self.request.request_id,
            new_ids=emission.tokens,
            finish=emission.finish,
            matched_stop=emission.matched_stop,
            cached_tokens=self.cached_tokens,
            prompt_tokens=len(self.request.input_ids),
            completion_tokens=self.completion_tokens,
            verify_steps=self.counts.steps,
            accepted_drafts=self.counts.accepted,
            proposed_drafts=self.counts.proposed,
            accept_histogram=tuple(self.counts.histogram),
            output_logprobs=None if scored is None else scored[: len(emission.tokens)],
            input_logprobs=step.input_logprobs,
        )
