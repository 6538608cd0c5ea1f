"""What the page shows, as plain data: tiles, conclusions, charts, tables, failures."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from draftbench import sentences
from draftbench.figures import numbers
from draftbench.figures.altair_charts import panel_specs
from draftbench.figures.declaration import Figure, Panel, Skipped, Style
from draftbench.figures.scales import caption_of
from draftbench.figures.study import Study
from draftbench.labels import workload_label
from draftbench.report_content import flattened, plan_summary

Row = dict[str, Any]
MOST_TILES = 8
_SYMBOLS = {
    "circle": "●", "square": "■", "triangle-up": "▲", "diamond": "◆", "triangle-down": "▼", "cross": "✚",
    "triangle-right": "▶", "triangle-left": "◀",
}  # fmt: skip
_DARKEST = 0.42
_CELL_COLUMNS: tuple[tuple[str, str, bool], ...] = (
    ("arm", "Arm", False),
    ("workload", "Workload", False),
    ("concurrency", "c", True),
    ("tensor_parallelism", "TP", True),
    ("block", "Block", True),
    ("session_order", "Order", True),
    ("status", "Status", False),
    ("requests", "Requests", True),
    ("rate", "Tokens/s", True),
    ("ttft_p50_ms", "TTFT p50, ms", True),
    ("ttft_p99_ms", "TTFT p99, ms", True),
    ("tpot_p50_ms", "TPOT p50, ms", True),
    ("step_time_ms", "Step, ms", True),
    ("yield", "Yield", True),
    ("acceptance_length", "Acceptance length", True),
)


def page_content(study: Study, figures: Sequence[Figure], skipped: Sequence[Skipped]) -> dict[str, Any]:
    """Everything the template needs."""
    failures = study.table("failures").to_dicts()
    return {
        "experiment": study.experiment,
        "question": study.question or study.experiment,
        "answer": sentences.answer(study),
        "primary": study.label(study.primary_arm) if study.primary_arm else None,
        "tiles": _tiles(study),
        "conclusions": sentences.conclusions(study),
        "facts": _facts(study),
        "chips": _chips(study),
        "choices": _choices(study),
        "categories": _categories(figures),
        "charts": _charts(figures),
        "skipped": skipped,
        "speedups": _speedup_rows(study),
        "losslessness": _losslessness_rows(study),
        "hypotheses": study.table("hypotheses").to_dicts(),
        "cell_columns": _CELL_COLUMNS,
        "cells": _cells(study, failures),
        "failures": [_failure(study, row, place) for place, row in enumerate(failures)],
        "failures_known": "failures" not in study.absent,
        "deviations": sentences.deviations(study),
        "deviations_known": "deviations" not in study.absent,
        "plan_summary": plan_summary(study) if study.plan else "No plan.json was found beside the results.",
        "refusals": study.plan.get("refusals") or [],
        "provenance": flattened(study.provenance),
        "confidence": numbers.confidence_label(study.confidence),
        "margin": numbers.percent(study.margin),
        "absent": sorted(study.absent),
    }


def _tiles(study: Study) -> list[Row]:
    if study.primary_arm is None:
        return []
    rows = [row for row in sentences.main_rows(study, study.primary_arm) if row["estimate"] is not None]
    return [_tile(study, row) for row in rows[:MOST_TILES]]


def _tile(study: Study, row: Row) -> Row:
    words = numbers.interval(*sentences.interval_of(row), as_ratio=True)
    these = numbers.interval(*sentences.interval_of_these(row), as_ratio=True)
    return {
        "place": sentences.place_words(study, row),
        "value": numbers.ratio(row["estimate"]),
        "intervals": [
            text
            for text in (
                f"{words} for prompts like these" if words else "no interval",
                f"{these} for these prompts" if these else "",
            )
            if text
        ],
        "size": numbers.sample_size(row["blocks"], row["conversations"]),
        "claim": sentences.claim_of(row),
        "verdict": sentences.verdict_words(row),
    }


def _facts(study: Study) -> list[tuple[str, str]]:
    cells = study.table("cells")
    measured = cells.filter(pl.col("status") == "measured")
    tokens = measured["output_tokens"].sum()
    lossless = study.table("losslessness")
    same, total = int(lossless["identical"].sum()), int(lossless["requests"].sum())
    return [
        ("Cells measured", f"{measured.height:,} of {cells.height:,}"),
        ("Blocks", f"{cells['block'].n_unique():,}"),
        ("Output tokens", f"{tokens:,}" if measured.height else numbers.NOT_AVAILABLE),
        ("Identical to AR", f"{numbers.percent(same / total)} of {total:,}" if total else numbers.NOT_AVAILABLE),
        ("Failures", f"{study.table('failures').height:,}"),
    ]


def dark_variant(colour: str) -> str:
    """The colour, lightened until it stands out from a dark page."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    light = 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2]
    share = max(0.0, (_DARKEST - light) / (1 - light)) if light < _DARKEST else 0.0
    return "#" + "".join(f"{round((part + (1 - part) * share) * 255):02x}" for part in parts)


def _chip(key: str, style: Style) -> Row:
    return {
        "key": key,
        "label": style.label,
        "symbol": _SYMBOLS[style.marker],
        "light": style.colour,
        "dark": dark_variant(style.colour),
    }


def _chips(study: Study) -> list[Row]:
    return [_chip(key, style) for key, style in study.arm_styles().items()]


