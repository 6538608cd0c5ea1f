"""bench-plan.md: the plan to read and approve before hours of GPU time are spent."""

from collections.abc import Iterable, Sequence

from draftbench.hardware import GIB
from draftbench.labels import arm_label, workload_label
from draftbench.plan.budget import minutes
from draftbench.plan.document import MemorySum, Plan, PlannedModel, SpanSeconds
from draftbench.plan.power import CONVERSATION_SD, LAUNCH_SD, MOST_BLOCKS, Power, familywise_level, power_of
from draftbench.workloads.schema import Manifest

USEFUL_HALF_WIDTH = 1.0
"""An interval wider than +-100 % is shown as none."""

Row = Sequence[object]

DEVIATIONS = """\
Whatever differs from this plan is listed in the report under "Deviations": cells that were not measured or failed,
sessions whose server was restarted, hardware or versions other than those planned, statistics settings changed after
the first measurement, and workloads of another content.
A cell counts when every planned request is done, the counting identities hold, the server was the planned one and the
client kept up; otherwise it is a failure with a record, never a number.
Nothing is dropped from the analysis for its value."""


def render_markdown(plan: Plan, manifests: dict[str, Manifest] | None = None) -> str:
    """Render the plan; `manifests` of workloads that are built already, by workload key."""
    sections = (
        f"# Plan: {plan.experiment}",
        f"**Question.** {plan.question}",
        _summary(plan),
        _warnings(plan),
        "## Hardware\n\n" + _hardware(plan),
        "## Models\n\n" + _models(plan),
        "## Workloads\n\n" + _workloads(plan, manifests or {}),
        "## Matrix\n\n" + _matrix(plan),
        "## Refused\n\n" + _refusals(plan),
        "## Memory\n\n" + _memory(plan),
        "## Duration\n\n" + _duration(plan),
        "## Hypotheses\n\n" + _hypotheses(plan),
        "## Statistics\n\n" + _statistics(plan),
        "## Deviations\n\n" + DEVIATIONS,
        f"Plan {plan.plan_sha256[:16]}, config {plan.config_sha256[:16]}, measurement protocol {plan.protocol}.",
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    """Render a Markdown table; None = unknown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return str(value).replace("|", "\\|").replace("\n", " ")


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
    return "\n".join(f"> **Note.** {_sentence(warning)}" for warning in plan.warnings)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _hardware(plan: Plan) -> str:
    node = plan.hardware
    rows: list[Row] = [("inventory", f"{node['origin']}: {node['source']}")]
    if node["cpu_model"]:
        rows.append(("CPU", f"{node['cpu_model']}, {node['cpu_cores']} logical cores"))
        rows.append(("CPU features", tuple(node["cpu_features"])))
        rows.append(("memory", _gib(node["memory_bytes"])))
    names: dict[tuple[str, int | None], int] = {}
    for gpu in node["gpus"]:
        kind = (gpu["name"], gpu["memory_bytes"])
        names[kind] = names.get(kind, 0) + 1
    rows += [("GPUs", f"{count} x {name}, {_gib(memory)} each") for (name, memory), count in names.items()]
    if node["gpus"]:
        rows.append(("GPU driver", _driver(node["driver"], node["cuda"], node["origin"])))
        rows.append(("NUMA nodes of the GPUs", _numa(node["gpus"])))
        if node["memory_bandwidth_gb_s"]:
            rows.append(("memory bandwidth of a GPU", f"{node['memory_bandwidth_gb_s']:.0f} GB/s"))
    else:
        rows.append(("GPUs", "none"))
    return "\n\n".join(filter(None, (table(("what", "value"), rows), _topology(plan))))


def _driver(driver: str | None, cuda: str | None, origin: str) -> str:
    if driver is None:
        return f"unknown ({origin})"
    return driver + (f", CUDA {cuda}" if cuda else "")


def _numa(gpus: list[dict[str, int | None]]) -> str:
    nodes: dict[int | None, list[str]] = {}
    for gpu in gpus:
        nodes.setdefault(gpu["numa_node"], []).append(str(gpu["index"]))
    return "; ".join(f"{'unknown' if node is None else node}: {', '.join(ids)}" for node, ids in nodes.items())


def _topology(plan: Plan) -> str:
    links = {(first, second): link for first, second, link in plan.hardware["links"]}
    if not links:
        return ""
    indices = sorted({index for pair in links for index in pair})
    rows = [(f"GPU {a}", *("" if a == b else links.get((a, b), "?") for b in indices)) for a in indices]
    return "Links between GPUs, as `nvidia-smi topo -m` names them:\n\n" + table(
        ("", *(f"GPU {index}" for index in indices)), rows
    )


_FACT_ORDER = (
    "layers",
    "attention_layers",
    "recurrent_layers",
    "hidden_size",
    "query_heads",
    "kv_heads",
    "head_dim",
    "vocabulary",
    "context_length",
    "parameters",
    "weight_bytes",
    "bytes_per_parameter",
    "kv_bytes_per_token",
    "recurrent_state_bytes",
    "block_size",
    "mask_token_id",
    "feature_layers",
)
_DRAFTER_FACTS = ("block_size", "mask_token_id", "feature_layers")


def _models(plan: Plan) -> str:
    parts = [_model("Target", plan.target, without=_DRAFTER_FACTS)]
    if plan.drafter is not None:
        parts.append(_model("Drafter", plan.drafter, without=("context_length",)))
        size = plan.drafter.facts["block_size"]
        parts.append(f"Block size of the drafter: {_cell(size.value)} ({size.source}).")
    return "\n\n".join(parts)


def _model(role: str, model: PlannedModel, without: Sequence[str]) -> str:
    rows = [
        (name.replace("_", " "), model.facts[name].value, model.facts[name].source)
        for name in _FACT_ORDER
        if name not in without
    ]
    return f"**{role}: {model.name}**, {model.origin}\n\n" + table(("fact", "value", "source"), rows)


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


def _memory(plan: Plan) -> str:
    lines = [
        (fit.arm, fit.tensor_parallelism, _inequality(one), one.verdict + (f" ({fit.reason})" if fit.reason else ""))
        for fit in plan.memory
        for one in fit.sums
    ]
    sources: dict[str, str] = {}
    for fit in plan.memory:
        for one in fit.sums:
            sources |= {f"{one.name}, limit": one.limit_source}
            sources |= {term.name: term.source for term in one.terms}
    whose = "each GPU" if plan.device == "cuda" else "the host"
    return "\n\n".join(
        (
            f"What {whose} must hold, in GiB.",
            table(("arm", "tp", "needed and available", "verdict"), lines),
            "Terms, as counted for the last arm that has them:",
            table(("term", "source"), sources.items()),
        )
    )


def _inequality(one: MemorySum) -> str:
    terms = " + ".join(f"{term.name} {_gib(term.size, unit='')}" for term in one.terms)
    sign = ">" if one.limit is not None and one.known > one.limit else "<=" if one.verdict == "fits" else "?"
    return f"{one.name}: {terms} = {_gib(one.known, unit='')} {sign} {_gib(one.limit, unit='')}"


def _gib(size: int | None, unit: str = " GiB") -> str:
    if size is None:
        return "unknown"
    return f"{size / GIB:.{1 if size >= GIB else 3}f}{unit}"


def _duration(plan: Plan) -> str:
    text = f"Expected {_span(plan.duration)}"
    if plan.time_budget is not None:
        text += f"; the time budget is {minutes(plan.time_budget)}"
    lines = [text + "."]
    if plan.given_up:
        lines.append(
            f"As written, the study would take {_span(plan.wanted_duration)}. "
            f"For the time budget it gives up, in this order: {', '.join(plan.given_up)}."
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
        return "no useful one" if half is None or half > USEFUL_HALF_WIDTH else f"+-{half:.1%}"

    needed = power.blocks_needed or f"more than {MOST_BLOCKS}"
    return shown(power.for_these_prompts), shown(power.for_prompts_like_these), needed
