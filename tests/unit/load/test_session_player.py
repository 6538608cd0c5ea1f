"""Playing conversations on a virtual clock: order, refill, delays, hangs, deaths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson
import pytest

from draftbench.errors import MeasurementError
from draftbench.load.clock import VirtualClock
from draftbench.load.run_file import Sampling
from draftbench.load.session_player import Limits, PlayedServer, SessionPlayer, StallWatch
from draftbench.load.stream import RawStream, Read, RequestError
from draftbench.records import RequestRecord
from tests.unit.load.builders import DONE, MS, Dialogue, chunk_body, dialogue, event

HOUR_MS = 3_600_000


@dataclass
class ScriptedEndpoint:
    """Stands at the one seam to the network: each prompt's first id is its duration in tens of milliseconds.

    The first chunk comes 10 ms after the send, the second at the end.
    """

    clock: VirtualClock
    silent: frozenset[int] = frozenset()
    failing: frozenset[int] = frozenset()
    broken: frozenset[int] = frozenset()
    sent: list[tuple[int, int]] = field(default_factory=list)

    async def generate(self, body: bytes, on_read: Callable[[int], None] | None = None) -> RawStream:
        """One request; which one is known by its first id."""
        name = orjson.loads(body)["input_ids"][0]
        start = self.clock.now_ns()
        self.sent.append((name, start // MS))
        if name in self.failing:
            raise RequestError("http_status", "/generate answered HTTP 500: out of luck")
        reads = []
        chunks = [event(chunk_body([1], 1)), event(chunk_body([2, 3], 3, "stop")) + DONE]
        for chunk, wait in zip(chunks, (10, 10 * name), strict=True):
            await self.clock.sleep_until(start + (HOUR_MS if name in self.silent else wait) * MS)
            now = self.clock.now_ns()
            reads.append(Read(now, b"data: {\n\n" if name in self.broken else chunk))
            if on_read is not None:
                on_read(now)
        return RawStream(start, reads, self.clock.now_ns())


async def play(
    conversations: Sequence[Dialogue],
    concurrency: int,
    endpoint: ScriptedEndpoint,
    server: PlayedServer | None = None,
    limits: Limits | None = None,
) -> list[RequestRecord]:
    """Play on the endpoint's clock."""
    player = SessionPlayer(
        endpoint, endpoint.clock, server or PlayedServer("instance"), Sampling(temperature=0.0), limits or Limits(5, 60)
    )
    return await endpoint.clock.run(player.play(conversations, concurrency, "cell"))


