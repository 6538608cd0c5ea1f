"""Absolute levels: what a user of the arm sees, with an interval over launches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from draftbench.statistics.random_effects import ONE_BLOCK, Spread, ratio_interval
from draftbench.statistics.study_plan import PlannedCell, StudyPlan
from draftbench.statistics.table_writing import table_from_rows


@dataclass(frozen=True)
class LevelMetric:
    """A metric with one value a cell; `column` of table cells, or None where it is computed from requests."""

    name: str
    unit: str
    column: str | None


LEVEL_METRICS = (
    LevelMetric("ttft_ms", "ms", "ttft_p50_ms"),
    LevelMetric("tpot_ms", "ms", "tpot_p50_ms"),
    LevelMetric("throughput", "tokens/s", "throughput_window"),
    LevelMetric("yield", "tokens/step", "yield"),
    LevelMetric("acceptance_length", "tokens/step", "acceptance_length"),
    LevelMetric("step_time_ms", "ms", "step_time_ms"),
    LevelMetric("session_time_s", "s", None),
)


def levels(plan: StudyPlan, requests: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Table levels: per condition and metric the geometric mean over blocks of the cell's value.

    The interval is Student's over blocks on logs, so it speaks of these prompts and other launches.
    Throughput is that of the fixed-occupancy window, or of the whole cell where a block has no window.
    """
    measured = cells.filter(pl.col("status") == "measured")
    session_times = _session_times(requests)
    rows = []
    for condition in plan.conditions:
        mine = _of_condition(measured, condition)
        times = _of_condition(session_times, condition)
        rows += list(_condition_rows(condition, mine, times, 1 - plan.confidence))
    return table_from_rows("levels", rows)


def _condition_rows(
    condition: PlannedCell, cells: pl.DataFrame, times: pl.DataFrame, alpha: float
) -> Iterator[dict[str, Any]]:
    conversations = int(times["conversations"].max() or 0)  # type: ignore[arg-type]
    for metric in LEVEL_METRICS:
        values = times["session_time_s"] if metric.column is None else _values(cells, metric.column)
        yield {
            **condition.condition,
            "metric": metric.name,
            "unit": metric.unit,
            "conversations": conversations or None,
            **mean_over_blocks([float(value) for value in values if value is not None and value > 0], alpha),
        }


def mean_over_blocks(values: list[float], alpha: float) -> dict[str, Any]:
    """Geometric mean with a Student interval on logs; without an interval for one block, without a mean for none."""
    if not values:
        return {"blocks": 0, "reason": "not measured, or undefined for this arm"}
    logs = np.log(values)
    mean = float(logs.mean())
    if len(values) == 1:
        return {"estimate": math.exp(mean), "blocks": 1, "reason": ONE_BLOCK}
    spread = Spread(float(logs.var(ddof=1)) / len(values), len(values) - 1)
    low, high = ratio_interval(mean, spread, alpha)
    return {"estimate": math.exp(mean), "low": low, "high": high, "blocks": len(values)}


def _values(cells: pl.DataFrame, column: str) -> pl.Series:
    if column == "throughput_window" and cells[column].null_count():
        return cells["throughput_makespan"]
    return cells[column]


def _session_times(requests: pl.DataFrame) -> pl.DataFrame:
    """Mean session time of a conversation, per cell."""
    keys = ["arm", "tensor_parallelism", "workload", "concurrency", "block"]
    conversations = requests.group_by(*keys, "conversation").agg(pl.col("turn_time_s").sum())
    return conversations.group_by(keys).agg(session_time_s=pl.col("turn_time_s").mean(), conversations=pl.len())


def _of_condition(table: pl.DataFrame, condition: PlannedCell) -> pl.DataFrame:
    names = ("arm", "tensor_parallelism", "workload", "concurrency")
    wanted = [pl.col(name) == condition.condition[name] for name in names]
    return table.filter(*wanted).sort("block")
