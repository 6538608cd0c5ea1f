"""bench-plan.md: the plan to read and approve before hours of GPU time are spent."""

from typing import Any

from draftbench.labels import arm_label, workload_label
from draftbench.plan.budget import minutes
from draftbench.plan.content import Plan, SpanSeconds
from draftbench.plan.markdown_node import hardware_section, memory_section, models_section
from draftbench.plan.markdown_table import Row, cell, table
from draftbench.plan.power import CONVERSATION_SD, LAUNCH_SD, MOST_BLOCKS, Power, familywise_level, power_of
from draftbench.plan.progress import Progress
from draftbench.workloads.schema import Manifest

USEFUL_HALF_WIDTH = 1.0
"""An interval wider than +-100 % is shown as none."""

DEVIATIONS = """\
Whatever differs from this plan is listed in the report under "Deviations": cells that were not measured or failed,
sessions whose server was restarted, hardware or versions other than those planned, statistics settings changed after
the first measurement, and workloads of another content.
A cell counts when every planned request is done, the counting identities hold, the server was the planned one and the
client kept up; otherwise it is a failure with a record, never a number.
Nothing is dropped from the analysis for its value."""


def render_markdown(plan: Plan, manifests: dict[str, Manifest] | None = None, progress: Progress | None = None) -> str:
    """Render the plan; `manifests` of workloads that are built already, by workload key; `progress` of its cells."""
    sections = (
        f"# Plan: {plan.experiment}",
        f"**Question.** {plan.question}",
        _summary(plan),
        _warnings(plan),
        "## Hardware\n\n" + hardware_section(plan),
        "## Models\n\n" + models_section(plan),
        "## Arms\n\n" + _arms(plan),
        "## Workloads\n\n" + _workloads(plan, manifests or {}),
        "## Matrix\n\n" + _matrix(plan),
        "## Refused\n\n" + _refusals(plan),
        "## Memory\n\n" + memory_section(plan),
        "## Duration\n\n" + _duration(plan, progress),
        "## Hypotheses\n\n" + _hypotheses(plan),
        "## Statistics\n\n" + _statistics(plan),
        "## Deviations\n\n" + DEVIATIONS,
        f"Plan {plan.plan_sha256[:16]}, config {plan.config_sha256[:16]}, measurement protocol {plan.protocol}.",
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _summary(plan: Plan) -> str:
    arms = len({session.arm for session in plan.sessions})
    decoding = "greedy" if plan.temperature == 0 else f"temperature {plan.temperature:g}, top-p {plan.top_p:g}"
    return (
        f"{_counted(plan.cells, 'cell')} in {_counted(len(plan.sessions), 'session')}: "
        f"{_counted(arms, 'arm')}, {_counted(len(plan.blocks), 'block')}, "
        f"{_counted(len(plan.workloads), 'workload')}; {decoding}; engine {plan.engine} on {plan.device}. "
        f"Expected duration {_span(plan.duration)}. Headline: {plan.primary_arm}. "
        f"{_counted(len(plan.refusals), 'combination')} refused."
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _span(span: SpanSeconds) -> str:
    return f"{minutes(span.expected)} ({minutes(span.low)} to {minutes(span.high)})"


def _warnings(plan: Plan) -> str:
    return "\n>\n".join(f"> **Note.** {_sentence(warning)}" for warning in plan.warnings)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _arms(plan: Plan) -> str:
    rows = [
        (
            arm_label(arm.name, arm.method, arm.draft_budget),
            arm.name,
            arm.verify_width,
            arm.tree_top_k or "",
            _settings(arm.flags),
        )
        for arm in plan.arms
    ]
    shared = {name.replace("_", " "): value for name, value in plan.serving.items() if name != "flags"}
    return (
        "Arms differ in these settings only:\n\n"
        + table(("arm", "name", "verify width", "top-k", "further flags"), rows)
        + "\n\nEvery server has these (null = the engine's own choice): "
        + _settings({**shared, **plan.serving["flags"]})
        + "."
    )


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {'null' if value is None else cell(value)}" for name, value in settings.items())


def _workloads(plan: Plan, manifests: dict[str, Manifest]) -> str:
    rows = [
        (
            workload_label(workload.name),
            workload.set,
            workload.conversations,
            workload.calibration,
            workload.max_turns or "all",
            workload.max_prompt_tokens or "context",
            workload.max_new_tokens,
            workload.concurrency,
        )
        for workload in plan.workloads
    ]
    head = (
        "workload",
        "set",
        "conversations",
        "warm-up",
        "turns at most",
        "prompt at most",
        "output cap",
        "concurrency",
    )
    return "\n\n".join(filter(None, (table(head, rows), _lengths(plan, manifests))))


def _lengths(plan: Plan, manifests: dict[str, Manifest]) -> str:
    rows: list[Row] = []
    for workload in plan.workloads:
        manifest = manifests.get(workload.key)
        if manifest is not None:
            prompt = manifest.selected.prompt_tokens
            spread = (prompt.minimum, prompt.median, prompt.p90, prompt.maximum)
            rows.append((workload_label(workload.name), manifest.selected.requests, *spread))
    if not rows:
        return "Lengths are known once the workloads are built (`snakemake workloads`)."
    return "Prompt tokens of the requests:\n\n" + table(("workload", "requests", "min", "median", "p90", "max"), rows)


def _matrix(plan: Plan) -> str:
    gpus = plan.device == "cuda"
    rows = [
        (
            session.order + 1,
            session.block,
            arm_label(session.arm, session.method, session.draft_budget),
            session.verify_width,
            session.tensor_parallelism,
            *([session.gpus] if gpus else []),
            len(session.cells),
            _span(session.expected),
            f"`{session.key}`",
        )
        for session in plan.sessions
    ]
    head = ("", "block", "arm", "verify width", "tp", *(["GPUs"] if gpus else []), "cells", "expected", "session")
    cells = sorted({f"{workload_label(cell.workload)} {cell.concurrency}" for s in plan.sessions for cell in s.cells})
    return (
        "Sessions in running order; inside a block the order is drawn from the seed. "
        f"Cells of a session, workload and concurrency, in a drawn order as well: {', '.join(cells)}.\n\n"
        + table(head, rows)
    )


def _refusals(plan: Plan) -> str:
    if not plan.refusals:
        return "Nothing."
    return table(("arm", "tp", "reason"), [(r.arm, r.tensor_parallelism, r.reason) for r in plan.refusals])


def _duration(plan: Plan, progress: Progress | None) -> str:
    text = f"Expected {_span(plan.duration)}"
    if plan.time_budget is not None:
        text += f"; the time budget is {minutes(plan.time_budget)}"
    lines = [text + "."]
    if plan.given_up:
        lines.append(
            f"As written, the study would take {_span(plan.wanted_duration)}. "
            f"For the time budget it gives up, in this order: {', '.join(plan.given_up)}."
        )
    if progress is not None and progress.correction is not None:
        lines.append(
            f"{progress.finished} of {plan.cells} cells are measured already and took "
            f"{progress.correction:.2g} x the estimate; by that the rest takes about {minutes(progress.seconds_left)}."
        )
    rows = [(line.name, line.value, line.source) for line in plan.assumptions]
    lines.append("The estimate rests on these assumptions, expected (lowest to highest):")
    lines.append(table(("rate", "value", "source"), rows))
    return "\n\n".join(lines)


def _hypotheses(plan: Plan) -> str:
    if not plan.hypotheses:
        return "None stated."
    return table(("id", "claim", "rule"), [(h.id, h.statement, h.kind.replace("_", " ")) for h in plan.hypotheses])


def _statistics(plan: Plan) -> str:
    statistics, family = plan.statistics, plan.statistics.family
    text = (
        f"Paired log ratios, blocks and conversations crossed. Margin {statistics.margin:.1%}: an arm is faster when "
        f"its whole interval lies above 1 + margin. Familywise confidence {statistics.confidence:.0%} over "
        f"{_counted(len(family), 'primary comparison')} (Holm). Turns under {statistics.min_decode_tokens} decode "
        "tokens count in session time only."
    )
    if len(plan.blocks) < 2:
        return text + "\n\nOne block gives no interval and no verdict: results are exploratory."
    rows = [(workload_label(name), power.conversations, *_precision(power)) for name, power in power_by_workload(plan)]
    head = ("workload", "conversations", "for these prompts", "for prompts like these", "blocks for the margin")
    return "\n\n".join(
        (
            text,
            f"Expected half-width of an interval at concurrency 1 with {_counted(len(plan.blocks), 'block')}, from "
            f"stated spreads: {LAUNCH_SD:.1%} between launches, {CONVERSATION_SD:.0%} between conversations:",
            table(head, rows),
        )
    )


def power_by_workload(plan: Plan) -> list[tuple[str, Power]]:
    """Expected precision by workload, at the plan's blocks, arms and familywise confidence."""
    level = familywise_level(plan.statistics.confidence, len(plan.statistics.family))
    arms = max(2, len({session.arm for session in plan.sessions}))
    return [
        (workload.name, power_of(workload.conversations, len(plan.blocks), arms, plan.statistics.margin, level))
        for workload in plan.workloads
    ]


def _precision(power: Power) -> tuple[str, str, object]:
    def shown(half: float | None) -> str:
        return "no useful one" if half is None or half > USEFUL_HALF_WIDTH else f"±{half:.1%}"

    needed = power.blocks_needed or f"more than {MOST_BLOCKS}"
    return shown(power.for_these_prompts), shown(power.for_prompts_like_these), needed
