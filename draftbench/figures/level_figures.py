"""Figures of absolute levels: latency, throughput, tokens per step, acceptance, drift and losslessness."""

import polars as pl

from draftbench.figures.conditions import (
    Row,
    Slice,
    arm_series,
    by_tensor_parallelism,
    condition_label,
    condition_panels,
    each_condition,
    estimate_point,
    place,
)
from draftbench.figures.declaration import Axis, Figure, Kind, Panel, Point, Series, Skipped, Style
from draftbench.figures.numbers import confidence_label
from draftbench.figures.speed_figures import budget_panels, too_few_budgets
from draftbench.figures.study import Study
from draftbench.labels import AR_COLOUR, workload_label

LATENCY, ACCEPTANCE, TRUST = "Latency and throughput", "Acceptance", "Can it be trusted"
FLOOR_STYLE = Style("AR rescored (floor)", "#000000", "cross", (2, 2))


def _levels(study: Study, metric: str) -> pl.DataFrame:
    return study.table("levels").filter((pl.col("metric") == metric) & pl.col("estimate").is_not_null())


def _bars_are(study: Study, rows: list[Row]) -> str:
    if all(row["low"] is None for row in rows):
        return "No intervals: a single block shows no variation between launches."
    return f"Bars are {confidence_label(study.confidence)} intervals."


def time_to_first_token(study: Study) -> list[Figure | Skipped]:
    """TTFT by arm and condition."""
    caption = "Time to first token, from sending the request to the first streamed token. Lower is better."
    return _level_figures(study, "ttft_ms", "ttft", "Time to first token", Axis("TTFT", "ms", from_zero=True), caption)


def time_per_output_token(study: Study) -> list[Figure | Skipped]:
    """TPOT by arm and condition."""
    caption = (
        "Time per output token after the first chunk, whose tokens are not counted, so that arms that stream several "
        "tokens at once are treated alike. Lower is better."
    )
    return _level_figures(
        study, "tpot_ms", "tpot", "Time per output token", Axis("TPOT", "ms", from_zero=True), caption
    )


def _level_figures(study: Study, metric: str, name: str, title: str, y: Axis, caption: str) -> list[Figure | Skipped]:
    frame = _levels(study, metric)
    if frame.is_empty():
        return [Skipped(name, title, f"no cell has a value of {y.title}")]
    figures: list[Figure | Skipped] = []
    for part in by_tensor_parallelism(frame):
        axis, panels = condition_panels(study, part.rows, estimate_point)
        text = f"{caption} {_bars_are(study, part.rows)}"
        figures.append(_figure(part, name, title, (axis, y), panels, text, category=LATENCY, kind="intervals"))
    return figures


def _figure(
    part: Slice,
    name: str,
    title: str,
    axes: tuple[Axis, Axis],
    panels: tuple[Panel, ...],
    caption: str,
    *,
    category: str,
    kind: Kind = "lines",
    by_arm: bool = True,
) -> Figure:
    return Figure(
        name=f"{name}{part.name_suffix}",
        title=f"{title}{part.title_suffix}",
        category=category,
        kind=kind,
        x=axes[0],
        y=axes[1],
        panels=panels,
        caption=caption,
        by_arm=by_arm,
    )


def throughput(study: Study) -> list[Figure | Skipped]:
    """Output tokens per second over concurrency."""
    name, title = "throughput-by-concurrency", "Throughput against concurrency"
    frame = _levels(study, "throughput")
    counts = frame.group_by("workload", "tensor_parallelism").agg(pl.col("concurrency").n_unique().alias("n"))
    frame = frame.join(counts.filter(pl.col("n") > 1), on=["workload", "tensor_parallelism"], how="semi")
    if frame.is_empty():
        return [Skipped(name, title, "no workload was measured at two concurrencies")]
    figures: list[Figure | Skipped] = []
    for part in by_tensor_parallelism(frame):
        to_point = lambda row: estimate_point(row, float(row["concurrency"]))
        panels = tuple(
            Panel(workload_label(workload), arm_series(rows, study.arm_styles(), to_point, joined=True))
            for workload in sorted({row["workload"] for row in part.rows})
            if (rows := _sorted(part.rows, workload))
        )
        x = Axis("Concurrency", "conversations", scale="log2", whole=True)
        y = Axis("Output", "tokens/s", from_zero=True)
        caption = (
            "Output tokens per second while all lanes were occupied, against the number of conversations at once. "
            f"{_bars_are(study, part.rows)}"
        )
        figures.append(_figure(part, name, title, (x, y), panels, caption, category=LATENCY))
    return figures


