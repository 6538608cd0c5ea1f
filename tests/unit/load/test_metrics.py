"""Metrics of hand-made requests; the expected numbers are worked out in the docstrings."""

import pytest

from draftbench.load.metrics import METRICS, Value, decode_tokens, is_merged, step_gaps_ms
from draftbench.records import ChunkRecord
from tests.unit.load.builders import MS, autoregressive_record, speculative_record


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ttft", 10.0),
        ("tpot", 30 / 6),
        ("inter_chunk_latency", 10.0),
        ("end_to_end_latency", 40.0),
        ("request_throughput", 7 / 0.040),
        ("yield", 6 / 3),
        ("acceptance_length", 1 + 3 / 3),
        ("sglang_accept_length", 7 / 3),
        ("verify_steps", 3.0),
        ("step_time", 10.0),
    ],
)
def test_a_speculative_request(name: str, expected: float) -> None:
    """7 tokens in chunks of 1, 2, 1, 3 at 10, 20, 30, 40 ms after the send; 3 steps, 3 accepted drafts."""
    assert METRICS[name].compute(speculative_record()).value == pytest.approx(expected)


@pytest.mark.parametrize(("name", "expected"), [("ttft", 10.0), ("tpot", 5.0), ("step_time", 5.0)])
def test_an_autoregressive_request_has_one_token_a_step(name: str, expected: float) -> None:
    """4 tokens at 10, 15, 20, 25 ms: 15 ms for 3 tokens, which are 3 steps."""
    assert METRICS[name].compute(autoregressive_record()).value == pytest.approx(expected)


@pytest.mark.parametrize("name", ["yield", "acceptance_length", "sglang_accept_length", "verify_steps"])
def test_speculative_metrics_are_undefined_for_ar_with_the_reason(name: str) -> None:
    """Undefined is None and says why; it is never 0 or 1."""
    value = METRICS[name].compute(autoregressive_record())

    assert value.value is None
    assert value.reason == "the server counted no verify step"


def test_several_tokens_in_the_first_chunk_do_not_count_as_decoded() -> None:
    """First chunk of 3 tokens, then 4 more in 30 ms: TPOT is 7.5 ms, not 30/6."""
    chunks = [ChunkRecord(10 * MS, 3), ChunkRecord(30 * MS, 1), ChunkRecord(40 * MS, 3)]
    record = speculative_record(chunks=chunks)

    assert decode_tokens(record) == 4
    assert METRICS["tpot"].compute(record).value == pytest.approx(7.5)
    assert METRICS["yield"].compute(record).value == pytest.approx(4 / 3)


def test_one_chunk_has_a_ttft_but_no_decode_phase() -> None:
    """A one-token answer has no TPOT."""
    record = autoregressive_record(chunks=[ChunkRecord(10 * MS, 1)], completion_tokens=1)

    assert METRICS["ttft"].compute(record) == Value(10.0)
    assert METRICS["tpot"].compute(record).value is None
    assert METRICS["step_time"].compute(record).value is None


def test_no_chunk_has_no_time_at_all() -> None:
    """A failed request yields reasons, not zeros."""
    record = speculative_record(chunks=[])

    assert all(METRICS[name].compute(record).value is None for name in ("ttft", "tpot", "end_to_end_latency"))


def test_merged_chunks_are_seen() -> None:
    """Three steps in two chunks after the first are merged; so are two AR tokens in one chunk."""
    joined = [ChunkRecord(10 * MS, 1), ChunkRecord(30 * MS, 3), ChunkRecord(40 * MS, 3)]

    assert not is_merged(speculative_record())
    assert is_merged(speculative_record(chunks=joined))
    assert not is_merged(autoregressive_record())
    assert is_merged(autoregressive_record(chunks=[ChunkRecord(10 * MS, 1), ChunkRecord(20 * MS, 3)]))


def test_gaps_are_the_times_between_chunks() -> None:
    """10, 15, 20, 25 ms have three gaps of 5 ms."""
    assert step_gaps_ms(autoregressive_record()) == [5.0, 5.0, 5.0]


def test_every_metric_is_declared_whole() -> None:
    """Name, unit and formula stand in the report; a missing value without a reason cannot be made."""
    assert all(metric.unit and metric.formula and metric.name == name for name, metric in METRICS.items())
    with pytest.raises(AssertionError):
        Value(None)
