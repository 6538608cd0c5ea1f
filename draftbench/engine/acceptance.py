"""What becomes of newly chosen tokens: how many are emitted, why generation ends, and how steps are counted; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from draftbench.engine.interface import FinishReason


@dataclass(frozen=True)
class Emission:
    """The part of a step's tokens that the request still wanted."""

    tokens: tuple[int, ...]
    finish: FinishReason | None
    matched_stop: int | None


def emit(chosen: Sequence[int], already: int, max_new_tokens: int, stops: frozenset[int]) -> Emission:
    """Cut `chosen` behind the first end token or at the length limit; the end token itself is emitted.

    An end token that is also the last one allowed counts as "length", as in SGLang.
    """
    for index, token in enumerate(chosen):
        if already + index + 1 >= max_new_tokens:
            return Emission(tuple(chosen[: max(0, max_new_tokens - already)]), "length", None)
        if token in stops:
            return Emission(tuple(chosen[: index + 1]), "stop", token)
    return Emission(tuple(chosen), None, None)


@dataclass
class AcceptanceCount:
    """Speculative counters of one request; a step counts in full even where its emission was cut."""

    steps: int = 0
    accepted: int = 0
    proposed: int = 0
    histogram: list[int] = field(default_factory=list)

    def add(self, accepted: int, proposed: int) -> None:
        """Count one verify step."""
        assert 0 <= accepted <= proposed, "no more drafts are accepted than proposed"
        self.histogram.extend([0] * (accepted + 1 - len(self.histogram)))
        self.histogram[accepted] += 1
        self.steps += 1
        self.accepted += accepted
        self.proposed += proposed
