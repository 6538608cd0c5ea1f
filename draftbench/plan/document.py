"""From decisions to the plan, and its hash; pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from draftbench.hardware import Inventory
from draftbench.matrix import Matrix, Session
from draftbench.plan.assumptions import assumption_table
from draftbench.plan.budget import BudgetDecision, minutes
from draftbench.plan.comparisons import primary_comparisons
from draftbench.plan.content import (
    Plan,
    PlannedArm,
    PlannedAssumption,
    PlannedCell,
    PlannedComparison,
    PlannedHypothesis,
    PlannedMemory,
    PlannedModel,
    PlannedRefusal,
    PlannedSession,
    PlannedStatistics,
    PlannedWorkload,
    SpanSeconds,
)
from draftbench.plan.duration import SessionSeconds, expected_seconds, session_estimates, timeline
from draftbench.plan.inputs import PlanInputs
from draftbench.plan.memory import memory_fit


def build_plan(
    inputs: PlanInputs,
    matrix: Matrix,
    decision: BudgetDecision,
    config_sha256: str,
    calibration_keys: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Assemble the plan; pure.

    `inputs` holds the config that was decided on; `config_sha256` is the checked config's, so that
    comments and order do not matter.
    `calibration_keys` are the built prompts that only warm up, by workload.
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
        serving={**config.serving.model_dump(mode="json"), "flags": dict(config.engine_entry.flags)},
        arms=_arms(inputs),
        workloads=_workloads(inputs, matrix, calibration_keys),
        sessions=_sessions(inputs, matrix.sessions),
        blocks={block: tuple(arms) for block, arms in matrix.blocks.items()},
        refusals=_refusals(inputs, matrix),
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
    """The inventory as JSON values, without what identifies one machine: plans and reports are passed on."""
    content: dict[str, Any] = json.loads(json.dumps(asdict(inventory)))
    for gpu in content["gpus"]:
        del gpu["uuid"]
    return content


def _arms(inputs: PlanInputs) -> tuple[PlannedArm, ...]:
    return tuple(
        PlannedArm(
            name=arm.name,
            method=arm.method,
            draft_budget=arm.draft_budget,
            verify_width=inputs.verify_width(arm),
            tree_top_k=arm.tree_top_k,
            flags=dict(arm.flags),
        )
        for arm in inputs.config.expanded_arms
    )


def _refusals(inputs: PlanInputs, matrix: Matrix) -> tuple[PlannedRefusal, ...]:
    arms = {arm.name: arm for arm in _arms(inputs)}
    return tuple(
        PlannedRefusal(
            arm=refusal.arm,
            method=arms[refusal.arm].method,
            draft_budget=arms[refusal.arm].draft_budget,
            verify_width=arms[refusal.arm].verify_width,
            tensor_parallelism=refusal.tensor_parallelism,
            reason=refusal.reason,
        )
        for refusal in matrix.refusals
    )


def _workloads(inputs: PlanInputs, matrix: Matrix, calibration_keys: Mapping[str, str]) -> tuple[PlannedWorkload, ...]:
    keys = {cell.workload: cell.workload_key for cell in matrix.cells}
    return tuple(
        PlannedWorkload(
            name=name,
            set=workload.set,
            key=keys.get(name, name),
            calibration_key=calibration_keys.get(name),
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
    estimates = session_estimates(inputs, sessions)
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
            cells=_cells(session, estimates[session.arm.name, session.tensor_parallelism]),
        )
        for session in sessions
    )


def _cells(session: Session, estimate: SessionSeconds) -> tuple[PlannedCell, ...]:
    return tuple(
        PlannedCell(
            key=cell.key,
            workload=cell.workload,
            workload_key=cell.workload_key,
            concurrency=cell.concurrency,
            expected=round(estimate.cells[cell.workload, cell.concurrency].expected, 1),
        )
        for cell in session.cells
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
    if config.engine_entry.kind == "sglang" and any(arm.is_tree for arm in config.expanded_arms):
        warnings.append("stock SGLang has no DDTREE: its serving environment needs the plugin of plugins/sglang-ddtree")
    return tuple(warnings)
