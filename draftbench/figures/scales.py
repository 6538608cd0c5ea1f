"""Ranges and ticks that both renderers use, so that the two pictures of a figure agree."""

import math
from collections.abc import Sequence

from draftbench.figures.declaration import Figure, Panel

_PADDING = 0.06
_LOG_PADDING = 1.25
_BAR_ROOM = 0.6
_FAR = 20.0


def y_range(figure: Figure) -> tuple[float, float]:
    """Common range of all panels: every point and inner interval, and as much of the bars as leaves those readable."""
    values = [value for panel in figure.panels for value in _core_values(panel)]
    if figure.reference is not None:
        values.append(figure.reference)
    low, high = min(values), max(values)
    if figure.y.scale == "log10":
        return low / _LOG_PADDING, high * _LOG_PADDING
    room = _BAR_ROOM * max(high - low, abs(high) * 0.2)
    ends = [end for panel in figure.panels for end in _bar_ends(panel)]
    low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    if figure.y.unit == "%":
        return 0.0, max(high, 100.0)
    if figure.y.from_zero:
        low = min(low, 0.0)
    padding = (high - low) * _PADDING or abs(high) * _PADDING or 1.0
    return (low if figure.y.from_zero and low == 0 else low - padding), high + padding


def drawable_range(figure: Figure) -> tuple[float, float]:
    """Ends at which a bar is cut before TeX sees it: lengths end at 5.75 m there, intervals of two blocks may not."""
    low, high = y_range(figure)
    if figure.y.scale == "log10":
        return low / _FAR, high * _FAR
    return low - _FAR * (high - low), high + _FAR * (high - low)


def caption_of(figure: Figure) -> str:
    """The caption, with a word on bars that the frame cuts off."""
    low, high = y_range(figure)
    cut = any(not low <= end <= high for panel in figure.panels for end in _bar_ends(panel))
    return (
        f"{figure.caption} Bars that reach the frame go on beyond it; the tables give their ends."
        if cut
        else figure.caption
    )


def _core_values(panel: Panel) -> list[float]:
    inner = [end for point in panel.points for end in (point.inner_low, point.inner_high) if end is not None]
    return [point.y for point in panel.points] + inner


def _bar_ends(panel: Panel) -> list[float]:
    return [end for point in panel.points for end in (point.low, point.high) if end is not None]


def x_values(figure: Figure) -> list[float]:
    """Distinct numeric x of all panels, ascending."""
    return sorted({float(point.x) for panel in figure.panels for point in panel.points})


def ticks(values: Sequence[float], most: int) -> list[float]:
    """At most `most` of the values, evenly taken, so that labels do not run into each other."""
    step = math.ceil(len(values) / most)
    return list(values[::step])


def tick_lines(category: str) -> list[str]:
    """A category's label in lines: `Code, c = 4` and `DDTree 15` in two."""
    if ", " in category:
        return category.split(", ", 1)
    return category.split(" ", 1) if not category.startswith("c = ") else [category]


def dodge(place: int, count: int, width: float = 0.66) -> float:
    """Offset of the series at `place` of `count` around its category's centre, in categories."""
    return (place - (count - 1) / 2) * width / max(count, 1)
