"""Rows of a table into panels: small studies in one panel, larger ones in a panel a workload."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from draftbench.figures import numbers
from draftbench.figures.declaration import Axis, Panel, Point, Series, Style
from draftbench.figures.study import Study
from draftbench.labels import workload_label

Row = dict[str, Any]
MOST_CONDITIONS_IN_ONE_PANEL = 6


@dataclass(frozen=True)
class Slice:
    """The rows of one tensor parallelism, with what a figure's name and title add for it."""

    rows: list[Row]
    name_suffix: str
    title_suffix: str


def by_tensor_parallelism(frame: pl.DataFrame) -> list[Slice]:
    """One slice a tp; the suffixes are empty where there is only one."""
    values = sorted(value for value in frame["tensor_parallelism"].unique() if value is not None)
    slices = []
    for value in values:
        rows = frame.filter(pl.col("tensor_parallelism") == value).to_dicts()
        several = len(values) > 1
        slices.append(Slice(rows, f"-tp{value}" if several else "", f", TP{value}" if several else ""))
    return slices


def condition_label(workload: str, concurrency: int) -> str:
    """`Code, c = 4`."""
    return f"{workload_label(workload)}, c = {concurrency}"


def conditions(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """(workload, concurrency) pairs in display order."""
    return sorted({(row["workload"], row["concurrency"]) for row in rows})


def place(row: Row) -> dict[str, Any]:
    """The point's fields that selections on the screen filter by."""
    return {name: row[name] for name in ("workload", "concurrency", "tensor_parallelism")}


def estimate_point(row: Row, x: str | float, *, adjusted: bool = False) -> Point | None:
    """Point of an estimate row; the verdict's own (adjusted) interval where asked for and present."""
    if row["estimate"] is None:
        return None
    low, high = row["low"], row["high"]
    if adjusted and row.get("low_adjusted") is not None and row.get("high_adjusted") is not None:
        low, high = row["low_adjusted"], row["high_adjusted"]
    if low is None or high is None:
        low = high = None
    inner = _inner_interval(row, adjusted)
    size = numbers.sample_size(row["blocks"], row["conversations"])
    note = "; ".join(part for part in (size, row["reason"] or "") if part)
    return Point(x, row["estimate"], low, high, note, **place(row), inner_low=inner[0], inner_high=inner[1])


def _inner_interval(row: Row, adjusted: bool) -> tuple[float | None, float | None]:
    names = ("low_adjusted_these_prompts", "high_adjusted_these_prompts") if adjusted else ()
    for low, high in (
        (names, ("low_these_prompts", "high_these_prompts"))
        if names
        else (("low_these_prompts", "high_these_prompts"),)
    ):
        if row.get(low) is not None and row.get(high) is not None:
            return row[low], row[high]
    return None, None


def arm_series(
    rows: Sequence[Row], styles: dict[str, Style], to_point: Callable[[Row], Point | None], *, joined: bool = False
) -> tuple[Series, ...]:
    """One series an arm, in display order; arms without a point are left out."""
    series = []
    for arm, style in styles.items():
        points = [point for row in rows if row["arm"] == arm and (point := to_point(row)) is not None]
        if points:
            series.append(Series(arm, style, tuple(points), joined))
    return tuple(series)


def condition_panels(
    study: Study, rows: Sequence[Row], to_point: Callable[[Row, str], Point | None]
) -> tuple[Axis, tuple[Panel, ...]]:
    """Arms side by side over conditions: the categorical axis and the panels that hold any point."""
    styles, pairs = study.arm_styles(), conditions(rows)
    if len(pairs) <= MOST_CONDITIONS_IN_ONE_PANEL:
        categories = tuple(condition_label(*pair) for pair in pairs)
        panels = [
            Panel(
                "",
                arm_series(
                    rows, styles, lambda row: to_point(row, condition_label(row["workload"], row["concurrency"]))
                ),
            )
        ]
        axis = Axis("Workload and concurrency", categories=categories)
    else:
        categories = tuple(f"c = {value}" for value in sorted({pair[1] for pair in pairs}))
        panels = [
            Panel(
                workload_label(workload),
                arm_series(
                    [row for row in rows if row["workload"] == workload],
                    styles,
                    lambda row: to_point(row, f"c = {row['concurrency']}"),
                ),
            )
            for workload in sorted({pair[0] for pair in pairs})
        ]
        axis = Axis("Concurrency", categories=categories)
    return axis, tuple(panel for panel in panels if panel.points)


def each_condition(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """(panel title, rows) of every condition."""
    return [
        (condition_label(*pair), [row for row in rows if (row["workload"], row["concurrency"]) == pair])
        for pair in conditions(rows)
    ]
