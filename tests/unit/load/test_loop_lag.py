"""Loop lag."""

import asyncio
import time

import pytest

from draftbench.load.loop_lag import LoopLagSampler, summarise


async def test_a_blocked_loop_is_seen() -> None:
    """A callback that holds the loop for 200 ms makes some wake-up wait for most of that."""
    async with LoopLagSampler(interval_s=0.01) as sampler:
        await asyncio.sleep(0.05)
        time.sleep(0.2)
        await asyncio.sleep(0.05)

    assert sampler.summary().max_ms > 100


async def test_even_the_shortest_cell_has_a_sample() -> None:
    """The first wake-up is sent at once."""
    async with LoopLagSampler(interval_s=60) as sampler:
        await asyncio.sleep(0.05)

    assert sampler.summary().samples == 1


def test_percentiles_are_nearest_ranks() -> None:
    """Of 1 to 200 ms the median is 100 ms and the 99th percentile 198 ms."""
    summary = summarise([n * 1_000_000 for n in range(200, 0, -1)])

    assert (summary.samples, summary.p50_ms, summary.p99_ms, summary.max_ms) == (200, 100.0, 198.0, 200.0)


def test_no_sample_is_an_error() -> None:
    """A lag that nobody measured is not zero."""
    with pytest.raises(ValueError, match="no loop-lag sample"):
        summarise([])
