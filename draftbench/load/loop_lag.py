"""How late the event loop answers: the delay that every arrival stamp may carry."""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

SAMPLE_INTERVAL_S = 0.02
NS_PER_MS = 1e6


@dataclass(frozen=True)
class LagSummary:
    """Order statistics of the sampled delays, milliseconds."""

    samples: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class LoopLagSampler:
    """Wakes the running loop from a thread and notes how long the wake-up took.

    A timer of the loop itself would not do: epoll rounds it up to whole milliseconds.
    The wake-up goes through a socket, as the stream's data does, and so waits behind the same callbacks.
    """

    def __init__(self, interval_s: float = SAMPLE_INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._lags_ns: list[int] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._sample, args=(loop,), name="loop-lag", daemon=True)
        self._thread.start()
        while not self._lags_ns:
            await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()

    def _sample(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                loop.call_soon_threadsafe(self._note, time.monotonic_ns())
            except RuntimeError:  # the loop was closed under us
                return
            if self._stopped.wait(self._interval_s):
                return

    def _note(self, woken_ns: int) -> None:
        """What is still on its way when the block ends says nothing about the block."""
        if not self._stopped.is_set():
            self._lags_ns.append(time.monotonic_ns() - woken_ns)

    def summary(self) -> LagSummary:
        """What was seen so far; the block begins with the first sample."""
        return summarise(self._lags_ns)


def summarise(lags_ns: Sequence[int]) -> LagSummary:
    """Median, 99th percentile (nearest rank) and maximum of delays in nanoseconds."""
    if not lags_ns:
        raise ValueError("no loop-lag sample: the loop never ran")
    ordered = sorted(lags_ns)
    return LagSummary(
        samples=len(ordered),
        p50_ms=_nearest_rank(ordered, 50) / NS_PER_MS,
        p99_ms=_nearest_rank(ordered, 99) / NS_PER_MS,
        max_ms=ordered[-1] / NS_PER_MS,
    )


def _nearest_rank(ordered: Sequence[int], percent: int) -> int:
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, rank - 1)]
