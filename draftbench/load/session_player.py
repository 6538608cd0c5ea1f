"""Plays a cell's conversations: lanes send in turn, a watchdog looks for hangs and a dead server."""

import asyncio
import gc
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from draftbench.errors import MeasurementError
from draftbench.load.client import generate_body
from draftbench.load.clock import NS_PER_S, Clock
from draftbench.load.failures import measurement_error
from draftbench.load.run_file import Sampling
from draftbench.load.schedule import Dispatch, PlannedConversation, Schedule
from draftbench.load.stream import RawStream, Reply, RequestError, parse_reply
from draftbench.records import RequestRecord

WATCH_INTERVAL_S = 0.25
PROGRESS_INTERVAL_S = 1.0
RETAINED_BYTES = 256 << 20
"""Raw streams kept unparsed at most; beyond that the finished ones are parsed while others run."""


class Generates(Protocol):
    """The part of the client that a player needs."""

    async def generate(self, body: bytes, on_read: Callable[[int], None] | None = None) -> RawStream:
        """Send one streamed request."""
        ...


@dataclass(frozen=True)
class Limits:
    """Seconds without a token on any stream before the server counts as hung, and seconds for the whole play."""

    hang_timeout_s: float
    cell_timeout_s: float


@dataclass(frozen=True)
class PlayedServer:
    """The server instance that answers, and how to learn that it still lives.

    `on_progress` hears, about once a second, that tokens came.
    """

    instance_id: str
    is_alive: Callable[[], bool] = lambda: True
    on_progress: Callable[[], None] = lambda: None


class StallWatch:
    """Pure account of the streams' life: when something last arrived, how many requests are open."""

    def __init__(self, hang_timeout_s: float) -> None:
        self._limit_ns = round(hang_timeout_s * NS_PER_S)
        self._last_ns = 0
        self._open = 0

    def sent(self, now_ns: int) -> None:
        """A request went out; waiting for the first one starts the clock."""
        if self._open == 0:
            self._last_ns = now_ns
        self._open += 1

    def arrived(self, now_ns: int) -> None:
        """Bytes came on some stream."""
        self._last_ns = max(self._last_ns, now_ns)

    def ended(self) -> None:
        """A request ended, well or not."""
        self._open -= 1

    @property
    def last_ns(self) -> int:
        """When something last arrived."""
        return self._last_ns

    def silent_seconds(self, now_ns: int) -> float:
        """Seconds without a token while requests are open; 0 while none is."""
        return (now_ns - self._last_ns) / NS_PER_S if self._open else 0.0

    def is_hung(self, now_ns: int) -> bool:
        """Whether the silence has reached the limit."""
        return self._open > 0 and now_ns - self._last_ns >= self._limit_ns


