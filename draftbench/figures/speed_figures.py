"""Figures of relative speed: speed-ups by workload, over the draft budget, and what they are made of."""

from collections.abc import Callable

import polars as pl

from draftbench.figures.conditions import (
    Row,
    Slice,
    by_tensor_parallelism,
    condition_panels,
    each_condition,
    estimate_point,
    place,
)
from draftbench.figures.declaration import Axis, Figure, Panel, Point, Series, Skipped, Style
from draftbench.figures.numbers import confidence_label
from draftbench.figures.study import Study
from draftbench.labels import CHAIN_COLOUR, TREE_COLOURS

SPEED_MEASURES = ("decode_time_per_token", "throughput")
TREE_STYLE = Style("DDTree", TREE_COLOURS[2], "triangle-up")
CHAIN_STYLE = Style("DFlash (chain)", CHAIN_COLOUR, "circle", (5, 2))
QUANTITY_STYLES = {
    "speedup": Style("Speed-up", "#000000", "diamond"),
    "yield_ratio": Style("Tokens per step, ratio", "#009e73", "triangle-up", (5, 2)),
    "step_time_ratio": Style("Step time, ratio", "#cc79a7", "triangle-down", (2, 2)),
}
_BUDGET_AXIS = Axis("Draft budget", "nodes", whole=True)
SPEED = "Speed"


def speedup_rows(study: Study, baselines: list[str]) -> pl.DataFrame:
    """Speed-ups that have an estimate, against any of these arms."""
    return study.table("speedups").filter(
        pl.col("baseline").is_in(baselines)
        & pl.col("measure").is_in(SPEED_MEASURES)
        & pl.col("estimate").is_not_null()
        & (pl.col("arm") != pl.col("baseline"))
    )


def against_ar(study: Study) -> list[Figure | Skipped]:
    """Every arm against plain decoding."""
    return _speedups(study, "AR", "speedup-vs-ar", "Speed-up over autoregressive decoding", methods=None)


def against_dflash(study: Study) -> list[Figure | Skipped]:
    """Every tree against the chain of the same drafter."""
    return _speedups(study, "DFLASH", "speedup-vs-dflash", "Speed-up of draft trees over DFlash", methods=("DDTREE",))


def _speedups(
    study: Study, baseline: str, name: str, title: str, methods: tuple[str, ...] | None
) -> list[Figure | Skipped]:
    frame = speedup_rows(study, study.names_of(baseline))
    if methods:
        frame = frame.filter(pl.col("method").is_in(methods))
    if frame.is_empty():
        against = "AR" if baseline == "AR" else "DFlash"
        return [Skipped(name, title, f"no arm has a speed-up against {against}")]
    return [_speedup_figure(study, part, name, title, baseline) for part in by_tensor_parallelism(frame)]


def _speedup_figure(study: Study, part: Slice, name: str, title: str, baseline: str) -> Figure:
    axis, panels = condition_panels(study, part.rows, lambda row, x: estimate_point(row, x, adjusted=True))
    against = "AR" if baseline == "AR" else "DFlash with the same drafter"
    return Figure(
        name=f"{name}{part.name_suffix}",
        title=f"{title}{part.title_suffix}",
        category=SPEED,
        kind="intervals",
        x=axis,
        y=Axis(f"Speed-up over {'AR' if baseline == 'AR' else 'DFlash'}", "×"),
        panels=panels,
        reference=1.0,
        reference_label=f"as fast as {'AR' if baseline == 'AR' else 'DFlash'}",
        caption=(
            f"Speed-up over {against}, from pairs within a block: decode time per token at concurrency 1, output "
            f"tokens per second above it. Values above 1 are faster. {_interval_words(study, part.rows)}"
        ),
    )


def _interval_words(study: Study, rows: list[Row]) -> str:
    if all(row["low"] is None for row in rows):
        return "No intervals: a single block shows no variation between launches."
    level = confidence_label(study.confidence)
    adjusted = any(row["low_adjusted"] is not None for row in rows)
    how = f"{level} intervals" + (", adjusted for the number of primary comparisons (Holm)" if adjusted else "")
    some_without = any(row["low"] is None for row in rows)
    if any(row["low_these_prompts"] is not None for row in rows):
        how = f"{how} for prompts like these; the thick part is for these prompts alone"
    return f"Bars are {how}." + (" Points without a bar have no interval; the tables say why." if some_without else "")


def budget_curve(study: Study) -> list[Figure | Skipped]:
    """Speed-up over AR against the draft budget, the chain at its own width."""
    name, title = "speedup-by-budget", "Speed-up over AR against the draft budget"
    frame = speedup_rows(study, study.names_of("AR")).filter(pl.col("method").is_in(["DFLASH", "DDTREE"]))
    if (reason := too_few_budgets(frame)) is not None:
        return [Skipped(name, title, reason)]
    figures: list[Figure | Skipped] = []
    for part in by_tensor_parallelism(frame):
        panels = budget_panels(part.rows, lambda row, x: estimate_point(row, x, adjusted=True))
        if panels:
            figures.append(_budget_figure(study, part, name, title, panels))
    return figures


