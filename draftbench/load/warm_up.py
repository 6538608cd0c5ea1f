"""Warm-up: calibration conversations at each workload's highest concurrency until the step time is steady."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from typing import Any

from draftbench.errors import MeasurementError
from draftbench.load.client import Client
from draftbench.load.clock import NS_PER_S, MonotonicClock
from draftbench.load.failures import measurement_error
from draftbench.load.metrics import step_gaps_ms
from draftbench.load.run_file import PlannedSession, RunFile
from draftbench.load.schedule import PlannedConversation, PlannedTurn
from draftbench.load.served_instance import ServedInstance
from draftbench.load.session_player import Limits, SessionPlayer
from draftbench.load.stream import RequestError
from draftbench.provenance import utc_now
from draftbench.records import RequestRecord

MOST_PASSES = 3
STEADY_TOLERANCE = 0.10
"""Relative difference between two step times that still counts as steady."""
FEWEST_GAPS = 8
Halves = tuple[float, float]
"""Median step time in the first and in the second half of a pass, milliseconds."""


@dataclass(frozen=True)
class Calibration:
    """What one workload warms up with: never a measured conversation."""

    workload: str
    concurrency: int
    conversations: Sequence[PlannedConversation]


@dataclass(frozen=True)
class _Lap:
    """A calibration conversation under a name of its own, since one may fill several lanes."""

    session_id: str
    item_id: str
    turns: Sequence[PlannedTurn]


def highest_concurrencies(session: PlannedSession) -> dict[str, tuple[str, int]]:
    """Workload key -> (workload, highest concurrency of the session's cells), in the order of the cells."""
    highest: dict[str, tuple[str, int]] = {}
    for cell in session.cells.values():
        _, former = highest.get(cell.workload_key, (cell.workload, 0))
        highest[cell.workload_key] = (cell.workload, max(former, cell.concurrency))
    return highest


def require_disjoint(
    workload: str, calibration: Sequence[PlannedConversation], measured: Sequence[PlannedConversation]
) -> None:
    """Raises MeasurementError when a warm-up conversation or one of its prompts is a measured one."""
    items = {conversation.item_id for conversation in measured}
    prompts = {tuple(turn.input_ids) for conversation in measured for turn in conversation.turns}
    for conversation in calibration:
        if conversation.item_id in items:
            raise MeasurementError(f"{workload}: item {conversation.item_id} is measured and cannot warm up")
        if any(tuple(turn.input_ids) in prompts for turn in conversation.turns):
            raise MeasurementError(f"{workload}: a prompt of warm-up item {conversation.item_id} is measured too")


def fill_lanes(conversations: Sequence[PlannedConversation], concurrency: int) -> list[PlannedConversation]:
    """The conversations, repeated under new names where there are fewer than lanes."""
    count = max(len(conversations), concurrency)
    return [
        _Lap(f"{conversation.session_id}#{lap}", conversation.item_id, conversation.turns)
        for lap, conversation in enumerate(islice(cycle(conversations), count))
    ]


def half_medians_ms(records: Sequence[RequestRecord]) -> Halves | None:
    """Median gap between chunks in the first and the second half of a pass; None with too few gaps to say."""
    timed = [
        (later.time_ns, gap)
        for record in records
        for later, gap in zip(record.chunks[1:], step_gaps_ms(record), strict=True)
    ]
    gaps = [gap for _, gap in sorted(timed)]
    if len(gaps) < FEWEST_GAPS:
        return None
    middle = len(gaps) // 2
    return median(gaps[:middle]), median(gaps[middle:])


def is_steady(halves: Halves | None, former: Halves | None) -> bool:
    """Whether the step time no longer moves: within the pass, or from the former pass to this one.

    The second way is for conversations whose context grows, so that later steps are slower in every pass.
    """
    if halves is None:
        return False
    return _alike(*halves) or (former is not None and all(map(_alike, former, halves)))


def _alike(one: float, other: float) -> bool:
    return abs(other - one) <= STEADY_TOLERANCE * one


def warm_up(
    run: RunFile, session_key: str, calibrations: Sequence[Calibration], server: ServedInstance
) -> dict[str, Any]:
    """Play each calibration until it is steady, MOST_PASSES times at most, mark the instance warm, say what was done.

    Raises MeasurementError (hang, crash, incomplete).
    """
    clock = MonotonicClock()
    started_utc, start_ns = utc_now(), clock.now_ns()
    workloads = [asyncio.run(_until_steady(run, calibration, server)) for calibration in calibrations]
    server.mark_warm()
    return {
        "schema_version": 1,
        "session": session_key,
        "instance_id": server.instance_id,
        "started_utc": started_utc,
        "seconds": (clock.now_ns() - start_ns) / NS_PER_S,
        "workloads": workloads,
        "reason": "" if workloads else "no workload of this session has calibration_ranks: its first cell starts cold",
    }


async def _until_steady(run: RunFile, calibration: Calibration, server: ServedInstance) -> dict[str, Any]:
    conversations = fill_lanes(calibration.conversations, calibration.concurrency)
    passes: list[dict[str, Any]] = []
    former: Halves | None = None
    async with Client(server.url) as client:
        while len(passes) < MOST_PASSES and not (passes and passes[-1]["steady"]):
            records = await _one_pass(run, client, conversations, calibration.concurrency, server)
            halves = half_medians_ms(records)
            passes.append(_described(records, halves, is_steady(halves, former)))
            former = halves
    return {
        "workload": calibration.workload,
        "concurrency": calibration.concurrency,
        "items": [conversation.item_id for conversation in calibration.conversations],
        "steady": passes[-1]["steady"],
        "passes": passes,
    }


async def _one_pass(
    run: RunFile,
    client: Client,
    conversations: Sequence[PlannedConversation],
    concurrency: int,
    server: ServedInstance,
) -> list[RequestRecord]:
    limits = Limits(run.hang_timeout, run.cell_timeout)
    player = SessionPlayer(client, MonotonicClock(), server.played, run.sampling, limits)
    try:
        await client.open_connections(min(concurrency, len(conversations)))
    except RequestError as error:
        raise measurement_error(error, "warming up", server.is_alive()) from error
    records = await player.play(conversations, concurrency, "warmup")
    failed = next((record for record in records if record.error), None)
    if failed is not None:
        raise MeasurementError(f"warm-up conversation {failed.conversation} failed: {failed.error}", "incomplete")
    return records


def _described(records: Sequence[RequestRecord], halves: Halves | None, steady: bool) -> dict[str, Any]:
    return {
        "requests": len(records),
        "output_tokens": sum(record.completion_tokens or 0 for record in records),
        "step_ms_halves": halves,
        "steady": steady,
    }