def _choices(study: Study) -> dict[str, list[tuple[str, str]]]:
    cells = study.table("cells")
    return {
        "workload": [(name, workload_label(name)) for name in sorted(cells["workload"].drop_nulls().unique())],
        "concurrency": [(str(value), str(value)) for value in sorted(cells["concurrency"].drop_nulls().unique())],
        "tensor_parallelism": [
            (str(value), f"TP{value}") for value in sorted(cells["tensor_parallelism"].drop_nulls().unique())
        ],
    }


def _categories(figures: Sequence[Figure]) -> list[tuple[str, list[Row]]]:
    names = list(dict.fromkeys(figure.category for figure in figures))
    return [(name, [_figure(figure) for figure in figures if figure.category == name]) for name in names]


def _figure(figure: Figure) -> Row:
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": caption_of(figure),
        "legend": [_chip(key, style) for key, style in figure.styles.items()],
        "by_arm": figure.by_arm,
        "panels": [
            {"id": f"{figure.name}-{place}", "title": panel.title, "about": _about(figure, panel)}
            for place, panel in enumerate(figure.panels)
        ],
        "wide": len(figure.panels) == 1,
    }


def _about(figure: Figure, panel: Panel) -> str:
    """What a screen reader says for the drawing: its points in words, where they are few."""
    texts = []
    for series in panel.series:
        for point in series.points:
            ends = numbers.interval(point.low, point.high)
            texts.append(
                f"{series.style.label} at {point.x}: {numbers.number(point.y)}" + (f" ({ends})" if ends else "")
            )
    head = f"{figure.title}{f', {panel.title}' if panel.title else ''}; {figure.y.label} by {figure.x.label}"
    return f"{head}. {'; '.join(texts)}" if len(texts) <= 24 else f"{head}; {len(texts)} points, listed in the tables"


def _charts(figures: Sequence[Figure]) -> dict[str, Any]:
    colours = {style.colour for figure in figures for style in figure.styles.values()}
    return {
        "dark": {colour: dark_variant(colour) for colour in sorted(colours)},
        "specs": {
            f"{figure.name}-{place}": spec for figure in figures for place, spec in enumerate(panel_specs(figure))
        },
    }


def _speedup_rows(study: Study) -> list[Row]:
    rows = sentences.main_rows(study) + [
        row for row in sentences.main_rows(study, baseline_method="DFLASH") if row["method"] == "DDTREE"
    ]
    return [
        {
            **row,
            "label": study.label(row["arm"]),
            "baseline_label": study.label(row["baseline"]),
            "workload_label": workload_label(row["workload"]),
            "measure_label": "output tokens/s" if row["measure"] == "throughput" else "decode time per token",
            "value": numbers.ratio(row["estimate"]),
            "interval": numbers.interval(*sentences.interval_of(row), as_ratio=True)
            or numbers.not_available(row["reason"]),
            "these": numbers.interval(*sentences.interval_of_these(row), as_ratio=True)
            or numbers.not_available(row["reason"]),
            "size": numbers.sample_size(row["blocks"], row["conversations"]),
            "claim": sentences.claim_of(row),
            "verdict_text": sentences.verdict_words(row),
        }
        for row in rows
    ]


def _losslessness_rows(study: Study) -> list[Row]:
    return [
        {
            **row,
            "label": study.label(row["arm"]),
            "workload_label": workload_label(row["workload"]),
            "margin": numbers.number(row["margin_max"]) if row["margin_max"] is not None else "none",
            "floor": numbers.number(row["floor_margin_max"]) if row["floor_margin_max"] is not None else "none",
            "verdict_text": (row["verdict"] or "not_shown").replace("_", " "),
        }
        for row in study.table("losslessness").sort("workload", "concurrency", "tensor_parallelism").to_dicts()
    ]


def _cells(study: Study, failures: Sequence[Row]) -> list[Row]:
    failed = {(row["session"], row["cell"]): place for place, row in enumerate(failures)}
    rows = study.table("cells").sort("session_order", "workload", "concurrency").to_dicts()
    return [_cell(study, row, failed) for row in rows]


def _cell(study: Study, row: Row, failed: dict[tuple[str, str | None], int]) -> Row:
    rate = row["throughput_window"] if row["throughput_window"] is not None else row["throughput_makespan"]
    values = {**row, "rate": rate}
    shown = []
    for name, _, numeric in _CELL_COLUMNS:
        value = values[name]
        text = _cell_text(study, name, value)
        shown.append({"name": name, "text": text, "sort": value if value is not None else "", "numeric": numeric})
    failure = failed.get((row["session"], row["cell"]), failed.get((row["session"], None)))
    return {
        "values": shown,
        "arm": row["arm"],
        "workload": row["workload"],
        "concurrency": row["concurrency"],
        "tensor_parallelism": row["tensor_parallelism"],
        "status": row["status"],
        "folder": f"sessions/{row['session']}/{row['cell']}/" if row["status"] == "measured" else None,
        "failure": failure if row["status"] != "measured" else None,
        "status_reason": row["status_reason"] or "",
    }


def _cell_text(study: Study, name: str, value: Any) -> str:
    if value is None:
        return "n/a"
    if name == "arm":
        return study.label(value)
    if name == "workload":
        return workload_label(value)
    return numbers.number(value) if isinstance(value, float) else str(value)


def _failure(study: Study, row: Row, place: int) -> Row:
    place_words = f" of {workload_label(row['workload'])}, c = {row['concurrency']}" if row["workload"] else ""
    where = f"{row['stage']}{place_words}"
    return {**row, "place": place, "label": study.label(row["arm"]) if row["arm"] else "not known", "where": where}
