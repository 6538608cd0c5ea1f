"""Slots: prefix reuse, eviction and the gather of an accepted path."""

import torch

from draftbench.engine.slots import CacheShape, Slot, SlotPool, common_prefix

SHAPE = CacheShape(layers=2, kv_heads=1, head_dim=4, capacity=32)


def _pool(running: int = 1, reuse: bool = True) -> SlotPool:
    return SlotPool(running, SHAPE, SHAPE, torch.float32, torch.device("cpu"), reuse)


def _fill(slot: Slot, tokens: list[int]) -> None:
    """Write each token's id as its keys and values, in both caches."""
    start = slot.length
    for cache in (slot.target, slot.drafter):
        assert cache is not None
        cache[:, :, start : start + len(tokens)] = torch.tensor(tokens, dtype=torch.float32)[:, None]
    slot.commit(tokens, range(len(tokens)))


def _held(cache: torch.Tensor | None, length: int) -> list[float]:
    assert cache is not None
    return cache[1, 1, :length, 3].tolist()


def test_common_prefix() -> None:
    """Counted from the front; a shorter sequence ends it."""
    assert common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix([1, 2], [1, 2, 4]) == 2
    assert common_prefix([], [1]) == 0


def test_commit_gathers_an_accepted_path_to_the_front() -> None:
    """Rows 0, 2 and 5 of a verify window follow the two committed tokens; the rest is dropped."""
    slot = _pool().acquire([1], 0)
    _fill(slot, [70, 71])
    slot.target[:, :, 2:8] = torch.arange(100.0, 106.0)[:, None]
    slot.commit([8, 9, 10], (0, 2, 5))
    assert slot.tokens == [70, 71, 8, 9, 10]
    assert _held(slot.target, 5) == [70, 71, 100, 102, 105]


def test_a_finished_sequence_is_reused_in_place() -> None:
    """The next turn of the same conversation finds its whole history in both caches."""
    pool = _pool()
    first = pool.acquire([1, 2, 3], 2)
    _fill(first, [1, 2, 3, 4])
    pool.release(first)
    second = pool.acquire([1, 2, 3, 4, 5], 4)
    assert second is first
    assert second.tokens == [1, 2, 3, 4]


def test_a_short_shared_prefix_is_copied_and_the_donor_stays_whole() -> None:
    """Two of six tokens shared: another conversation's history is not given up for them."""
    pool = _pool()
    first = pool.acquire([1, 2, 3, 4, 5, 6], 5)
    _fill(first, [1, 2, 3, 4, 5, 6])
    pool.release(first)
    second = pool.acquire([1, 2, 9, 9], 3)
    assert second is not first
    assert (second.tokens, first.tokens) == ([1, 2], [1, 2, 3, 4, 5, 6])
    assert _held(second.target, 2) == _held(second.drafter, 2) == [1, 2]


def test_a_running_request_may_lend_its_prefix() -> None:
    """A busy slot is copied from, never taken."""
    pool = _pool(running=2)
    first = pool.acquire([1, 2, 3], 2)
    _fill(first, [1, 2, 3])
    second = pool.acquire([1, 2, 3, 4], 3)
    assert second is not first
    assert second.tokens == [1, 2, 3]


def test_the_least_recently_used_sequence_is_evicted() -> None:
    """One running request means two slots; the third sequence takes the place of the first."""
    pool = _pool()
    for start in (10, 20, 30):
        slot = pool.acquire([start, start + 1], 1)
        _fill(slot, [start, start + 1])
        pool.release(slot)
    assert pool.acquire([20, 21, 5], 2).length == 2
    assert pool.acquire([10, 11, 5], 2).length == 0


def test_reuse_is_bounded_and_can_be_switched_off_or_flushed() -> None:
    """`reusable` caps it; without reuse, and after a flush, nothing is found."""
    pool, plain = _pool(), _pool(reuse=False)
    for each in (pool, plain):
        slot = each.acquire([1, 2, 3], 2)
        _fill(slot, [1, 2, 3])
        each.release(slot)
    assert plain.acquire([1, 2, 3], 2).length == 0
    again = pool.acquire([1, 2, 3], 2)
    assert again.length == 2
    pool.release(again)
    pool.flush()
    assert pool.acquire([1, 2, 3], 2).length == 0
