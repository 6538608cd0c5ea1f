"""What a figure is before anyone draws it: points with intervals, axes with units, looks of series, a caption."""

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["intervals", "lines", "bars"]
Marker = Literal[
    "circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left"
]
MARKERS: tuple[Marker, ...] = (
    "square",
    "circle",
    "triangle-up",
    "diamond",
    "triangle-down",
    "cross",
    "triangle-right",
    "triangle-left",
)
DASHES: tuple[tuple[int, ...], ...] = ((), (5, 2), (2, 2), (7, 2, 2, 2), (9, 3), (1, 2), (5, 2, 1, 2, 1, 2), (3, 3))
"""Dash patterns in points; markers and dashes differ by series so that a grey print still tells them apart."""


@dataclass(frozen=True)
class Style:
    """How a series looks in every figure: name to print, colour, marker, dash pattern (empty = solid)."""

    label: str
    colour: str
    marker: Marker = "circle"
    dash: tuple[int, ...] = ()
    filled: bool = True


@dataclass(frozen=True)
class Point:
    """One plotted value; `x` is a category or a number, `note` says n and what a tooltip should add.

    The inner interval, drawn thicker, takes the prompts as fixed; `low` to `high` also covers prompts like these.
    """

    x: str | float
    y: float
    low: float | None = None
    high: float | None = None
    note: str = ""
    workload: str | None = None
    concurrency: int | None = None
    tensor_parallelism: int | None = None
    inner_low: float | None = None
    inner_high: float | None = None

    def __post_init__(self) -> None:
        assert math.isfinite(self.y), "a missing value is left out, never plotted"
        assert (self.low is None) == (self.high is None), "an interval has two ends"
        assert (self.inner_low is None) == (self.inner_high is None), "an interval has two ends"

    @property
    def has_interval(self) -> bool:
        """Whether an error bar is drawn."""
        return self.low is not None


@dataclass(frozen=True)
class Series:
    """Points of one look within a panel; `key` is the same in every panel and, for arms, in every figure."""

    key: str
    style: Style
    points: tuple[Point, ...]
    joined: bool = True


@dataclass(frozen=True)
class Axis:
    """Title, unit and scale; `categories` gives the order of a categorical axis."""

    title: str
    unit: str = ""
    scale: Literal["linear", "log2", "log10"] = "linear"
    categories: tuple[str, ...] | None = None
    from_zero: bool = False
    whole: bool = False

    @property
    def label(self) -> str:
        """`TTFT (ms)`."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Panel:
    """One of a figure's small multiples."""

    title: str
    series: tuple[Series, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """All points of the panel."""
        return tuple(point for series in self.series for point in series.points)


@dataclass(frozen=True)
class Figure:
    """One figure, complete: both renderers draw this and nothing else.

    `reference` is a horizontal line with a meaning, such as 1 = no difference.
    `by_arm` tells that the series are arms, so that one legend can serve all such figures.
    """

    name: str
    title: str
    category: str
    kind: Kind
    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    caption: str
    reference: float | None = None
    reference_label: str = ""
    by_arm: bool = True

    def __post_init__(self) -> None:
        assert self.panels, "a figure without data is a Skipped"
        assert all(panel.points for panel in self.panels), "an empty panel is left out"

    @property
    def styles(self) -> dict[str, Style]:
        """Style by series key, in order of first appearance over the panels."""
        return {series.key: series.style for panel in self.panels for series in panel.series}

    def categories(self, panel: Panel) -> tuple[str, ...]:
        """Categories that this panel holds, in the axis' order."""
        held = {point.x for point in panel.points}
        return tuple(name for name in self.x.categories or () if name in held)


@dataclass(frozen=True)
class Skipped:
    """A figure that the data do not allow, and why."""

    name: str
    title: str
    reason: str
