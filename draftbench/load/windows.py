"""The fixed-occupancy window: while all C conversations run, and not a moment longer."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from draftbench.records import RequestRecord


@dataclass(frozen=True)
class Window:
    """Nanoseconds of the cell's clock; both None with the reason where the occupancy was never reached."""

    start_ns: int | None
    end_ns: int | None
    reason: str = ""


def occupancy_window(records: Sequence[RequestRecord], concurrency: int) -> Window:
    """From the last lane's first token to the first moment a lane runs out, at the nominal concurrency.

    A lane that waits for a tool's delay still counts: its conversation is open.
    At concurrency 1 the window is the whole cell, first send to last token.
    After SGLang's BatchStreamRecorder (benchmark/stream_metrics.py), with the planned instead of the peak occupancy.
    """
    complete = [record for record in records if record.chunks and record.done_ns is not None]
    if not complete:
        return Window(None, None, "no request completed")
    if concurrency == 1:
        return Window(min(record.sent_ns for record in complete), max(_last_token_ns(record) for record in complete))
    lanes = _by_lane(complete)
    if len(lanes) < concurrency:
        return Window(None, None, f"only {len(lanes)} of {concurrency} lanes had a conversation")
    start = max(min(record.chunks[0].time_ns for record in lane) for lane in lanes)
    end = min(max(_last_token_ns(record) for record in lane) for lane in lanes)
    if end <= start:
        return Window(None, None, "a lane ran out of conversations before the last lane's first token")
    return Window(start, end)


def _by_lane(records: Sequence[RequestRecord]) -> list[list[RequestRecord]]:
    lanes: dict[int, list[RequestRecord]] = defaultdict(list)
    for record in records:
        lanes[record.lane].append(record)
    return list(lanes.values())


def _last_token_ns(record: RequestRecord) -> int:
    return record.chunks[-1].time_ns
