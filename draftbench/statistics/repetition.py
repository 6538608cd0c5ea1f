"""Detection of degenerate output: text that repeats itself is easy to draft and makes the broken arm the fastest."""

from collections.abc import Sequence

import numpy as np

GRAM = 4
MIN_TOKENS = 24
REPEATED_SHARE_LIMIT = 0.5
LOOP_SHARE_LIMIT = 0.5
LONGEST_PERIOD = 32
"""An output of at least MIN_TOKENS is repetitive where more than half of its 4-grams occurred before in it, or where
one loop of a period up to 32 tokens covers more than half of it."""


def is_repetitive(output_ids: Sequence[int]) -> bool:
    """Whether the output repeats itself beyond the stated limits; short outputs never count."""
    length = len(output_ids)
    if length < MIN_TOKENS:
        return False
    share = repeated_gram_share(output_ids)
    if share > REPEATED_SHARE_LIMIT:
        return True
    # A loop over half of the output, three times round, repeats at least length / 3 - GRAM grams: the rest is spared
    # the dear search.
    if share * (length - GRAM + 1) < length / 3 - GRAM:
        return False
    return longest_loop(output_ids) / length > LOOP_SHARE_LIMIT


def repeated_gram_share(output_ids: Sequence[int]) -> float:
    """Share of 4-grams that occurred earlier in the same output; 0 below four tokens."""
    count = len(output_ids) - GRAM + 1
    if count < 1:
        return 0.0
    ids = np.asarray(output_ids).tolist()
    distinct = len(set(zip(ids, ids[1:], ids[2:], ids[3:], strict=False)))
    return (count - distinct) / count


def longest_loop(output_ids: Sequence[int]) -> int:
    """Tokens covered by the longest run that repeats with one period up to LONGEST_PERIOD, at least three times."""
    ids = np.asarray(output_ids)
    longest = 0
    for period in range(1, min(LONGEST_PERIOD, len(ids) // 3) + 1):
        covered = _longest_run(ids[period:] == ids[:-period]) + period
        if covered >= 3 * period:
            longest = max(longest, covered)
    return longest


def _longest_run(flags: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))
