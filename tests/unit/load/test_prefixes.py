"""Shared prefixes against brute force."""

import random
from itertools import takewhile

from draftbench.load.prefixes import PrefixIndex


def _shared(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def test_the_longest_shared_prefix_is_found_among_many() -> None:
    """Random sequences over a small alphabet share prefixes of every length, and each pair is compared id by id."""
    source = random.Random(7)
    sequences = [[source.randrange(3) for _ in range(source.randrange(1, 12))] for _ in range(200)]
    index = PrefixIndex()
    for owner, ids in enumerate(sequences):
        index.add(owner, ids)

    for owner, ids in enumerate(sequences):
        others = (other for number, other in enumerate(sequences) if number != owner)
        expected = max(_shared(ids, other) for other in others)
        assert index.longest_shared(owner, ids) == expected


def test_ids_compare_as_numbers_not_as_bytes() -> None:
    """256 and 1 differ in their first byte on this machine; prefixes end between ids, never inside one."""
    index = PrefixIndex()
    index.add(0, [49151, 256, 7])

    assert index.longest_shared(1, [49151, 256, 8]) == 2
    assert index.longest_shared(1, [49150, 256, 7]) == 0


def test_a_sequence_does_not_share_with_itself() -> None:
    """Nothing else was sent, so nothing can be cached."""
    index = PrefixIndex()
    index.add(0, [1, 2, 3])

    assert index.longest_shared(0, [1, 2, 3]) == 0
    assert index.longest_shared(1, [1, 2]) == 2
