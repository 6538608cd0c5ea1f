"""plan.json: what was decided before the first measurement, as data."""

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict

from draftbench.matrix import MEASUREMENT_PROTOCOL
from draftbench.models import ModelFacts
from draftbench.plan.assumptions import Span
from draftbench.plan.memory import MemoryFit

SCHEMA_VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SpanSeconds(_Part):
    """An estimate in seconds."""

    low: float
    expected: float
    high: float

    @classmethod
    def of(cls, span: Span) -> "SpanSeconds":
        """Round to whole seconds: more would feign precision."""
        return cls(low=round(span.low), expected=round(span.expected), high=round(span.high))


class PlannedFact(_Part):
    """A model fact with its source; null = unknown, the source then says why."""

    value: int | float | bool | str | tuple[int, ...] | None
    source: str


class PlannedModel(_Part):
    """Facts of target or drafter."""

    name: str
    origin: str
    facts: dict[str, PlannedFact]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, facts: ModelFacts) -> "PlannedModel":
        """Facts in alphabetical order, so that the hash is stable."""
        planned = {k: PlannedFact(value=v.value, source=v.source) for k, v in sorted(facts.facts.items())}
        return cls(name=facts.name, origin=facts.origin, facts=planned, warnings=facts.warnings)


class MemoryTerm(_Part):
    """One summand of a memory inequality, bytes."""

    name: str
    size: int | None
    source: str


class MemorySum(_Part):
    """Sum of the terms against a limit, bytes."""

    name: str
    terms: tuple[MemoryTerm, ...]
    known: int
    limit: int | None
    limit_source: str
    verdict: str


class PlannedMemory(_Part):
    """Memory fit of one arm at one tp."""

    arm: str
    tensor_parallelism: int
    verdict: str
    reason: str
    sums: tuple[MemorySum, ...]

    @classmethod
    def of(cls, fit: MemoryFit) -> "PlannedMemory":
        """The fit with its verdicts spelled out."""
        sums = tuple(
            MemorySum(
                name=one.name,
                terms=tuple(MemoryTerm(**asdict(term)) for term in one.terms),
                known=one.known,
                limit=one.limit,
                limit_source=one.limit_source,
                verdict=one.verdict,
            )
            for one in fit.inequalities
        )
        return cls(
            arm=fit.arm, tensor_parallelism=fit.tensor_parallelism, verdict=fit.verdict, reason=fit.reason, sums=sums
        )


class PlannedCell(_Part):
    """One cell of a session; `expected` in seconds."""

    key: str
    workload: str
    workload_key: str
    concurrency: int
    expected: float


class PlannedSession(_Part):
    """One session in running order; `gpus` are those of the packing simulation, not a promise."""

    key: str
    arm: str
    method: str
    draft_budget: int | None
    verify_width: int | None
    tensor_parallelism: int
    block: int
    order: int
    gpus: tuple[int, ...]
    expected: SpanSeconds
    cells: tuple[PlannedCell, ...]


class PlannedWorkload(_Part):
    """What is asked of one workload."""

    name: str
    set: str
    key: str
    calibration_key: str | None
    conversations: int
    calibration: int
    max_new_tokens: int
    max_turns: int | None
    max_prompt_tokens: int | None
    concurrency: tuple[int, ...]


class PlannedArm(_Part):
    """One way of decoding; `flags` are this arm's alone."""

    name: str
    method: str
    draft_budget: int | None
    verify_width: int | None
    tree_top_k: int | None
    flags: dict[str, str | int | float | bool]


class PlannedRefusal(_Part):
    """An (arm, tp) that left the matrix, with the reason."""

    arm: str
    method: str
    draft_budget: int | None
    verify_width: int | None
    tensor_parallelism: int
    reason: str


class PlannedComparison(_Part):
    """One ratio of the family."""

    arm: str
    baseline: str
    tensor_parallelism: int
    workload: str
    concurrency: int


class PlannedAssumption(_Part):
    """One stated rate of the duration estimate."""

    name: str
    value: str
    source: str


class PlannedStatistics(_Part):
    """How the data will be judged."""

    margin: float
    confidence: float
    min_decode_tokens: int
    family: tuple[PlannedComparison, ...]


class PlannedHypothesis(_Part):
    """A claim that the report answers."""

    id: str
    kind: str
    arm: str | None
    baseline: str | None
    statement: str


class Plan(_Part):
    """plan.json; `plan_sha256` covers everything else in it, and no date."""

    schema_version: int = SCHEMA_VERSION
    protocol: int = MEASUREMENT_PROTOCOL
    plan_sha256: str = ""
    config_sha256: str
    experiment: str
    question: str
    primary_arm: str
    seed: int
    engine: str
    device: str
    hardware: dict[str, Any]
    target: PlannedModel
    drafter: PlannedModel | None
    temperature: float
    top_p: float
    packing: str
    serving: dict[str, Any]
    arms: tuple[PlannedArm, ...]
    workloads: tuple[PlannedWorkload, ...]
    sessions: tuple[PlannedSession, ...]
    blocks: dict[int, tuple[str, ...]]
    refusals: tuple[PlannedRefusal, ...]
    memory: tuple[PlannedMemory, ...]
    assumptions: tuple[PlannedAssumption, ...]
    duration: SpanSeconds
    wanted_duration: SpanSeconds
    time_budget: float | None
    over_budget: bool
    given_up: tuple[str, ...]
    statistics: PlannedStatistics
    hypotheses: tuple[PlannedHypothesis, ...]
    warnings: tuple[str, ...]

    @property
    def cells(self) -> int:
        """Number of cells."""
        return sum(len(session.cells) for session in self.sessions)
