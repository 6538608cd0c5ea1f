"""Many comparisons, one error rate: Holm's step-down procedure with the interval each verdict uses."""

from collections.abc import Sequence


def holm_levels(p_values: Sequence[float | None], alpha: float) -> list[float | None]:
    """The level at which each comparison is judged (Holm 1979); None where there is no p-value.

    The family's size counts untestable comparisons too, since the plan named them.
    After the first comparison that is not rejected all later ones share its level, so that an interval of level
    1 - level leaves the null region exactly where Holm rejects.
    """
    family = len(p_values)
    testable = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    levels: list[float | None] = [None] * family
    stopped: float | None = None
    for rank, (p, index) in enumerate(testable):
        level = stopped if stopped is not None else alpha / (family - rank)
        levels[index] = level
        if stopped is None and p > level:
            stopped = level
    return levels
