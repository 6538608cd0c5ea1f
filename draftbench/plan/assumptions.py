"""Stated rates from which durations are estimated; every number names its source and stands in the plan.

They decide how long a run is expected to take and what a time budget gives up, never a result.
"""

from dataclasses import dataclass
from itertools import pairwise

from draftbench.config import Arm
from draftbench.plan.inputs import PlanInputs
from draftbench.plan.memory import value_bytes


@dataclass(frozen=True)
class Span:
    """Seconds, or another quantity: lowest, expected and highest."""

    low: float
    expected: float
    high: float

    def __post_init__(self) -> None:
        assert 0 <= self.low <= self.expected <= self.high

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, other: "Span") -> "Span":
        """Multiply lowest with lowest and highest with highest."""
        return Span(self.low * other.low, self.expected * other.expected, self.high * other.high)

    def scaled(self, factor: float) -> "Span":
        """Multiply by a number."""
        return Span(self.low * factor, self.expected * factor, self.high * factor)


ZERO = Span(0, 0, 0)


@dataclass(frozen=True)
class Assumption:
    """One line of the plan's table of assumptions."""

    name: str
    value: str
    source: str


MEASURED_PARAMETERS = 134_515_008
"""Parameters of SmolLM2-135M, on which the CPU rates were measured; they scale with the target's size."""

CPU_STEP_SECONDS = {2: Span(0.033, 0.045, 0.110), 4: Span(0.050, 0.062, 0.130)}
"""Decode step of SmolLM2-135M by bytes a value."""

STEP_COST = {
    ("cpu", 2): ((1, 1.0), (8, 1.05), (16, 1.1), (32, 1.5), (64, 1.7)),
    ("cpu", 4): ((1, 1.0), (8, 1.4), (16, 1.7), (32, 2.3), (64, 3.4)),
    ("cuda", 2): ((1, 1.0), (64, 1.1), (256, 1.5), (1024, 4.0)),
    ("cuda", 4): ((1, 1.0), (64, 1.3), (256, 2.5), (1024, 8.0)),
}
"""Cost of a step that runs N rows against one row, by device and bytes a value."""

DRAFT_COST = 0.25
"""Cost of one draft pass against a decode step."""

TOKENS_A_STEP = {"chain": Span(1.3, 1.7, 5.0), "tree": Span(1.5, 2.2, 6.0)}

BANDWIDTH_GB_S = {
    "H200": 4800.0,
    "H100": 3350.0,
    "A100": 2039.0,
    "RTX PRO 6000": 1792.0,
    "RTX 4090": 1008.0,
    "L40": 864.0,
}
"""Memory bandwidth by a part of the GPU's name, from NVIDIA's data sheets."""

UNKNOWN_BANDWIDTH_GB_S = 1000.0
BANDWIDTH_EFFICIENCY = Span(0.35, 0.55, 0.75)
SHORTEST_GPU_STEP = Span(0.001, 0.0015, 0.004)
PREFILL_FLOP_A_BYTE = 100.0

CPU_START_SECONDS = Span(5, 10, 30)
GPU_START_SECONDS = Span(60, 90, 180)
LOAD_BYTES_A_SECOND = 2e9
JOB_SECONDS = Span(2, 3, 8)

WARMUP_PASSES = Span(1, 1, 3)
"""Passes over the calibration conversations until the step time is steady."""

SHARE_OF_CAP = Span(0.4, 0.7, 1.0)
"""Output tokens against max_new_tokens: natural stops come first."""

PROMPT_TOKENS = {"agentic": 3000, "code": 200, "json": 900, "math": 150, "chat": 200}
"""Prompt tokens of a conversation with all its turns, by the beginning of the set's name."""

TURNS = {"agentic": 4, "chat": 2}
"""Turns of a conversation where max_turns does not say."""

OTHER_PROMPT_TOKENS = 1000


@dataclass(frozen=True)
class Rates:
    """Rates of one device at one tp; `step` is the seconds of an AR decode step of one row."""

    start: Span
    step: Span
    prefill_seconds_a_token: Span
    step_cost: tuple[tuple[int, float], ...]

    def cost(self, rows: float) -> float:
        """Cost of a step of this many rows, in decode steps; beyond the table it grows as fast as at its end."""
        assert rows >= self.step_cost[0][0]
        for (left, low), (right, high) in pairwise(self.step_cost):
            if rows <= right:
                return low + (high - low) * (rows - left) / (right - left)
        (left, low), (right, high) = self.step_cost[-2:]
        return high + (high - low) * (rows - right) / (right - left)


