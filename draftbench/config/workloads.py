"""Workloads: which real prompts, how many, how long, at which concurrencies."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from draftbench.config.section import Section

Ranks = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


class WorkloadConfig(Section):
    """One entry of `workloads`; items are chosen by hash rank, so a larger range contains the smaller."""

    set: str = Field(min_length=1, description="Source set, for example code-humaneval, or `own` for your own file.")
    path: str | None = Field(default=None, description="`own` only: your JSONL or ShareGPT-style JSON.")
    test_ranks: Ranks = Field(description="Hash ranks [first, last) of the measured conversations.")
    calibration_ranks: Ranks | None = Field(
        default=None, description="Hash ranks of the conversations for warm-up; never the measured ones."
    )
    max_new_tokens: Annotated[int, Field(ge=1)] = Field(
        description="Cap on output tokens a turn; natural stops come first, the share that hits the cap is reported."
    )
    max_turns: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Turns of a conversation at most.")
    min_turns: Annotated[int, Field(ge=1)] = Field(
        default=1, description="Conversations with fewer turns that fit are dropped before ranking and counted."
    )
    tools: Literal["all", "called"] = Field(
        default="all", description="Agentic: document all tools, or only those that the recorded session calls."
    )
    max_prompt_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Items with a longer prompt are dropped before ranking and counted."
    )
    thinking: Literal["default", "on", "off"] = Field(
        default="default", description="The chat template's thinking switch, a factor of the experiment."
    )
    concurrency: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        min_length=1, description="Conversations at once; one cell each."
    )
    slo_ttft_ms: Annotated[float, Field(gt=0)] | None = Field(default=None, description="Goodput limit on TTFT, ms.")
    slo_tpot_ms: Annotated[float, Field(gt=0)] | None = Field(default=None, description="Goodput limit on TPOT, ms.")

    @model_validator(mode="after")
    def _ranks_are_ranges(self) -> Self:
        for name in ("test_ranks", "calibration_ranks"):
            ranks = getattr(self, name)
            if ranks is not None and ranks[1] <= ranks[0]:
                raise ValueError(f"{name} {list(ranks)} holds no conversation; write [first, last) with last > first")
        if self.calibration_ranks and _overlap(self.test_ranks, self.calibration_ranks):
            raise ValueError(
                f"calibration_ranks {list(self.calibration_ranks)} overlap test_ranks {list(self.test_ranks)}; "
                "warm-up prompts must never be measured"
            )
        if (self.set == "own") != (self.path is not None):
            raise ValueError("path belongs to the set `own`, and that set needs it")
        if len(set(self.concurrency)) != len(self.concurrency):
            raise ValueError("concurrency names a value twice")
        return self

    @property
    def conversations(self) -> int:
        """Measured conversations asked for."""
        return self.test_ranks[1] - self.test_ranks[0]


def _overlap(one: Ranks, other: Ranks) -> bool:
    return one[0] < other[1] and other[0] < one[1]