def _sorted(rows: list[Row], workload: str) -> list[Row]:
    return sorted((row for row in rows if row["workload"] == workload), key=lambda row: row["concurrency"])


def yield_by_budget(study: Study) -> list[Figure | Skipped]:
    """Tokens per step against the draft budget, the chain beside."""
    name, title = "yield-by-budget", "Tokens per verify step against the draft budget"
    frame = _levels(study, "yield").filter(pl.col("method").is_in(["DFLASH", "DDTREE"]))
    if (reason := too_few_budgets(frame)) is not None:
        return [Skipped(name, title, reason)]
    caption = (
        "Yield: output tokens after the first chunk for each verify step. Trees by their number of nodes, the root not "
        "counted; the chain of the same drafter at its own number of drafts."
    )
    x, y = Axis("Draft budget", "nodes", whole=True), Axis("Yield", "tokens/step")
    return [
        _figure(
            part,
            name,
            title,
            (x, y),
            budget_panels(part.rows, estimate_point),
            f"{caption} {_bars_are(study, part.rows)}",
            category=ACCEPTANCE,
            by_arm=False,
        )
        for part in by_tensor_parallelism(frame)
    ]


def acceptance_by_position(study: Study) -> list[Figure | Skipped]:
    """Share of steps that accept at least j drafts."""
    name, title = "acceptance-by-position", "Acceptance by draft position"
    frame = study.table("acceptance").filter(pl.col("marginal").is_not_null())
    if frame.is_empty():
        return [Skipped(name, title, "no arm recorded how many drafts its steps accepted")]
    lowest = frame.group_by("workload", "tensor_parallelism").agg(pl.col("concurrency").min())
    frame = frame.join(lowest, on=["workload", "tensor_parallelism", "concurrency"], how="semi").sort("position")
    figures: list[Figure | Skipped] = []
    for part in by_tensor_parallelism(frame):
        panels = tuple(
            Panel(heading, arm_series(rows, study.arm_styles(), _acceptance_point, joined=True))
            for heading, rows in each_condition(part.rows)
        )
        x, y = Axis("Draft position", "tokens", whole=True), Axis("Steps that accept at least so many", from_zero=True)
        caption = (
            "Share of verify steps that accept at least so many drafts, at the lowest concurrency of each workload. "
            "The area under a line is the number of drafts accepted in a step. Pooled over blocks, no intervals."
        )
        figures.append(_figure(part, name, title, (x, y), panels, caption, category=ACCEPTANCE))
    return figures


def _acceptance_point(row: Row) -> Point:
    note = f"{row['steps']:,} steps" if row["steps"] is not None else ""
    return Point(float(row["position"]), row["marginal"], note=note, **place(row))


def drift(study: Study) -> list[Figure | Skipped]:
    """AR over the running order, which shows a machine that warms up or is disturbed."""
    name, title = "ar-over-time", "AR over the running order"
    frame = study.table("cells").filter(
        (pl.col("method") == "AR") & (pl.col("status") == "measured") & pl.col("step_time_ms").is_not_null()
    )
    if frame["session"].n_unique() < 2:
        return [Skipped(name, title, "drift needs AR in two sessions or more")]
    style = Style("AR", AR_COLOUR, "square")
    figures: list[Figure | Skipped] = []
    for part in by_tensor_parallelism(frame.sort("session_order")):
        panels = tuple(
            Panel(heading, (Series("ar", style, tuple(_drift_point(row) for row in rows)),))
            for heading, rows in each_condition(part.rows)
        )
        x = Axis("Place in the order", whole=True)
        caption = (
            "AR's decode time per token in each of its sessions, in the order in which they ran. A trend means that "
            "the machine changed during the study; ratios are taken within a block, so that it does not enter them."
        )
        y = Axis("Time per token", "ms", from_zero=True)
        figures.append(_figure(part, name, title, (x, y), panels, caption, category=TRUST, by_arm=False))
    return figures


