"""What is refused, and why.

`refuse` names the reason why one arm cannot run at one tp; the session leaves the matrix and the plan lists it.
`check_study` raises for mistakes that no plan should be made from: one line with file, key and what is allowed.
"""

from collections.abc import Callable

from draftbench.config import Arm
from draftbench.errors import ConfigError, PlanError
from draftbench.models import ModelFacts
from draftbench.plan.inputs import PlanInputs
from draftbench.plan.memory import memory_fit

EMBEDDED_METHODS = ("AR", "DFLASH", "DDTREE")

TREE_ATTENTION_BACKENDS = ("triton", "flashinfer")
"""SGLang's attention back ends that take a tree mask."""

SIMULATION_PREFIX = "SGLANG_SIMULATE_"
"""SGLang's switches for made-up acceptance; a number measured under them is none."""

Rule = Callable[[PlanInputs, Arm, int], str | None]


def refuse(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    """Say why an arm cannot run at a tp, None where it can; an arm without its AR has no ratio and is refused too."""
    reason = _first_reason(inputs, arm, tp)
    if reason is not None or arm.method == "AR":
        return reason
    baseline = _first_reason(inputs, inputs.baseline, tp)
    return None if baseline is None else f"its baseline {inputs.baseline.name} is refused at tp {tp}: {baseline}"


def _first_reason(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    return next((reason for rule in _RULES if (reason := rule(inputs, arm, tp)) is not None), None)


def _simulated_acceptance(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    names = sorted(name for name in inputs.environment if name.startswith(SIMULATION_PREFIX))
    if not names:
        return None
    return f"{names[0]} is set in the environment: acceptance would be made up; unset it"


def _engine_lacks_method(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    if inputs.config.engine_entry.kind == "embedded" and arm.method not in EMBEDDED_METHODS:
        return f"the embedded engine lacks {arm.method}; it has {', '.join(EMBEDDED_METHODS)}"
    if inputs.config.engine_entry.kind == "sglang" and inputs.device == "cpu" and arm.method in ("DFLASH", "DDTREE"):
        return f"SGLang has no {arm.method} on a CPU; use the embedded engine or a GPU"
    return None


def _tensor_parallelism(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    if inputs.config.engine_entry.kind == "embedded" and tp > 1:
        return f"the embedded engine runs on one device; tensor_parallelism {tp} needs another engine"
    if inputs.device == "cuda" and tp > len(inputs.inventory.gpus):
        return f"tp {tp} needs {tp} GPUs, the node has {len(inputs.inventory.gpus)}"
    if inputs.device == "cpu" and tp > 1:
        return f"tp {tp} needs {tp} GPUs, the node has none"
    models = [model for model in (inputs.target, inputs.drafter_of(arm)) if model is not None]
    return next((reason for model in models if (reason := heads_problem(model, tp)) is not None), None)


def heads_problem(model: ModelFacts, tp: int) -> str | None:
    """Say why tp cannot split a model's heads; None where it can.

    Query heads must divide by tp, and KV heads by tp or tp by KV heads (design decision 6).
    """
    query, kv = model.count("query_heads"), model.count("kv_heads")
    if tp == 1:
        return None
    if query is None or kv is None:
        missing = "query_heads" if query is None else "kv_heads"
        return f"whether tp {tp} can split {model.name} is unknown: {missing} {model.source(missing)}"
    if query % tp == 0 and (kv % tp == 0 or tp % kv == 0):
        return None
    return f"tp {tp} cannot split the {query} query heads and {kv} KV heads of {model.name}"


def _tree_on_hybrid(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    if not arm.is_tree or inputs.config.allow_tree_on_hybrid or inputs.target.is_hybrid is False:
        return None
    if inputs.target.is_hybrid is None:
        return f"whether the target has recurrent layers is unknown: {inputs.target.source('recurrent_layers')}"
    return (
        f"the target has {inputs.target.count('recurrent_layers')} recurrent layers, whose state a tree mask cannot "
        "keep apart; set allow_tree_on_hybrid if the engine keeps one state a node"
    )


def _drafter_mismatch(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    drafter = inputs.drafter_of(arm)
    if drafter is None or arm.method not in ("DFLASH", "DDTREE"):
        return None
    for name, label in (("hidden_size", "hidden size"), ("vocabulary", "vocabulary")):
        ours, theirs = drafter.count(name), inputs.target.count(name)
        if ours is not None and theirs is not None and ours != theirs:
            return f"drafter and target do not match: {label} {ours} and {theirs}"
    features, layers = drafter.layers_of("feature_layers"), inputs.target.count("layers")
    if features and layers is not None and max(features) >= layers:
        return f"drafter and target do not match: it reads layer {max(features)}, the target has {layers} layers"
    return None


def _longer_than_the_block(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    block = inputs.drafter.count("block_size") if inputs.drafter else None
    if arm.method != "DFLASH" or arm.draft_tokens is None or block is None or arm.draft_tokens <= block:
        return None
    return f"draft_tokens {arm.draft_tokens} exceeds the drafter's block of {block}"


def _tree_needs(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    serving = inputs.config.serving
    if not arm.is_tree or inputs.config.engine_entry.kind != "sglang":
        return None
    if serving.page_size not in (None, 1):
        return f"serving.page_size is {serving.page_size}; a tree needs 1, for every arm"
    if serving.attention_backend not in (None, *TREE_ATTENTION_BACKENDS):
        return (
            f"serving.attention_backend {serving.attention_backend} takes no tree mask; "
            f"{' or '.join(TREE_ATTENTION_BACKENDS)} does"
        )
    return None


def _context_headroom(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    """Two verify passes beyond the last token must fit, since the engine reserves that much ahead (SGLang 0.5.17)."""
    width = inputs.verify_width(arm)
    if width is None or arm.method == "AR":
        return None
    context = inputs.config.serving.context_length
    for name, workload in inputs.config.workloads.items():
        needed = (workload.max_prompt_tokens or 0) + workload.max_new_tokens + 2 * width
        if needed > context:
            return f"workload {name} with 2 x {width} tokens of draft needs {needed} tokens of context, not {context}"
    return None


def _graph_coverage(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    largest, width = inputs.config.serving.cuda_graph_max_batch, inputs.verify_width(arm) or 1
    concurrency = inputs.highest_concurrency
    if inputs.config.engine_entry.kind != "sglang" or inputs.device == "cpu" or largest is None:
        return None
    if largest >= concurrency:
        return None
    return (
        f"graphs cover {largest} x {width} tokens, concurrency {concurrency} needs {concurrency} x {width}; "
        f"raise serving.cuda_graph_max_batch to {concurrency}"
    )


def _memory(inputs: PlanInputs, arm: Arm, tp: int) -> str | None:
    fit = memory_fit(inputs, arm, tp)
    return f"does not fit: {fit.reason}" if fit.verdict == "does not fit" else None


_RULES: tuple[Rule, ...] = (
    _simulated_acceptance,
    _engine_lacks_method,
    _tensor_parallelism,
    _tree_on_hybrid,
    _drafter_mismatch,
    _longer_than_the_block,
    _tree_needs,
    _context_headroom,
    _graph_coverage,
    _memory,
)


def check_study(inputs: PlanInputs) -> None:
    """Raise for what makes the whole config wrong.

    Raises ConfigError, or PlanError where the primary arm is refused at every tp.
    """
    _check_tensor_parallelism(inputs)
    _check_context(inputs)
    _check_prompts(inputs)
    _check_fixed_port(inputs)
    _check_primary_arm(inputs)


def _check_tensor_parallelism(inputs: PlanInputs) -> None:
    place = f"{inputs.file_name}: tensor_parallelism"
    if inputs.config.engine_entry.kind == "embedded":
        if inputs.config.tensor_parallelism != (1,):
            raise ConfigError(f"{place}: the embedded engine runs on one device; allowed: [1]")
        return
    gpus = len(inputs.inventory.gpus) if inputs.device == "cuda" else 0
    for tp in inputs.config.tensor_parallelism:
        if tp > max(1, gpus):
            raise ConfigError(
                f"{place}: {tp} needs {tp} GPUs, but the node has {gpus} ({inputs.inventory.source}); "
                f"allowed: up to {max(1, gpus)}, or declare another node under `hardware`"
            )
        problem = heads_problem(inputs.target, tp)
        if problem is not None:
            possible = [k for k in (1, 2, 4, 8, 16) if heads_problem(inputs.target, k) is None]
            raise ConfigError(f"{place}: {problem}; allowed: {', '.join(map(str, possible))}")


def _check_context(inputs: PlanInputs) -> None:
    context, possible = inputs.config.serving.context_length, inputs.target.count("context_length")
    if possible is not None and context > possible:
        raise ConfigError(
            f"{inputs.file_name}: serving.context_length {context} exceeds the {possible} tokens of "
            f"{inputs.target.name}; allowed: up to {possible}"
        )


def _check_prompts(inputs: PlanInputs) -> None:
    context = inputs.config.serving.context_length
    for name, workload in inputs.config.workloads.items():
        place = f"{inputs.file_name}: workloads.{name}"
        if workload.set.startswith("random"):
            raise ConfigError(
                f"{place}.set {workload.set!r}: random tokens say nothing about drafting; name a real set"
            )
        needed = (workload.max_prompt_tokens or 0) + workload.max_new_tokens
        if needed > context:
            raise ConfigError(
                f"{place}: max_prompt_tokens + max_new_tokens = {needed} exceed serving.context_length {context}; "
                "lower them or raise it"
            )


def _check_fixed_port(inputs: PlanInputs) -> None:
    serving, gpus = inputs.config.serving, len(inputs.inventory.gpus)
    side_by_side = inputs.config.packing == "pairs" and inputs.device == "cuda"
    if serving.port is not None and side_by_side and gpus >= 2 * min(inputs.config.tensor_parallelism):
        raise ConfigError(
            f"{inputs.file_name}: serving.port {serving.port} is fixed, but sessions run side by side; "
            "set it to null or packing to exclusive"
        )


def _check_primary_arm(inputs: PlanInputs) -> None:
    primary = next(arm for arm in inputs.config.expanded_arms if arm.name == inputs.config.primary_arm)
    reasons = [refuse(inputs, primary, tp) for tp in inputs.config.tensor_parallelism]
    if None not in reasons:
        raise PlanError(f"{inputs.file_name}: primary_arm {primary.name} is refused: {reasons[0]}")
