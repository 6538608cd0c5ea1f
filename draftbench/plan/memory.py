"""Whether an arm fits: memory of one GPU (or of the host) as an inequality with its terms.

A term that is unknown makes the verdict `unknown`, never a pass; known terms that already exceed the limit refuse.
"""

from dataclasses import dataclass
from typing import Literal

from draftbench.config import Arm
from draftbench.hardware import GIB
from draftbench.models import ModelFacts
from draftbench.plan.inputs import PlanInputs

Verdict = Literal["fits", "does not fit", "unknown"]

DEFAULT_GPU_FRACTION = 0.85
"""Share of a GPU for weights and caches where serving.memory_fraction is null: about SGLang's own choice."""

HOST_FRACTION = 0.8
"""Share of the host's memory that a CPU server may take; the rest is the client's and the system's."""

GPU_WORKSPACE_BYTES = 2 * GIB
HOST_WORKSPACE_BYTES = GIB // 2


@dataclass(frozen=True)
class Term:
    """One summand in bytes; None = unknown, `source` then says why."""

    name: str
    size: int | None
    source: str


@dataclass(frozen=True)
class Inequality:
    """Sum of the terms <= limit, in bytes."""

    name: str
    terms: tuple[Term, ...]
    limit: int | None
    limit_source: str

    @property
    def known(self) -> int:
        """Sum of the terms that are known: a lower bound of what is needed."""
        return sum(term.size for term in self.terms if term.size is not None)

    @property
    def verdict(self) -> Verdict:
        """Whether it holds."""
        if self.limit is not None and self.known > self.limit:
            return "does not fit"
        complete = self.limit is not None and all(term.size is not None for term in self.terms)
        return "fits" if complete else "unknown"

    @property
    def reason(self) -> str:
        """Why it does not hold, or what is unknown; empty where it holds."""
        if self.verdict == "does not fit":
            return f"{self.name} needs {_gib(self.known)} GiB of {_gib(self.limit or 0)} GiB"
        missing = [f"{term.name} ({term.source})" for term in self.terms if term.size is None]
        missing += [f"limit ({self.limit_source})"] if self.limit is None else []
        return "unknown: " + ", ".join(missing) if missing else ""


