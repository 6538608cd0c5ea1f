"""Reads one measured cell and derives what every table is computed from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from draftbench.errors import ResultsError
from draftbench.layout import Layout
from draftbench.records import CHUNK_COLUMNS, REQUEST_COLUMNS, SCORE_COLUMNS, CellRecord
from draftbench.statistics.repetition import is_repetitive
from draftbench.statistics.study_plan import PlannedCell

CAPPED = "length"
"""The finish reason of a request that reached its cap."""


def read_cell_record(layout: Layout, planned: PlannedCell) -> CellRecord | None:
    """cell.json, or None where the cell has not been measured; ResultsError where it is not the planned cell."""
    path = layout.cell_record(planned.session, planned.cell)
    if not path.exists():
        return None
    try:
        record = CellRecord.model_validate(json.loads(path.read_text()))
    except (ValidationError, ValueError) as error:
        raise ResultsError(
            f"{path}: not a readable cell record ({_first_line(error)}); delete the cell's folder"
        ) from error
    for key, wanted in planned.condition.items():
        if key != "verify_width" and getattr(record, key) != wanted:
            raise ResultsError(f"{path}: {key} is {getattr(record, key)!r}, but the plan says {wanted!r}")
    return record


def read_requests(layout: Layout, planned: PlannedCell) -> pl.DataFrame:
    """Every request row of a cell as measured, output ids included."""
    return _read(layout.cell(planned.session, planned.cell) / "requests.parquet", REQUEST_COLUMNS)


def read_scores(layout: Layout, planned: PlannedCell) -> pl.DataFrame | None:
    """The prefill scores of an AR cell; None where the cell has none."""
    path = layout.cell(planned.session, planned.cell) / "scores.parquet"
    return _read(path, SCORE_COLUMNS) if path.exists() else None


def scan_chunks(layout: Layout, planned: PlannedCell) -> pl.LazyFrame:
    """The chunk rows of a cell, never held in memory as a whole."""
    path = layout.cell(planned.session, planned.cell) / "chunks.parquet"
    try:
        frame = pl.scan_parquet(path)
        _check_columns(path, frame.collect_schema().names(), CHUNK_COLUMNS)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _corrupt(path, error) from error
    return frame


def derive_metrics(requests: pl.DataFrame, method: str) -> pl.DataFrame:
    """Per-request metrics beside the recorded columns; a metric whose denominator is 0 or unknown is null."""
    steps = pl.col("decode_tokens") if method == "AR" else pl.col("verify_steps").cast(pl.Int64)
    outputs = requests["output_ids"]
    repetitive = [is_repetitive(ids.to_numpy()) if ids is not None else None for ids in outputs]
    return (
        requests.filter(pl.col("error").is_null())
        .with_columns(decode_tokens=(pl.col("completion_tokens") - pl.col("first_chunk_tokens")).cast(pl.Int64))
        .with_columns(
            steps=steps,
            ttft_ms=_span("sent_ns", "first_token_ns", 1e6),
            queue_ms=_span("due_ns", "sent_ns", 1e6),
            decode_time_s=_span("first_token_ns", "last_token_ns", 1e9),
            e2e_ms=_span("sent_ns", "last_token_ns", 1e6),
            turn_time_s=_span("due_ns", "last_token_ns", 1e9),
            capped=pl.col("finish_reason") == CAPPED,
            repetitive=pl.Series(repetitive, dtype=pl.Boolean).filter(requests["error"].is_null()),
        )
        .with_columns(
            decode_time_per_token_ms=_ratio(pl.col("decode_time_s") * 1e3, pl.col("decode_tokens")),
            step_time_ms=_ratio(pl.col("decode_time_s") * 1e3, pl.col("steps")),
            acceptance_length=1 + _ratio(pl.col("accepted_drafts"), pl.col("verify_steps")),
            **{"yield": _ratio(pl.col("decode_tokens"), pl.col("steps"))},
        )
    )


def chunk_summary(chunks: pl.LazyFrame, window: tuple[int, int] | None) -> Mapping[str, Any]:
    """Gaps between a request's chunks (ms) and output tokens inside the window (start, end], from one lazy pass."""
    start, end = window or (0, 0)
    inside = (pl.col("time_ns") > start) & (pl.col("time_ns") <= end)
    gap = pl.col("time_ns").sort_by("chunk").diff().over("request") / 1e6
    summary = chunks.select(
        inter_chunk_p50_ms=gap.median(),
        inter_chunk_p99_ms=gap.quantile(0.99, "linear"),
        window_tokens=pl.col("new_tokens").filter(inside).cast(pl.Int64).sum(),
    )
    return summary.collect(engine="streaming").row(0, named=True)


def _span(start: str, end: str, unit: float) -> pl.Expr:
    return (pl.col(end) - pl.col(start)) / unit


def _ratio(numerator: pl.Expr, denominator: pl.Expr) -> pl.Expr:
    return pl.when(denominator > 0).then(numerator / denominator)


def _read(path: Path, columns: Mapping[str, str]) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _corrupt(path, error) from error
    _check_columns(path, frame.columns, columns)
    return frame


def _check_columns(path: Path, found: list[str], wanted: Mapping[str, str]) -> None:
    missing = [column for column in wanted if column not in found]
    if missing:
        raise ResultsError(f"{path}: lacks the columns {', '.join(missing)}; delete the cell's folder and run again")


def _corrupt(path: Path, error: Exception) -> ResultsError:
    return ResultsError(
        f"{path}: not readable as Parquet ({_first_line(error)}); delete the cell's folder and run again"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
