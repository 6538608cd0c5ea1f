"""Clocks."""

import asyncio

import pytest

from draftbench.load.clock import MonotonicClock, VirtualClock


async def test_virtual_time_jumps_from_waiter_to_waiter() -> None:
    """Two tasks wait in turns; an hour passes at once."""
    clock, order = VirtualClock(), []

    async def wait(name: str, *times: int) -> None:
        for time in times:
            await clock.sleep_until(time)
            order.append((name, clock.now_ns()))

    async def both() -> None:
        await asyncio.gather(wait("a", 5, 20), wait("b", 10, 3_600_000_000_000))

    await clock.run(both())

    assert order == [("a", 5), ("b", 10), ("a", 20), ("b", 3_600_000_000_000)]


async def test_work_that_waits_for_something_else_is_an_error_not_a_hang() -> None:
    """A virtual clock cannot move what does not wait for it."""
    clock = VirtualClock()
    forever = asyncio.Event()

    with pytest.raises(RuntimeError, match="nothing waits"):
        await clock.run(forever.wait())


async def test_a_time_that_has_passed_is_not_waited_for() -> None:
    """Both clocks return at once."""
    for clock in (VirtualClock(start_ns=10), MonotonicClock()):
        before = clock.now_ns()
        await asyncio.wait_for(clock.sleep_until(before - 1), 5)
        assert clock.now_ns() >= before
