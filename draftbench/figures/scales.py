"""Ranges and ticks that both renderers use, so that the two pictures of a figure agree."""

import math
from collections.abc import Sequence

from draftbench.figures.declaration import Figure, Panel

_PADDING = 0.06
_LOG_PADDING = 1.25


def y_range(figure: Figure) -> tuple[float, float]:
    """Common range of all panels: every point, interval end and the reference line, with a little air."""
    values = [value for panel in figure.panels for value in _values(panel)]
    if figure.reference is not None:
        values.append(figure.reference)
    low, high = min(values), max(values)
    if figure.y.scale == "log10":
        return low / _LOG_PADDING, high * _LOG_PADDING
    if figure.y.from_zero:
        low = min(low, 0.0)
    if figure.y.unit == "%":
        return 0.0, max(high, 100.0)
    padding = (high - low) * _PADDING or abs(high) * _PADDING or 1.0
    return (low if figure.y.from_zero and low == 0 else low - padding), high + padding


def _values(panel: Panel) -> list[float]:
    ends = [end for point in panel.points for end in (point.low, point.high) if end is not None]
    return [point.y for point in panel.points] + ends


def x_values(figure: Figure) -> list[float]:
    """Distinct numeric x of all panels, ascending."""
    return sorted({float(point.x) for panel in figure.panels for point in panel.points})


def ticks(values: Sequence[float], most: int) -> list[float]:
    """At most `most` of the values, evenly taken, so that labels do not run into each other."""
    step = math.ceil(len(values) / most)
    return list(values[::step])


def dodge(place: int, count: int, width: float = 0.66) -> float:
    """Offset of the series at `place` of `count` around its category's centre, in categories."""
    return (place - (count - 1) / 2) * width / max(count, 1)
