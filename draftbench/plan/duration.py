"""How long cells, sessions and the whole run are expected to take, with a range.

Sessions are packed on the node as the leases pack them: in running order, each on the first aligned block of GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from draftbench.config import Arm, WorkloadConfig
from draftbench.matrix import Session
from draftbench.plan.assumptions import (
    DRAFT_COST,
    JOB_SECONDS,
    OTHER_PROMPT_TOKENS,
    PROMPT_TOKENS,
    SHARE_OF_CAP,
    TURNS,
    WARMUP_PASSES,
    ZERO,
    Rates,
    Span,
    rates_of,
    tokens_a_step,
)
from draftbench.plan.inputs import PlanInputs
from draftbench.servers.gpu_blocks import aligned_blocks


@dataclass(frozen=True)
class WorkSize:
    """Tokens that a set of conversations costs."""

    requests: int
    prompt_tokens: int
    output_cap: int


def work_size(workload: WorkloadConfig, conversations: int) -> WorkSize:
    """Size of a workload before it is built, from its config and stated lengths; prefixes are read once."""
    kind = workload.set.split("-")[0]
    turns = workload.max_turns or TURNS.get(kind, 1)
    prompt = PROMPT_TOKENS.get(kind, OTHER_PROMPT_TOKENS)
    if workload.max_prompt_tokens is not None:
        prompt = min(prompt, workload.max_prompt_tokens)
    requests = conversations * turns
    return WorkSize(requests, conversations * prompt, requests * workload.max_new_tokens)


def work_seconds(inputs: PlanInputs, rates: Rates, arm: Arm, size: WorkSize, concurrency: int) -> Span:
    """Seconds to play a set: prefill, then steps in which up to `concurrency` requests advance together."""
    together = min(concurrency, size.requests)
    rows = together * (inputs.verify_width(arm) or 1)
    draft = DRAFT_COST if arm.method != "AR" else 0.0
    step = rates.step.scaled(rates.cost(rows) + draft)
    tokens, output = tokens_a_step(arm), SHARE_OF_CAP.scaled(size.output_cap / together)
    steps = Span(output.low / tokens.high, output.expected / tokens.expected, output.high / tokens.low)
    prefill = rates.prefill_seconds_a_token.scaled(size.prompt_tokens)
    return prefill + steps.times(step)


def cell_seconds(inputs: PlanInputs, rates: Rates, arm: Arm, workload: WorkloadConfig, concurrency: int) -> Span:
    """Seconds of one cell; AR's output is scored once more by prefill, for losslessness."""
    size = work_size(workload, workload.conversations)
    seconds = JOB_SECONDS + work_seconds(inputs, rates, arm, size, concurrency)
    if arm.method == "AR":
        scored = SHARE_OF_CAP.scaled(size.output_cap) + Span(1, 1, 1).scaled(size.prompt_tokens)
        seconds = seconds + scored.times(rates.prefill_seconds_a_token)
    return seconds


@dataclass(frozen=True)
class SessionSeconds:
    """Seconds of a session's start, warm-up and cells; cells by (workload, concurrency)."""

    start: Span
    warmup: Span
    cells: Mapping[tuple[str, int], Span]

    def total(self, wanted: Sequence[tuple[str, int]]) -> Span:
        """Seconds of the session with these cells; none where no cell is left."""
        if not wanted:
            return ZERO
        return sum((self.cells[cell] for cell in wanted), start=self.start + self.warmup)


def session_seconds(inputs: PlanInputs, arm: Arm, tp: int) -> SessionSeconds:
    """Expected seconds of one session of an arm at a tp."""
    rates = rates_of(inputs, tp)
    warmup = JOB_SECONDS
    cells = {}
    for name, workload in inputs.config.workloads.items():
        warmup = warmup + _warmup_seconds(inputs, rates, arm, workload)
        for concurrency in workload.concurrency:
            cells[name, concurrency] = cell_seconds(inputs, rates, arm, workload, concurrency)
    return SessionSeconds(JOB_SECONDS + rates.start, warmup, cells)


def _warmup_seconds(inputs: PlanInputs, rates: Rates, arm: Arm, workload: WorkloadConfig) -> Span:
    """Seconds of warm-up: calibration conversations fill the lanes of the highest concurrency, pass after pass."""
    first, last = workload.calibration_ranks or (0, 1)
    lanes = max(workload.concurrency)
    size = work_size(workload, max(last - first, lanes))
    return work_seconds(inputs, rates, arm, size, lanes).times(WARMUP_PASSES)


@dataclass(frozen=True)
class Timeline:
    """When each session runs, in expected seconds from the start, on which GPUs; and the whole run's range."""

    sessions: tuple[tuple[str, float, float, tuple[int, ...]], ...]
    total: Span


def timeline(inputs: PlanInputs, sessions: Sequence[Session], seconds: Mapping[str, Span]) -> Timeline:
    """Pack sessions, in running order, on the node; `seconds` by session key."""
    bounds = ("low", "expected", "high")
    runs = {bound: _pack(inputs, sessions, {k: getattr(s, bound) for k, s in seconds.items()}) for bound in bounds}
    ends = [max((end for _, _, end, _ in runs[bound]), default=0.0) for bound in bounds]
    low, expected, high = sorted(ends)
    return Timeline(tuple(runs["expected"]), Span(low, expected, high))


def _pack(
    inputs: PlanInputs, sessions: Sequence[Session], seconds: Mapping[str, float]
) -> list[tuple[str, float, float, tuple[int, ...]]]:
    """Give each session, in order, the block that is free first; a CPU server and an exclusive one take all."""
    devices = [gpu.device for gpu in inputs.inventory.gpus] if inputs.device == "cuda" else []
    whole = [tuple(device.index for device in devices) or (0,)]
    alone = not devices or inputs.config.packing == "exclusive"
    free_at = dict.fromkeys(whole[0], 0.0)
    placed = []
    for session in sessions:
        tp = session.tensor_parallelism
        blocks = whole if alone else [tuple(d.index for d in block) for block in aligned_blocks(devices, tp)]
        start, block = min((max(free_at[index] for index in block), block) for block in blocks)
        end = start + seconds[session.key]
        free_at.update(dict.fromkeys(block, end))
        placed.append((session.key, start, end, block[:tp]))
    return placed


def session_estimates(inputs: PlanInputs, sessions: Sequence[Session]) -> dict[tuple[str, int], SessionSeconds]:
    """Estimates by (arm, tp): blocks repeat them."""
    arms = {(session.arm.name, session.tensor_parallelism): session.arm for session in sessions}
    return {pair: session_seconds(inputs, arm, pair[1]) for pair, arm in arms.items()}


def expected_seconds(inputs: PlanInputs, sessions: Sequence[Session]) -> dict[str, Span]:
    """Seconds by session key, from the stated assumptions alone."""
    estimates = session_estimates(inputs, sessions)
    return {
        session.key: estimates[session.arm.name, session.tensor_parallelism].total(
            [(cell.workload, cell.concurrency) for cell in session.cells]
        )
        for session in sessions
    }
