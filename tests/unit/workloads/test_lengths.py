"""Order statistics of lengths."""

import pytest

from draftbench.workloads.lengths import summarise


@pytest.mark.parametrize(
    ("lengths", "median", "mean", "p90"),
    [
        ([7], 7, 7, 7),
        ([4, 1, 3, 2], 2.5, 2.5, 4),
        (list(range(1, 11)), 5.5, 5.5, 9),
        (list(range(1, 12)), 6, 6, 10),
    ],
)
def test_summary(lengths: list[int], median: float, mean: float, p90: int) -> None:
    """p90 is the smallest value that nine tenths do not exceed: the 9th of 10, the 10th of 11."""
    summary = summarise(lengths)
    assert (summary.count, summary.minimum, summary.maximum) == (len(lengths), min(lengths), max(lengths))
    assert (summary.median, summary.mean, summary.p90) == (median, mean, p90)
