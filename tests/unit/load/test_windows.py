"""The fixed-occupancy window on hand-made timelines."""

from draftbench.load.windows import occupancy_window
from draftbench.records import ChunkRecord, RequestRecord
from tests.unit.load.builders import MS, speculative_record


def request(lane: int, sent: int, first: int, last: int) -> RequestRecord:
    """A request of two chunks; milliseconds."""
    chunks = [ChunkRecord(first * MS, 1), ChunkRecord(last * MS, 2)]
    return speculative_record(lane=lane, sent_ns=sent * MS, chunks=chunks, done_ns=(last + 1) * MS)


def test_the_window_is_while_every_lane_runs() -> None:
    """Lane 1's first token comes at 25 ms; lane 0 runs out at 80 ms, lane 1 at 120 ms."""
    records = [request(0, 0, 10, 50), request(0, 51, 60, 80), request(1, 0, 25, 120)]
    window = occupancy_window(records, 2)

    assert (window.start_ns, window.end_ns, window.reason) == (25 * MS, 80 * MS, "")


def test_at_concurrency_1_the_window_is_the_whole_cell() -> None:
    """From the first send to the last token, pauses included."""
    window = occupancy_window([request(0, 3, 10, 50), request(0, 90, 95, 130)], 1)

    assert (window.start_ns, window.end_ns) == (3 * MS, 130 * MS)


def test_too_few_conversations_never_reach_the_nominal_concurrency() -> None:
    """Two lanes of four planned ones give no window, but a reason."""
    window = occupancy_window([request(0, 0, 10, 50), request(1, 0, 10, 50)], 4)

    assert window.start_ns is None
    assert window.end_ns is None
    assert window.reason == "only 2 of 4 lanes had a conversation"


def test_a_lane_that_runs_out_before_the_last_one_answers_leaves_no_window() -> None:
    """Lane 0 is done at 20 ms, lane 1's first token comes at 30 ms."""
    window = occupancy_window([request(0, 0, 10, 20), request(1, 0, 30, 60)], 2)

    assert window.start_ns is None
    assert "before the last lane's first token" in window.reason


def test_without_a_completed_request_there_is_no_window() -> None:
    """A request without a chunk does not count."""
    assert occupancy_window([speculative_record(chunks=[])], 1).reason == "no request completed"
