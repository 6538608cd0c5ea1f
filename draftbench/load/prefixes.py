"""The longest prefix that a prompt shares with anything sent before it: the most that a cache can hold of it."""

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence

_ID_BYTES = 4


class PrefixIndex:
    """Token sequences in lexicographic order; the best match of a prompt is one of its two neighbours.

    One query costs a bisection, so that a cell of thousands of long prompts is checked in seconds.
    """

    def __init__(self) -> None:
        self._sequences: list[tuple[bytes, int]] = []

    def add(self, owner: int, ids: Sequence[int]) -> None:
        """Remember a sequence under its request's number."""
        insort(self._sequences, (_ordered_bytes(ids), owner))

    def longest_shared(self, owner: int, ids: Sequence[int]) -> int:
        """Tokens that `ids` shares from the start with any sequence of another owner."""
        wanted = _ordered_bytes(ids)
        place = bisect_left(self._sequences, (wanted, -1))
        below = self._nearest(owner, range(place - 1, -1, -1))
        above = self._nearest(owner, range(place, len(self._sequences)))
        return max((_shared(wanted, other) for other in (below, above) if other is not None), default=0)

    def _nearest(self, owner: int, places: range) -> bytes | None:
        return next((ids for ids, other in (self._sequences[place] for place in places) if other != owner), None)


def _ordered_bytes(ids: Sequence[int]) -> bytes:
    """Big-endian ids, whose byte order is the order of the ids."""
    numbers = array("I", ids)
    assert numbers.itemsize == _ID_BYTES
    numbers.byteswap()
    return numbers.tobytes()


def _shared(one: bytes, other: bytes) -> int:
    """Tokens of the common prefix, by bisection over equal prefixes."""
    low, high = 0, min(len(one), len(other)) // _ID_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * _ID_BYTES] == other[: middle * _ID_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low