@dataclass(frozen=True)
class MemoryFit:
    """The inequalities of one arm at one tp."""

    arm: str
    tensor_parallelism: int
    inequalities: tuple[Inequality, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of the inequalities' verdicts."""
        verdicts = {inequality.verdict for inequality in self.inequalities}
        return next((v for v in ("does not fit", "unknown") if v in verdicts), "fits")

    @property
    def reason(self) -> str:
        """The reasons of the inequalities that have the worst verdict."""
        worst = [inequality.reason for inequality in self.inequalities if inequality.verdict == self.verdict]
        return "; ".join(filter(None, worst))


def memory_fit(inputs: PlanInputs, arm: Arm, tp: int) -> MemoryFit:
    """Weigh what one GPU must hold against what it has; on a CPU what the host must hold."""
    static, work = _static_terms(inputs, arm, tp), _work_terms(inputs, arm)
    if inputs.device == "cpu":
        memory, source = inputs.inventory.memory_bytes, f"{HOST_FRACTION:.0%} of the host's memory"
        limit = None if memory is None else int(memory * HOST_FRACTION)
        sums: tuple[Inequality, ...] = (Inequality("memory", (*static, *work), limit, source),)
    else:
        sums = _gpu_inequalities(inputs, static, work)
    return MemoryFit(arm.name, tp, sums)


def _gpu_inequalities(
    inputs: PlanInputs, static: tuple[Term, ...], work: tuple[Term, ...]
) -> tuple[Inequality, Inequality]:
    memory, stated = inputs.inventory.gpu_memory_bytes, inputs.config.serving.memory_fraction
    fraction = stated if stated is not None else DEFAULT_GPU_FRACTION
    origin = "serving.memory_fraction" if stated is not None else "assumed, serving.memory_fraction is null"
    if memory is None:
        unknown = "the GPU's memory is unknown"
        return Inequality("weights and caches", static, None, unknown), Inequality("workspace", work, None, unknown)
    limit = int(memory * fraction)
    of = f"of {_gib(memory)} GiB a GPU"
    return (
        Inequality("weights and caches", static, limit, f"{fraction:g} ({origin}) {of}"),
        Inequality("workspace", work, memory - limit, f"the remaining {1 - fraction:.2g} {of}"),
    )


def value_bytes(inputs: PlanInputs) -> int:
    """Bytes of a weight or cache value as served: 4 where the embedded engine computes in fp32."""
    entry = inputs.config.engine_entry
    if entry.kind != "embedded" or entry.dtype in ("bfloat16", "float16"):
        return 2
    if entry.dtype == "float32":
        return 4
    return 2 if inputs.device == "cuda" or inputs.inventory.has_bfloat16_units else 4


def _static_terms(inputs: PlanInputs, arm: Arm, tp: int) -> tuple[Term, ...]:
    drafter = inputs.drafter_of(arm)
    terms = [
        _weights("target weights", inputs, inputs.target, tp),
        _cache("target KV cache", inputs, inputs.target, tp),
        _recurrent_state(inputs, arm, tp),
    ]
    if drafter is not None:
        terms += [
            _weights("drafter weights", inputs, drafter, 1),
            _cache("drafter KV cache", inputs, drafter, tp),
        ]
    return tuple(term for term in terms if term.size != 0)


def _weights(name: str, inputs: PlanInputs, facts: ModelFacts, tp: int) -> Term:
    """Weights a GPU; a drafter counts whole, since not every engine splits it."""
    if inputs.config.engine_entry.kind == "embedded":
        parameters, width = facts.count("parameters"), value_bytes(inputs)
        copies = 2 if inputs.device == "cpu" else 1
        packed = " x 2, a packed copy beside the weights" if copies == 2 else ""
        size = None if parameters is None else parameters * width * copies
        return Term(name, size, f"parameters x {width} B{packed}" if size else facts.source("parameters"))
    weight_bytes = facts.count("weight_bytes")
    split = f" / tp {tp}" if tp > 1 else ""
    size = None if weight_bytes is None else -(-weight_bytes // tp)
    return Term(name, size, f"weight bytes{split}" if size else facts.source("weight_bytes"))


def _cache(name: str, inputs: PlanInputs, facts: ModelFacts, tp: int) -> Term:
    """KV cache of every running request at full context; a GPU holds at least one KV head (design decision 6)."""
    per_token, heads = facts.count("kv_bytes_per_token"), facts.count("kv_heads")
    if per_token is None or heads is None:
        unknown = "kv_bytes_per_token" if per_token is None else "kv_heads"
        return Term(name, None, facts.source(unknown))
    serving = inputs.config.serving
    tokens = serving.max_running_requests * serving.context_length
    held = max(1, heads // tp)
    width = value_bytes(inputs)
    source = (
        f"{serving.max_running_requests} requests x {serving.context_length} tokens x {per_token} B"
        f"{f' x {width} / 2 B' if width != 2 else ''} x {held} of {heads} KV heads"
    )
    return Term(name, tokens * per_token * width // 2 * held // heads, source)


def _recurrent_state(inputs: PlanInputs, arm: Arm, tp: int) -> Term:
    """Recurrent state counts (budget + 1) times, since each node of a verify pass keeps its own."""
    state, width = inputs.target.count("recurrent_state_bytes"), inputs.verify_width(arm)
    if state == 0:
        return Term("recurrent state", 0, "no recurrent layers")
    if state is None or width is None:
        reason = inputs.target.source("recurrent_state_bytes") if state is None else "verify width unknown"
        return Term("recurrent state", None, reason)
    running = inputs.config.serving.max_running_requests
    split = f" / tp {tp}" if tp > 1 else ""
    return Term(
        "recurrent state", state * width * running // tp, f"{state} B x {width} nodes x {running} requests{split}"
    )


def _work_terms(inputs: PlanInputs, arm: Arm) -> tuple[Term, ...]:
    width, vocabulary = inputs.verify_width(arm), inputs.target.count("vocabulary")
    running = inputs.config.serving.max_running_requests
    on_cpu = inputs.device == "cpu"
    workspace = Term(
        "workspace",
        HOST_WORKSPACE_BYTES if on_cpu else GPU_WORKSPACE_BYTES,
        "assumption: interpreter, activations" if on_cpu else "assumption: CUDA context, NCCL, kernels' workspace",
    )
    if width is None or vocabulary is None:
        reason = "verify width unknown" if width is None else inputs.target.source("vocabulary")
        return Term("logits", None, reason), workspace
    rows = running * width
    size = rows * vocabulary * 4
    terms = [Term("logits", size, f"{running} requests x {width} rows x {vocabulary} x 4 B"), workspace]
    if inputs.config.engine_entry.kind == "sglang" and not on_cpu:
        terms.append(_graph_buffers(inputs, width))
    return tuple(terms)


def _graph_buffers(inputs: PlanInputs, width: int) -> Term:
    """Index buffer of the captured graphs: 8 B a key of each row of the largest batch.

    Source: `cuda_graph_kv_indices` of SGLang 0.5.17's triton back end.
    """
    serving = inputs.config.serving
    batch = serving.cuda_graph_max_batch or serving.max_running_requests
    return Term(
        "graph buffers",
        batch * width * serving.context_length * 8,
        f"{batch} requests x {width} rows x {serving.context_length} tokens x 8 B",
    )


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