def _drift_point(row: Row) -> Point:
    note = f"block {row['block']}" + (f", load {row['load_average']:.1f}" if row["load_average"] is not None else "")
    return Point(float(row["session_order"]), row["step_time_ms"], note=note, **place(row))


def losslessness(study: Study) -> list[Figure | Skipped]:
    """Share of requests with AR's own tokens."""
    name, title = "losslessness", "Requests with exactly AR's tokens"
    frame = study.table("losslessness").filter(pl.col("requests") > 0)
    if frame.is_empty():
        return [Skipped(name, title, "no request was compared with AR's of the same block")]
    figures: list[Figure | Skipped] = []
    for part in by_tensor_parallelism(frame):
        axis, panels = condition_panels(study, part.rows, _identical_point)
        caption = (
            "Share of requests whose tokens equal AR's of the same block exactly. Less than all is not yet a fault: "
            "floating-point sums differ with the batch shape, and the next figure shows whether that explains it."
        )
        y = Axis("Identical requests", "%", from_zero=True)
        figures.append(_figure(part, name, title, (axis, y), panels, caption, category=TRUST, kind="bars"))
    return figures


def _identical_point(row: Row, x: str) -> Point:
    note = f"{row['identical']} of {row['requests']} requests; {row['verdict'] or 'no verdict'}"
    return Point(x, 100 * row["identical"] / row["requests"], note=note, **place(row))


def divergence_margin(study: Study) -> list[Figure | Skipped]:
    """Margin at first differences against the noise floor."""
    name, title = "losslessness-margin", "How close the call was where tokens first differ"
    frame = study.table("losslessness").filter(pl.col("margin_max").is_not_null())
    if frame.is_empty():
        return [Skipped(name, title, "no arm's tokens differ anywhere from AR's, or no margin was scored")]
    figures: list[Figure | Skipped] = []
    for part in by_tensor_parallelism(frame):
        axis, panels = condition_panels(study, part.rows, lambda row, x: _margin_point(row, x, "margin_max"))
        panels = tuple(_with_floor(panel, part.rows, axis) for panel in panels)
        caption = (
            "Largest gap between the target's best and second-best token where an arm's output first differs from "
            "AR's. The floor is the same gap where AR, scored again by prefill, disagrees with itself: a correct arm "
            "stays near it."
        )
        y = Axis("Top-1 to top-2 margin", "nats", from_zero=True)
        figures.append(_figure(part, name, title, (axis, y), panels, caption, category=TRUST, kind="intervals"))
    return figures


def _margin_point(row: Row, x: str, column: str) -> Point | None:
    note = f"{row['diverged']} of {row['requests']} requests differ"
    return Point(x, row[column], note=note, **place(row)) if row[column] is not None else None


def _with_floor(panel: Panel, rows: list[Row], axis: Axis) -> Panel:
    floors: dict[str, Point] = {}
    for row in rows:
        full, short = condition_label(row["workload"], row["concurrency"]), f"c = {row['concurrency']}"
        x = full if full in (axis.categories or ()) else short
        in_panel = panel.title in {"", workload_label(row["workload"])}
        point = _margin_point(row, x, "floor_margin_max") if in_panel else None
        if point is not None and (x not in floors or point.y > floors[x].y):
            floors[x] = point
    floor = (Series("floor", FLOOR_STYLE, tuple(floors.values()), joined=False),) if floors else ()
    return Panel(panel.title, (*panel.series, *floor))
