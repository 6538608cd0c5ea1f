"""The only clock of a measurement, and one that tests advance by hand."""

import asyncio
import heapq
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
_SETTLING_ROUNDS = 50


class Clock(Protocol):
    """Monotonic time in nanoseconds; readings compare within one process only."""

    def now_ns(self) -> int:
        """The time now."""
        ...

    async def sleep_until(self, time_ns: int) -> None:
        """Return at `time_ns` or, where that has passed, at once."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        """The time now."""
        return time.monotonic_ns()

    async def sleep_until(self, time_ns: int) -> None:
        """Return at `time_ns` or, where that has passed, at once."""
        remaining = time_ns - time.monotonic_ns()
        if remaining > 0:
            await asyncio.sleep(remaining / NS_PER_S)


class VirtualClock:
    """Time that stands still until every task waits for it, then jumps to the earliest waiter."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now = start_ns
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = 0

    def now_ns(self) -> int:
        """The virtual time."""
        return self._now

    async def sleep_until(self, time_ns: int) -> None:
        """Wait for the virtual time to reach `time_ns`."""
        if time_ns <= self._now:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting, (time_ns, self._arrivals, woken))
        await woken

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Drive `work` to its end; raises RuntimeError when it waits for anything but this clock."""
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(_SETTLING_ROUNDS):
                await asyncio.sleep(0)
            if not task.done():
                self._wake_the_earliest()
        return task.result()

    def _wake_the_earliest(self) -> None:
        while self._waiting:
            time_ns, _, woken = heapq.heappop(self._waiting)
            if not woken.done():
                self._now = time_ns
                woken.set_result(None)
                return
        raise RuntimeError("nothing waits for the virtual clock, yet the work is not done")