async def test_lanes_send_turns_in_order_and_refill_when_free() -> None:
    """Two lanes, by hand: a (50 ms, then 20 ms), b (30 ms), c (40 ms).

    0: a and b start. 30: b is done, lane 1 takes c until 70. 50: a's second turn until 70.
    """
    endpoint = ScriptedEndpoint(VirtualClock())
    records = await play([dialogue("a", [5], [2]), dialogue("b", [3]), dialogue("c", [4])], 2, endpoint)

    assert endpoint.sent == [(5, 0), (3, 0), (4, 30), (2, 50)]
    assert [(r.conversation, r.turn, r.lane, r.sent_ns // MS, (r.done_ns or 0) // MS) for r in records] == [
        ("a", 0, 0, 0, 50),
        ("a", 1, 0, 50, 70),
        ("b", 0, 1, 0, 30),
        ("c", 0, 1, 30, 70),
    ]
    assert [r.request for r in records] == [0, 1, 2, 3]


async def test_a_delay_is_waited_for_and_is_no_latency() -> None:
    """The second turn is due 200 ms after the first is done at 30 ms; its own clock starts at 230 ms."""
    endpoint = ScriptedEndpoint(VirtualClock())
    first, second = await play([dialogue("a", [3], [2], delays=[0, 200])], 1, endpoint)

    assert first.done_ns == 30 * MS
    assert (second.due_ns, second.sent_ns) == (230 * MS, 230 * MS)
    assert second.chunks[0].time_ns - second.sent_ns == 10 * MS


async def test_records_hold_what_the_stream_said() -> None:
    """Chunks, ids and counts come from the stream, names and numbers from the plan."""
    endpoint = ScriptedEndpoint(VirtualClock())
    (record,) = await play([dialogue("a", [3, 9, 9, 9])], 1, endpoint)

    assert [(chunk.time_ns // MS, chunk.new_tokens) for chunk in record.chunks] == [(10, 1), (30, 2)]
    assert record.output_ids == [1, 2, 3]
    assert (record.sent_tokens, record.completion_tokens, record.finish_reason) == (4, 3, "stop")
    assert (record.item, record.instance_id, record.error) == ("item-a", "instance", None)


async def test_a_silent_server_hangs_the_cell_after_the_timeout() -> None:
    """No token on any stream for 5 s; the hour that the server would take is not waited for."""
    endpoint = ScriptedEndpoint(VirtualClock(), silent=frozenset({7}))
    with pytest.raises(MeasurementError, match=r"no token on any stream for 5\.\d s") as caught:
        await play([dialogue("a", [3]), dialogue("b", [7])], 2, endpoint)

    assert caught.value.failure_class == "hang"
    assert endpoint.clock.now_ns() < 6_000 * MS


async def test_one_silent_stream_beside_a_live_one_is_no_hang() -> None:
    """Tokens on any stream show that the server lives; the cell's own limit ends the wait."""
    endpoint = ScriptedEndpoint(VirtualClock(), silent=frozenset({7}))
    busy = dialogue("a", *[[100]] * 30)
    with pytest.raises(MeasurementError, match="cell_timeout 10 s") as caught:
        await play([busy, dialogue("b", [7])], 2, endpoint, limits=Limits(5, 10))

    assert caught.value.failure_class == "incomplete"


async def test_a_long_delay_is_no_hang() -> None:
    """While no request is open nobody owes a token: 20 s of a tool's time pass."""
    endpoint = ScriptedEndpoint(VirtualClock())
    records = await play([dialogue("a", [3], [2], delays=[0, 20_000])], 1, endpoint)

    assert len(records) == 2


async def test_a_dead_server_is_noticed_without_a_word_from_the_network() -> None:
    """The process is gone one second in; the open request would wait an hour."""
    clock = VirtualClock()
    endpoint = ScriptedEndpoint(clock, silent=frozenset({7}))
    server = PlayedServer("instance", is_alive=lambda: clock.now_ns() < 1_000 * MS)
    with pytest.raises(MeasurementError, match="the server died") as caught:
        await play([dialogue("a", [7])], 1, endpoint, server)

    assert caught.value.failure_class == "crash"


@pytest.mark.parametrize(("alive", "expected"), [(True, "incomplete"), (False, "crash")])
async def test_a_failed_request_ends_the_cell(alive: bool, expected: str) -> None:
    """The first error is told with its conversation, and no further request is sent."""
    clock = VirtualClock()
    endpoint = ScriptedEndpoint(clock, failing=frozenset({4}))
    server = PlayedServer("instance", is_alive=lambda: alive or clock.now_ns() < 30 * MS)
    with pytest.raises(MeasurementError, match=r"conversation b turn 0 failed \(http_status\)") as caught:
        await play([dialogue("a", [3]), dialogue("b", [4]), dialogue("c", [5])], 1, endpoint, server)

    assert caught.value.failure_class == expected
    assert [name for name, _ in endpoint.sent] == [3, 4]


async def test_a_stream_that_cannot_be_parsed_is_an_error_of_its_request_alone() -> None:
    """Parsing comes after the play, so the others are complete; the checks then refuse the cell."""
    endpoint = ScriptedEndpoint(VirtualClock(), broken=frozenset({4}))
    good, bad = await play([dialogue("a", [3]), dialogue("b", [4])], 2, endpoint)

    assert good.error is None
    assert bad.error is not None
    assert bad.error.startswith("malformed: not JSON")
    assert bad.chunks == []


async def test_progress_is_told_while_tokens_come() -> None:
    """Six seconds of tokens are about six messages to the server's keeper, not one a token."""
    told: list[int] = []
    clock = VirtualClock()
    server = PlayedServer("instance", on_progress=lambda: told.append(clock.now_ns() // MS))
    await play([dialogue("a", *[[50]] * 12)], 1, ScriptedEndpoint(clock), server)

    assert 3 <= len(told) <= 6
    assert told == sorted(set(told))


def test_the_stall_watch_counts_from_the_last_sign_of_life() -> None:
    """Limit 2 s: a token at 1.5 s moves the end to 3.5 s; without an open request nothing hangs."""
    watch = StallWatch(2.0)
    watch.sent(0)
    watch.arrived(1_500 * MS)

    assert not watch.is_hung(3_400 * MS)
    assert watch.is_hung(3_500 * MS)
    watch.ended()
    assert not watch.is_hung(99_000 * MS)
    watch.sent(99_000 * MS)
    assert watch.silent_seconds(100_000 * MS) == 1.0