def rates_of(inputs: PlanInputs, tp: int) -> Rates:
    """Rates for this node and target; unknown sizes count as those of SmolLM2-135M."""
    width = value_bytes(inputs)
    parameters = inputs.target.count("parameters") or MEASURED_PARAMETERS
    cost = STEP_COST[inputs.device, width]
    if inputs.device == "cpu":
        size = parameters / MEASURED_PARAMETERS
        step = CPU_STEP_SECONDS[width].scaled(size)
        rows, factor = cost[-1]
        return Rates(CPU_START_SECONDS, step, step.scaled(factor / rows), cost)
    weights = inputs.target.count("weight_bytes") or parameters * width
    bandwidth = gpu_bandwidth(inputs) * 1e9 * tp
    efficiency = BANDWIDTH_EFFICIENCY
    step = Span(
        weights / (bandwidth * efficiency.high) + SHORTEST_GPU_STEP.low,
        weights / (bandwidth * efficiency.expected) + SHORTEST_GPU_STEP.expected,
        weights / (bandwidth * efficiency.low) + SHORTEST_GPU_STEP.high,
    )
    prefill = 2 * parameters / (bandwidth * PREFILL_FLOP_A_BYTE)
    start = GPU_START_SECONDS + Span(0.5, 1.0, 3.0).scaled(weights / LOAD_BYTES_A_SECOND)
    return Rates(start, step, Span(0.5, 1.0, 3.0).scaled(prefill), cost)


def gpu_bandwidth(inputs: PlanInputs) -> float:
    """Declared bandwidth of a GPU in GB/s, else the data sheet's by name, else an assumption."""
    if inputs.inventory.memory_bandwidth_gb_s is not None:
        return inputs.inventory.memory_bandwidth_gb_s
    name = inputs.inventory.gpus[0].name if inputs.inventory.gpus else ""
    return next((value for part, value in BANDWIDTH_GB_S.items() if part in name), UNKNOWN_BANDWIDTH_GB_S)


def tokens_a_step(arm: Arm) -> Span:
    """Tokens that one step of one request brings; the low end is the slow one."""
    if arm.method == "AR":
        return Span(1, 1, 1)
    return TOKENS_A_STEP["tree" if arm.is_tree else "chain"]


def assumption_table(inputs: PlanInputs) -> tuple[Assumption, ...]:
    """Every rate that the estimate rests on, in words."""
    width = value_bytes(inputs)
    rates = rates_of(inputs, 1)
    prototype = "prototype run on a 2-core AMX Xeon, SmolLM2-135M, scaled by parameters"
    gpu = inputs.device == "cuda"
    bound = f"weight bytes / (bandwidth x {_range(BANDWIDTH_EFFICIENCY)}), {gpu_bandwidth(inputs):.0f} GB/s a GPU"
    return (
        Assumption("server start", f"{_range(rates.start)} s", "SGLang 0.5.17 on an H200" if gpu else "estimate"),
        Assumption("decode step at tp 1", f"{_range(rates.step, 1000)} ms", bound if gpu else prototype),
        Assumption(
            "prefill at tp 1",
            f"{1 / rates.prefill_seconds_a_token.expected:.0f} tokens/s",
            f"{PREFILL_FLOP_A_BYTE:.0f} FLOP a byte of bandwidth" if gpu else prototype,
        ),
        Assumption(
            "cost of a step of N rows",
            ", ".join(f"{rows}: {cost:g}" for rows, cost in STEP_COST[inputs.device, width]),
            "estimate" if gpu else prototype,
        ),
        Assumption("draft pass", f"{DRAFT_COST:g} decode steps", prototype),
        Assumption("tokens a step, chain", _range(TOKENS_A_STEP["chain"]), f"{prototype}; top: published for 27B"),
        Assumption("tokens a step, tree", _range(TOKENS_A_STEP["tree"]), f"{prototype}; top: published for 27B"),
        Assumption("output against the cap", _range(SHARE_OF_CAP), "estimate"),
        Assumption("job start", f"{_range(JOB_SECONDS)} s", "estimate: interpreter, client, checks"),
    )


def _range(span: Span, factor: float = 1.0) -> str:
    return f"{span.expected * factor:.3g} ({span.low * factor:.3g} to {span.high * factor:.3g})"
