"""The plan as data: everything that was decided before the first measurement, and its hash."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict

from draftbench.hardware import Inventory
from draftbench.matrix import MEASUREMENT_PROTOCOL, Matrix, Session
from draftbench.models import ModelFacts
from draftbench.plan.assumptions import Span, assumption_table
from draftbench.plan.budget import BudgetDecision, minutes
from draftbench.plan.comparisons import primary_comparisons
from draftbench.plan.duration import expected_seconds, timeline
from draftbench.plan.inputs import PlanInputs
from draftbench.plan.memory import MemoryFit, memory_fit

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
    """One cell of a session."""

    key: str
    workload: str
    workload_key: str
    concurrency: int


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
    conversations: int
    calibration: int
    max_new_tokens: int
    max_turns: int | None
    max_prompt_tokens: int | None
    concurrency: tuple[int, ...]


class PlannedRefusal(_Part):
    """A session that left the matrix, with the reason."""

    arm: str
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


def build_plan(inputs: PlanInputs, matrix: Matrix, decision: BudgetDecision, config_sha256: str) -> Plan:
    """Assemble the plan; pure.

    `inputs` holds the config that was decided on; `config_sha256` is the hash of the config file's text.
    """
    config = inputs.config
    plan = Plan(
        config_sha256=config_sha256,
        experiment=config.experiment,
        question=config.question,
        primary_arm=config.primary_arm,
        seed=config.seed,
        engine=config.engine_entry.kind,
        device=inputs.device,
        hardware=hardware_content(inputs.inventory),
        target=PlannedModel.of(inputs.target),
        drafter=None if inputs.drafter is None else PlannedModel.of(inputs.drafter),
        temperature=config.sampling.temperature,
        top_p=config.sampling.top_p,
        packing=config.packing,
        workloads=_workloads(inputs, matrix),
        sessions=_sessions(inputs, matrix.sessions),
        blocks={block: tuple(arms) for block, arms in matrix.blocks.items()},
        refusals=tuple(PlannedRefusal(**asdict(refusal)) for refusal in matrix.refusals),
        memory=tuple(
            PlannedMemory.of(memory_fit(inputs, arm, tp))
            for tp in config.tensor_parallelism
            for arm in config.expanded_arms
        ),
        assumptions=tuple(PlannedAssumption(**asdict(line)) for line in assumption_table(inputs)),
        duration=SpanSeconds.of(decision.expected),
        wanted_duration=SpanSeconds.of(decision.wanted),
        time_budget=decision.limit,
        over_budget=decision.over,
        given_up=decision.given_up,
        statistics=PlannedStatistics(
            **config.statistics.model_dump(include={"margin", "confidence", "min_decode_tokens"}),
            family=tuple(PlannedComparison(**asdict(one)) for one in primary_comparisons(matrix)),
        ),
        hypotheses=tuple(PlannedHypothesis(**claim.model_dump()) for claim in config.hypotheses),
        warnings=_warnings(inputs, decision),
    )
    return plan.model_copy(update={"plan_sha256": content_sha256(plan)})


def content_sha256(plan: Plan) -> str:
    """Hash of the plan's content without the hash itself."""
    content = plan.model_dump(mode="json", exclude={"plan_sha256"})
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def hardware_content(inventory: Inventory) -> dict[str, Any]:
    """The inventory as JSON values."""
    content: dict[str, Any] = json.loads(json.dumps(asdict(inventory)))
    return content


def _workloads(inputs: PlanInputs, matrix: Matrix) -> tuple[PlannedWorkload, ...]:
    keys = {cell.workload: cell.workload_key for cell in matrix.cells}
    return tuple(
        PlannedWorkload(
            name=name,
            set=workload.set,
            key=keys.get(name, name),
            conversations=workload.conversations,
            calibration=workload.calibration_ranks[1] - workload.calibration_ranks[0]
            if workload.calibration_ranks
            else 1,
            max_new_tokens=workload.max_new_tokens,
            max_turns=workload.max_turns,
            max_prompt_tokens=workload.max_prompt_tokens,
            concurrency=workload.concurrency,
        )
        for name, workload in inputs.config.workloads.items()
    )


def _sessions(inputs: PlanInputs, sessions: tuple[Session, ...]) -> tuple[PlannedSession, ...]:
    seconds = expected_seconds(inputs, sessions)
    placed = {key: gpus for key, _, _, gpus in timeline(inputs, sessions, seconds).sessions}
    return tuple(
        PlannedSession(
            key=session.key,
            arm=session.arm.name,
            method=session.arm.method,
            draft_budget=session.arm.draft_budget,
            verify_width=inputs.verify_width(session.arm),
            tensor_parallelism=session.tensor_parallelism,
            block=session.block,
            order=session.order,
            gpus=placed[session.key] if inputs.device == "cuda" else (),
            expected=SpanSeconds.of(seconds[session.key]),
            cells=tuple(
                PlannedCell(
                    key=cell.key, workload=cell.workload, workload_key=cell.workload_key, concurrency=cell.concurrency
                )
                for cell in session.cells
            ),
        )
        for session in sessions
    )


def _warnings(inputs: PlanInputs, decision: BudgetDecision) -> tuple[str, ...]:
    warnings = [f"target: {text}" for text in inputs.target.warnings]
    if inputs.drafter is not None:
        warnings += [f"drafter: {text}" for text in inputs.drafter.warnings]
    config = inputs.config
    if decision.over and decision.limit is not None:
        warnings.append(
            f"about {minutes(decision.expected.expected)} exceed the time budget of {minutes(decision.limit)}; "
            "allow_over_budget permits it"
        )
    if config.blocks == 1:
        warnings.append("one block: launches do not repeat, so there is no interval and no verdict")
    if inputs.target.is_hybrid and config.allow_tree_on_hybrid:
        warnings.append(
            "the target has recurrent layers and allow_tree_on_hybrid is set: watch losslessness under concurrency"
        )
    if config.engine_entry.kind == "sglang" and inputs.device == "cuda" and not config.serving.cuda_graph_max_batch:
        warnings.append(
            "serving.cuda_graph_max_batch is null: whether graphs cover every batch is not known beforehand"
        )
    return tuple(warnings)