class SessionPlayer:
    """Plays conversations once; `play` returns one record a planned request, in planned order."""

    def __init__(
        self, client: Generates, clock: Clock, server: PlayedServer, sampling: Sampling, limits: Limits
    ) -> None:
        self._client = client
        self._clock = clock
        self._server = server
        self._sampling = sampling
        self._limits = limits
        self._watch = StallWatch(limits.hang_timeout_s)
        self._raw: list[tuple[RequestRecord, RawStream]] = []
        self._raw_bytes = 0
        self._records: list[RequestRecord] = []

    async def play(
        self,
        conversations: Sequence[PlannedConversation],
        concurrency: int,
        label: str,
        observer: AbstractAsyncContextManager[object] | None = None,
    ) -> list[RequestRecord]:
        """Raises MeasurementError (hang, crash, incomplete) as soon as one request fails.

        `label` begins the requests' ids in the server's log.
        `observer` is open while requests run, not while bodies are made or streams parsed.
        """
        schedule = Schedule(conversations, concurrency)
        bodies = self._bodies(conversations, f"{label}.{secrets.token_hex(4)}")
        with _no_garbage_collection():
            async with observer or nullcontext():
                await self._run_lanes(schedule, bodies, self._clock.now_ns())
        self._parse_retained()
        return sorted(self._records, key=lambda record: record.request)

    def _bodies(self, conversations: Sequence[PlannedConversation], name: str) -> list[bytes]:
        """Every request as bytes, in planned order."""
        temperature, top_p = self._sampling.temperature, self._sampling.top_p
        turns = (turn for conversation in conversations for turn in conversation.turns)
        return [
            generate_body(f"{name}.{number}", turn.input_ids, turn.max_new_tokens, temperature, top_p)
            for number, turn in enumerate(turns)
        ]

    async def _run_lanes(self, schedule: Schedule, bodies: Sequence[bytes], start_ns: int) -> None:
        """All lanes to their end, or the first failure of a lane or of the watchdog."""
        lanes = [asyncio.ensure_future(self._lane(schedule, bodies, lane, start_ns)) for lane in range(schedule.lanes)]
        watchdog = asyncio.ensure_future(self._watchdog(start_ns))
        everything: asyncio.Future[Any] = asyncio.gather(*lanes)
        ends: set[asyncio.Future[Any]] = {everything, watchdog}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (watchdog, everything):
                if task.done():
                    task.result()
        finally:
            await _cancel([*lanes, watchdog, everything])

    async def _lane(self, schedule: Schedule, bodies: Sequence[bytes], lane: int, start_ns: int) -> None:
        free_ns = start_ns
        while (dispatch := schedule.next(lane, free_ns)) is not None:
            await self._clock.sleep_until(dispatch.due_ns)
            free_ns = await self._request(dispatch, bodies[dispatch.request])

    async def _request(self, dispatch: Dispatch, body: bytes) -> int:
        """Send one request and keep its raw stream; returns when it was done."""
        self._watch.sent(self._clock.now_ns())
        try:
            raw = await self._client.generate(body, self._watch.arrived)
        except RequestError as error:
            where = f"conversation {dispatch.conversation.session_id} turn {dispatch.turn.turn}"
            raise measurement_error(error, where, self._server.is_alive()) from error
        finally:
            self._watch.ended()
        self._keep(_open_record(dispatch, self._server.instance_id, raw), raw)
        return raw.done_ns

    def _keep(self, record: RequestRecord, raw: RawStream) -> None:
        self._raw.append((record, raw))
        self._raw_bytes += raw.size
        if self._raw_bytes > RETAINED_BYTES:
            self._parse_retained()

    def _parse_retained(self) -> None:
        for record, raw in self._raw:
            self._records.append(_finished(record, raw))
        self._raw.clear()
        self._raw_bytes = 0

    async def _watchdog(self, start_ns: int) -> None:
        """Raises MeasurementError for a hang, a dead server or a cell that takes too long."""
        told_ns = 0
        while True:
            now = self._clock.now_ns()
            self._check(now, start_ns)
            if self._watch.last_ns - told_ns >= PROGRESS_INTERVAL_S * NS_PER_S:
                told_ns = self._watch.last_ns
                self._server.on_progress()
            await self._clock.sleep_until(now + round(WATCH_INTERVAL_S * NS_PER_S))

    def _check(self, now_ns: int, start_ns: int) -> None:
        if not self._server.is_alive():
            raise MeasurementError("the server died while the cell ran; its log tail is in the record", "crash")
        if self._watch.is_hung(now_ns):
            silent = self._watch.silent_seconds(now_ns)
            raise MeasurementError(f"no token on any stream for {silent:.1f} s (serving.hang_timeout)", "hang")
        if now_ns - start_ns >= self._limits.cell_timeout_s * NS_PER_S:
            limit = self._limits.cell_timeout_s
            raise MeasurementError(
                f"not done within cell_timeout {limit:g} s; raise it or shorten the cell", "incomplete"
            )


def _open_record(dispatch: Dispatch, instance_id: str, raw: RawStream) -> RequestRecord:
    return RequestRecord(
        request=dispatch.request,
        conversation=dispatch.conversation.session_id,
        item=dispatch.conversation.item_id,
        turn=dispatch.turn.turn,
        lane=dispatch.lane,
        instance_id=instance_id,
        sent_tokens=len(dispatch.turn.input_ids),
        max_new_tokens=dispatch.turn.max_new_tokens,
        due_ns=dispatch.due_ns,
        sent_ns=raw.sent_ns,
        done_ns=raw.done_ns,
    )


def _finished(record: RequestRecord, raw: RawStream) -> RequestRecord:
    """The record with what its stream held, or with the error that its stream was."""
    try:
        _fill(record, parse_reply(raw))
    except RequestError as error:
        record.error = f"{error.kind}: {error}"
    return record


def _fill(record: RequestRecord, reply: Reply) -> None:
    record.chunks = list(reply.chunks)
    record.output_ids = list(reply.output_ids)
    record.prompt_tokens = reply.prompt_tokens
    record.completion_tokens = reply.completion_tokens
    record.cached_tokens = reply.cached_tokens
    record.finish_reason = reply.finish_reason
    record.server_latency_s = reply.server_latency_s
    record.queue_time_s = reply.queue_time_s
    if reply.speculation is not None:
        record.verify_steps = reply.speculation.verify_steps
        record.accepted_drafts = reply.speculation.accepted_drafts
        record.proposed_drafts = reply.speculation.proposed_drafts
        record.accept_histogram = list(reply.speculation.accept_histogram)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection would stop the loop for milliseconds; reference counting frees all that a cell makes."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
