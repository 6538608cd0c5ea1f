"""What is asked of the data: margin, confidence and hypotheses, fixed before the run."""

from typing import Annotated, Literal

from pydantic import Field

from draftbench.config.section import Section


class StatisticsConfig(Section):
    """Set before the first measurement; the report lists any change as a deviation."""

    margin: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.03, description="Relative speed difference that matters; faster means above 1 + margin."
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(
        default=0.95, description="Confidence of every interval, familywise for the verdicts."
    )
    min_decode_tokens: Annotated[int, Field(ge=2)] = Field(
        default=8, description="Turns with fewer decode tokens count in session time only."
    )
    max_client_lag_share: Annotated[float, Field(gt=0)] = Field(
        default=0.1,
        description="A cell is invalid when the client's loop lag (p99) exceeds this share of a step.",
    )


class Hypothesis(Section):
    """A claim that the report answers with supported, refuted or undecided."""

    id: str = Field(pattern=r"^[a-z0-9-]+$", description="Short name.")
    kind: Literal[
        "arm_faster_than",
        "gain_survives_tp",
        "best_budget_inside_sweep",
        "lossless",
        "live_predicted_by_frozen",
    ] = Field(description="Which rule answers it.")
    arm: str | None = Field(default=None, description="The arm it speaks of; null = every DDTree arm.")
    baseline: str | None = Field(default=None, description="arm_faster_than: the arm compared with.")
    statement: str = Field(min_length=1, description="The claim in words, printed in plan and report.")
