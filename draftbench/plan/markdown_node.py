"""The plan's sections on node, models and memory."""

from collections.abc import Sequence

from draftbench.hardware import GIB
from draftbench.plan.content import MemorySum, Plan, PlannedModel
from draftbench.plan.markdown_table import Row, cell, table


def hardware_section(plan: Plan) -> str:
    """CPU, memory, GPUs, driver and topology."""
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


def models_section(plan: Plan) -> str:
    """Facts of target and drafter with their sources."""
    parts = [_model("Target", plan.target, without=_DRAFTER_FACTS)]
    if plan.drafter is not None:
        parts.append(_model("Drafter", plan.drafter, without=("context_length",)))
        size = plan.drafter.facts["block_size"]
        parts.append(f"Block size of the drafter: {cell(size.value)} ({size.source}).")
    return "\n\n".join(parts)


def _model(role: str, model: PlannedModel, without: Sequence[str]) -> str:
    rows = [
        (name.replace("_", " "), model.facts[name].value, model.facts[name].source)
        for name in _FACT_ORDER
        if name not in without
    ]
    return f"**{role}: {model.name}**, {model.origin}\n\n" + table(("fact", "value", "source"), rows)


def memory_section(plan: Plan) -> str:
    """The memory inequality of each arm and tp."""
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
