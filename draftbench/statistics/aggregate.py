"""The cells of the plan, and only those, as tidy tables."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic import ValidationError

from draftbench.errors import ResultsError
from draftbench.layout import Layout
from draftbench.records import CellRecord, FailureRecord
from draftbench.statistics.cell_files import (
    chunk_summary,
    derive_metrics,
    read_cell_record,
    read_requests,
    scan_chunks,
)
from draftbench.statistics.study_plan import PlannedCell, StudyPlan
from draftbench.statistics.table_writing import declared_schema, table_from_rows

NAMED_MISSING = 5
"""So many missing cells are named in the error; the rest are counted."""


@dataclass(frozen=True)
class CellOutcome:
    """A planned cell with what became of it."""

    planned: PlannedCell
    record: CellRecord | None
    failure: FailureRecord | None

    @property
    def status(self) -> str:
        """measured, failed, missing or refused."""
        if self.planned.refusal:
            return "refused"
        if self.record is not None and self.record.valid:
            return "measured"
        return "failed" if self.failure is not None or self.record is not None else "missing"

    @property
    def status_reason(self) -> str | None:
        """Why the cell is not measured; None where it is."""
        if self.planned.refusal:
            return self.planned.refusal
        if self.status == "measured":
            return None
        if self.failure is not None:
            return f"{self.failure.failure_class}: {self.failure.message}"
        if self.record is not None:
            broken = [f"{check.name} {check.detail}".strip() for check in self.record.checks if not check.passed]
            return f"invalid: {'; '.join(broken)}"
        return "not measured yet"


def aggregate(plan: StudyPlan, layout: Layout, interim: bool = False) -> dict[str, pl.DataFrame]:
    """Tables requests, cells, failures and deviations.

    ResultsError where a planned cell is missing or failed, unless `interim`, and where a file is corrupt.
    """
    outcomes = [_outcome(layout, planned) for planned in (*plan.cells, *plan.refused)]
    if not interim:
        _refuse_gaps(outcomes)
    requests, cells = [], []
    for outcome in outcomes:
        frame = _request_rows(layout, outcome) if outcome.status == "measured" else None
        cells.append(_cell_row(layout, outcome, frame))
        if frame is not None:
            requests.append(frame)
    schema = declared_schema("requests")
    return {
        "requests": pl.concat(requests) if requests else pl.DataFrame(schema=schema),
        "cells": table_from_rows("cells", cells),
        "failures": table_from_rows("failures", _failure_rows(layout, plan, outcomes)),
        "deviations": table_from_rows("deviations", _deviations(plan, outcomes)),
    }


def _outcome(layout: Layout, planned: PlannedCell) -> CellOutcome:
    if planned.refusal:
        return CellOutcome(planned, None, None)
    record = read_cell_record(layout, planned)
    failures = (_read_failure(layout, planned.session, name) for name in (planned.cell, "warmup", "launch"))
    return CellOutcome(planned, record, next((failure for failure in failures if failure is not None), None))


def _read_failure(layout: Layout, session: str, name: str) -> FailureRecord | None:
    path = layout.failure(session, name)
    if not path.exists():
        return None
    try:
        return FailureRecord.model_validate(json.loads(path.read_text()))
    except (ValidationError, ValueError) as error:
        raise ResultsError(f"{path}: not a readable failure record; delete it and run again") from error


def _refuse_gaps(outcomes: list[CellOutcome]) -> None:
    gaps = [outcome for outcome in outcomes if outcome.status in {"failed", "missing"}]
    if not gaps:
        return
    names = [f"{gap.planned.session}/{gap.planned.cell} ({gap.status})" for gap in gaps[:NAMED_MISSING]]
    more = f" and {len(gaps) - NAMED_MISSING} more" if len(gaps) > NAMED_MISSING else ""
    raise ResultsError(
        f"{len(gaps)} of {len(outcomes)} planned cells have no valid result: {', '.join(names)}{more}; "
        "run again to measure them, or `snakemake interim` for a report of the rest"
    )


def _request_rows(layout: Layout, outcome: CellOutcome) -> pl.DataFrame:
    planned, schema = outcome.planned, declared_schema("requests")
    assert outcome.record is not None
    conditions = {
        **planned.condition,
        "verify_width": outcome.record.verify_width or planned.verify_width,
        "session": planned.session,
        "cell": planned.cell,
        "block": planned.block,
        "session_order": planned.session_order,
    }
    derived = derive_metrics(read_requests(layout, planned), planned.method)
    literals = {name: pl.lit(value, dtype=schema[name]) for name, value in conditions.items()}
    return derived.with_columns(**literals).select(pl.col(name).cast(kind) for name, kind in schema.items())


def _cell_row(layout: Layout, outcome: CellOutcome, requests: pl.DataFrame | None) -> dict[str, Any]:
    planned, record = outcome.planned, outcome.record
    row: dict[str, Any] = {
        **planned.condition,
        "session": planned.session or None,
        "cell": planned.cell or None,
        "block": planned.block or None,
        "session_order": planned.session_order if planned.session else None,
        "status": outcome.status,
        "status_reason": outcome.status_reason,
    }
    if requests is None or record is None:
        return row
    return {
        **row,
        "verify_width": record.verify_width or planned.verify_width,
        "instance_id": record.instance_id,
        "loop_lag_p99_ms": record.loop_lag_p99_ms,
        "load_average": record.load_average,
        "temperature": record.temperature,
        **_request_summary(requests),
        **_stream_summary(layout, planned, record, requests),
    }


def _request_summary(requests: pl.DataFrame) -> dict[str, Any]:
    decode_ms = 1e3 * pl.col("decode_time_s").sum()
    stepped = pl.col("steps").is_not_null()
    steps = pl.col("steps").sum()
    return requests.select(
        requests=pl.len(),
        output_tokens=pl.col("completion_tokens").sum(),
        ttft_p50_ms=pl.col("ttft_ms").median(),
        ttft_p99_ms=pl.col("ttft_ms").quantile(0.99, "linear"),
        tpot_p50_ms=pl.col("decode_time_per_token_ms").median(),
        step_time_ms=pl.when(steps > 0).then(decode_ms / steps),
        acceptance_length=pl.when(pl.col("accepted_drafts").is_not_null().any() & (steps > 0)).then(
            1 + pl.col("accepted_drafts").sum() / steps
        ),
        cached_share=_share(pl.col("cached_tokens").sum(), pl.col("prompt_tokens").sum()),
        capped_share=pl.col("capped").mean(),
        repetitive_share=pl.col("repetitive").mean(),
        **{"yield": _share(pl.col("decode_tokens").filter(stepped).sum(), steps)},
    ).row(0, named=True)


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole)


def _stream_summary(layout: Layout, planned: PlannedCell, record: CellRecord, requests: pl.DataFrame) -> dict[str, Any]:
    window = None
    if record.window_start_ns is not None and record.window_end_ns is not None:
        window = (record.window_start_ns, record.window_end_ns)
    chunks = chunk_summary(scan_chunks(layout, planned), window)
    span_s = (pl.col("last_token_ns").max() - pl.col("sent_ns").min()) / 1e9
    duration: float | None = requests.select(span_s).item()
    return {
        "duration_s": duration,
        "throughput_window": chunks["window_tokens"] / ((window[1] - window[0]) / 1e9) if window else None,
        "throughput_makespan": int(requests["completion_tokens"].sum()) / duration if duration else None,
        "inter_chunk_p50_ms": chunks["inter_chunk_p50_ms"],
        "inter_chunk_p99_ms": chunks["inter_chunk_p99_ms"],
    }


def _failure_rows(layout: Layout, plan: StudyPlan, outcomes: list[CellOutcome]) -> Iterator[dict[str, Any]]:
    """Records of planned cells that are still without a valid result; one row a launch or warm-up that failed."""
    columns = [column for column in declared_schema("failures") if column != "cell"]
    seen = set()
    for outcome in outcomes:
        failure = outcome.failure
        if failure is None or outcome.status == "measured":
            continue
        key = (failure.session, failure.stage, failure.cell)
        if key not in seen:
            seen.add(key)
            yield {**{name: getattr(failure, name) for name in columns}, "cell": failure.cell}


def _deviations(plan: StudyPlan, outcomes: list[CellOutcome]) -> Iterator[dict[str, Any]]:
    for outcome in outcomes:
        planned, record = outcome.planned, outcome.record
        what = f"{planned.arm}, tp {planned.tensor_parallelism}, {planned.workload} at {planned.concurrency}"
        if planned.refusal:
            yield {"what": what, "planned": "measured", "happened": f"refused: {planned.refusal}"}
            continue
        what = f"{what}, block {planned.block}"
        if outcome.status != "measured":
            yield {"what": what, "planned": "measured", "happened": f"{outcome.status}: {outcome.status_reason}"}
        elif record is not None and record.completed_requests != record.planned_requests:
            happened = f"{record.completed_requests} completed"
            yield {"what": what, "planned": f"{record.planned_requests} requests", "happened": happened}
    yield from _changed_plans(plan, outcomes)
    yield from _restarts(outcomes)


def _changed_plans(plan: StudyPlan, outcomes: list[CellOutcome]) -> Iterator[dict[str, Any]]:
    recorded = [outcome.record.plan_sha256 for outcome in outcomes if outcome.record is not None]
    current = plan.sha256 or (recorded[0] if recorded else None)
    others = sum(sha256 != current for sha256 in recorded)
    if others:
        happened = f"{others} of {len(recorded)} cells were measured under another version of the plan"
        yield {"what": "the plan", "planned": "fixed before the first measurement", "happened": happened}


def _restarts(outcomes: list[CellOutcome]) -> Iterator[dict[str, Any]]:
    instances: dict[str, set[str]] = {}
    for outcome in outcomes:
        if outcome.record is not None:
            instances.setdefault(outcome.planned.session, set()).add(outcome.record.instance_id)
    for session, launches in instances.items():
        if len(launches) > 1:
            happened = f"{len(launches)} launches, so its cells do not share one launch effect"
            yield {"what": f"session {session}", "planned": "one server launch", "happened": happened}