def too_few_budgets(frame: pl.DataFrame) -> str | None:
    """Why no curve over the budget can be drawn, or None."""
    count = frame.filter(pl.col("draft_budget").is_not_null())["draft_budget"].n_unique()
    return None if count >= 2 else f"a curve needs two draft budgets with data, there are {count}"


def _budget_figure(study: Study, part: Slice, name: str, title: str, panels: tuple[Panel, ...]) -> Figure:
    return Figure(
        name=f"{name}{part.name_suffix}",
        title=f"{title}{part.title_suffix}",
        category=SPEED,
        kind="lines",
        x=_BUDGET_AXIS,
        y=Axis("Speed-up over AR", "×"),
        panels=panels,
        by_arm=False,
        reference=1.0,
        reference_label="as fast as AR",
        caption=(
            "Speed-up over AR against the number of draft nodes verified in a step, the root not counted. The chain "
            f"stands at its own number of drafts, so that points above each other cost the same verify width. "
            f"{_interval_words(study, part.rows)}"
        ),
    )


def budget_panels(rows: list[Row], to_point: Callable[[Row, float], Point | None]) -> tuple[Panel, ...]:
    """A panel a condition: trees joined over their budget, the chain as a point at verify width - 1."""
    panels = []
    for title, held in each_condition(rows):
        series = []
        trees = sorted((row for row in held if row["method"] == "DDTREE"), key=lambda row: row["draft_budget"])
        chains = [row for row in held if row["method"] == "DFLASH" and row["verify_width"] is not None]
        for key, style, chosen in (("tree", TREE_STYLE, trees), ("chain", CHAIN_STYLE, chains)):
            points = [point for row in chosen if (point := to_point(row, float(row["verify_width"] - 1))) is not None]
            if points:
                series.append(Series(key, style, tuple(points)))
        if series:
            panels.append(Panel(title, tuple(series)))
    return tuple(panels)


def decomposition(study: Study) -> list[Figure | Skipped]:
    """Speed-up as tokens per step times step time."""
    name, title = "decomposition", "What the speed-up is made of"
    frame = study.table("decomposition").filter(
        pl.col("baseline").is_in(study.names_of("AR")) & pl.col("speedup").is_not_null() & (pl.col("concurrency") == 1)
    )
    if frame.is_empty():
        return [Skipped(name, title, "no arm was decomposed; that needs paired turns at concurrency 1")]
    return [_decomposition_figure(study, part, name, title) for part in by_tensor_parallelism(frame)]


def _decomposition_figure(study: Study, part: Slice, name: str, title: str) -> Figure:
    arms = [arm for arm in study.arm_styles() if any(row["arm"] == arm for row in part.rows)]
    panels = [
        Panel(heading, tuple(_quantity_series(study, quantity, arms, rows) for quantity in QUANTITY_STYLES))
        for heading, rows in each_condition(part.rows)
    ]
    return Figure(
        name=f"{name}{part.name_suffix}",
        title=f"{title}{part.title_suffix}",
        category=SPEED,
        kind="intervals",
        x=Axis("Arm", categories=tuple(study.label(arm) for arm in arms)),
        y=Axis("Ratio to AR", "×"),
        panels=tuple(panel for panel in panels if panel.points),
        by_arm=False,
        reference=1.0,
        reference_label="as AR",
        caption=(
            "The speed-up at concurrency 1 is exactly the product of two ratios: tokens per step against AR (above 1, "
            "drafts are accepted) and AR's step time against the arm's (below 1, a step costs more)."
        ),
    )


def _quantity_series(study: Study, quantity: str, arms: list[str], rows: list[Row]) -> Series:
    stem = quantity.removesuffix("_ratio")
    points = []
    for arm in arms:
        for row in (row for row in rows if row["arm"] == arm and row[quantity] is not None):
            low, high = row.get(f"{stem}_low"), row.get(f"{stem}_high")
            whole = low is not None and high is not None
            points.append(
                Point(
                    study.label(arm),
                    row[quantity],
                    low=low if whole else None,
                    high=high if whole else None,
                    note=row["reason"] or "",
                    **place(row),
                )
            )
    return Series(quantity, QUANTITY_STYLES[quantity], tuple(points), joined=False)


def session_time(study: Study) -> list[Figure | Skipped]:
    """Wall time of whole conversations against AR, which users feel."""
    name, title = "speedup-session-time", "Whole conversations against AR"
    frame = study.table("speedups").filter(
        (pl.col("measure") == "session_time")
        & pl.col("baseline").is_in(study.names_of("AR"))
        & pl.col("estimate").is_not_null()
    )
    if frame.is_empty():
        return [Skipped(name, title, "no arm has session times paired with AR's")]
    figures: list[Figure | Skipped] = []
    for part in by_tensor_parallelism(frame):
        axis, panels = condition_panels(study, part.rows, estimate_point)
        figures.append(
            Figure(
                name=f"{name}{part.name_suffix}",
                title=f"{title}{part.title_suffix}",
                category=SPEED,
                kind="intervals",
                x=axis,
                y=Axis("AR's session time / arm's", "×"),
                panels=panels,
                reference=1.0,
                reference_label="as AR",
                caption=(
                    "Wall time of whole conversations, prefill and short turns included, AR's over the arm's. "
                    "This is what a user feels; it is below the decode speed-up where prefill or waiting dominates."
                ),
            )
        )
    return figures
