"""What is computed from a request: each metric declared once, with its formula and when it is undefined.

Pure functions of a RequestRecord; times in nanoseconds in, the declared unit out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from draftbench.records import RequestRecord

NS_PER_MS = 1e6
NS_PER_S = 1e9

Direction = Literal["lower", "higher", "none"]


@dataclass(frozen=True)
class Value:
    """A number, or None with the reason."""

    value: float | None
    reason: str = ""

    def __post_init__(self) -> None:
        assert (self.value is None) == bool(self.reason), "a missing value has a reason, a value has none"


@dataclass(frozen=True)
class Metric:
    """A declared metric; `better` says which direction is good, `formula` stands in the report."""

    name: str
    label: str
    unit: str
    better: Direction
    formula: str
    compute: Callable[[RequestRecord], Value]


def first_chunk_tokens(record: RequestRecord) -> int | None:
    """Tokens of the first chunk (n_first); None without a chunk."""
    return record.chunks[0].new_tokens if record.chunks else None


def decode_tokens(record: RequestRecord) -> int | None:
    """N - n_first: tokens that came after the first chunk; None without a chunk."""
    if not record.chunks or record.completion_tokens is None:
        return None
    return record.completion_tokens - record.chunks[0].new_tokens


def decode_steps(record: RequestRecord) -> int | None:
    """Verify steps; for AR the decode tokens, since each step makes one token."""
    return record.verify_steps if record.verify_steps is not None else decode_tokens(record)


def is_merged(record: RequestRecord) -> bool:
    """Whether chunks - 1 differs from the steps: the server or the client joined chunks."""
    steps = decode_steps(record)
    return steps is None or len(record.chunks) - 1 != steps


def _ttft(record: RequestRecord) -> Value:
    if not record.chunks:
        return _no_tokens()
    return Value((record.chunks[0].time_ns - record.sent_ns) / NS_PER_MS)


def _decode_time_per_token(record: RequestRecord) -> Value:
    tokens = decode_tokens(record)
    if not tokens:
        return _one_chunk()
    return Value((record.chunks[-1].time_ns - record.chunks[0].time_ns) / NS_PER_MS / tokens)


def _inter_chunk(record: RequestRecord) -> Value:
    if len(record.chunks) < 2:
        return _one_chunk()
    return Value((record.chunks[-1].time_ns - record.chunks[0].time_ns) / NS_PER_MS / (len(record.chunks) - 1))


def _end_to_end(record: RequestRecord) -> Value:
    if not record.chunks:
        return _no_tokens()
    return Value((record.chunks[-1].time_ns - record.sent_ns) / NS_PER_MS)


def _request_throughput(record: RequestRecord) -> Value:
    if not record.chunks or record.completion_tokens is None:
        return _no_tokens()
    return Value(record.completion_tokens * NS_PER_S / (record.chunks[-1].time_ns - record.sent_ns))


def _yield(record: RequestRecord) -> Value:
    tokens = decode_tokens(record)
    if not record.verify_steps or tokens is None:
        return _no_steps()
    return Value(tokens / record.verify_steps)


def _acceptance_length(record: RequestRecord) -> Value:
    if not record.verify_steps or record.accepted_drafts is None:
        return _no_steps()
    return Value(1 + record.accepted_drafts / record.verify_steps)


def _sglang_accept_length(record: RequestRecord) -> Value:
    if not record.verify_steps or record.completion_tokens is None:
        return _no_steps()
    return Value(record.completion_tokens / record.verify_steps)


def _verify_steps(record: RequestRecord) -> Value:
    if record.verify_steps is None:
        return _no_steps()
    return Value(float(record.verify_steps))


def _step_time(record: RequestRecord) -> Value:
    steps = decode_steps(record)
    if not steps or len(record.chunks) < 2:
        return _one_chunk()
    return Value((record.chunks[-1].time_ns - record.chunks[0].time_ns) / NS_PER_MS / steps)


def _no_tokens() -> Value:
    return Value(None, "the request brought no token")


def _one_chunk() -> Value:
    return Value(None, "all tokens came in one chunk, so there is no decode phase to time")


def _no_steps() -> Value:
    return Value(None, "the server counted no verify step")


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ttft", "TTFT", "ms", "lower", "first chunk's arrival - send", _ttft),
        Metric(
            "tpot",
            "TPOT",
            "ms/token",
            "lower",
            "(last chunk's arrival - first chunk's arrival) / (N - n_first)",
            _decode_time_per_token,
        ),
        Metric(
            "inter_chunk_latency",
            "inter-chunk latency",
            "ms",
            "lower",
            "(last arrival - first arrival) / (chunks - 1); under speculation a chunk holds several tokens, so this "
            "is no inter-token latency",
            _inter_chunk,
        ),
        Metric("end_to_end_latency", "end-to-end latency", "ms", "lower", "last chunk's arrival - send", _end_to_end),
        Metric(
            "request_throughput",
            "throughput of one request",
            "tokens/s",
            "higher",
            "N / (last chunk's arrival - send)",
            _request_throughput,
        ),
        Metric("yield", "yield", "tokens/step", "higher", "(N - n_first) / verify steps; undefined for AR", _yield),
        Metric(
            "acceptance_length",
            "acceptance length",
            "tokens/step",
            "higher",
            "1 + accepted drafts / verify steps, full runs before stop trimming; undefined for AR",
            _acceptance_length,
        ),
        Metric(
            "sglang_accept_length",
            "SGLang's spec_accept_length",
            "tokens/step",
            "higher",
            "N / verify steps: counts the prefill's token too; undefined for AR",
            _sglang_accept_length,
        ),
        Metric("verify_steps", "verify steps", "steps", "none", "verify passes of the request", _verify_steps),
        Metric(
            "step_time",
            "step time",
            "ms/step",
            "lower",
            "(last arrival - first arrival) / verify steps; for AR / (N - n_first)",
            _step_time,
        ),
    )
}
"""Every per-request metric by name; vectorised forms of the same formulas live in `draftbench.statistics`."""


def step_gaps_ms(record: RequestRecord) -> list[float]:
    """Time between consecutive chunks, milliseconds: one verify step each where chunks were not merged."""
    times = [chunk.time_ns for chunk in record.chunks]
    return [(later - earlier) / NS_PER_MS for earlier, later in pairwise(times)]
