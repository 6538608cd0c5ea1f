"""How deep drafts are accepted: per position, pooled over all steps of a condition."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from draftbench.statistics.random_effects import Floats
from draftbench.statistics.study_plan import StudyPlan
from draftbench.statistics.table_writing import table_from_rows


def acceptance(plan: StudyPlan, requests: pl.DataFrame) -> pl.DataFrame:
    """Table acceptance: share of steps that accept at least j drafts, alone and given j - 1 were accepted."""
    keys = ["arm", "tensor_parallelism", "workload", "concurrency"]
    pooled = (
        requests.filter(pl.col("accept_histogram").is_not_null())
        .select(*keys, "accept_histogram", accepted=pl.int_ranges(pl.col("accept_histogram").list.len()))
        .explode("accept_histogram", "accepted")
        .group_by(*keys, "accepted")
        .agg(steps=pl.col("accept_histogram").cast(pl.Int64).sum())
    )
    histograms: dict[tuple[Any, ...], dict[int, int]] = {}
    for *key, accepted, steps in pooled.iter_rows():
        histograms.setdefault(tuple(key), {})[accepted] = steps
    rows = []
    for condition in plan.conditions:
        counts = histograms.get(tuple(condition.condition[name] for name in keys))
        if counts:
            histogram = np.array([counts.get(j, 0) for j in range(max(counts) + 1)], dtype=np.float64)
            rows += [{**condition.condition, **row} for row in acceptance_by_position(histogram)]
    return table_from_rows("acceptance", rows)


def acceptance_by_position(histogram: Floats) -> Iterator[dict[str, Any]]:
    """Rows for j = 1, 2, ... from the steps that accepted exactly 0, 1, 2, ... drafts; none without steps."""
    steps = float(histogram.sum())
    if steps == 0:
        return
    at_least = histogram[::-1].cumsum()[::-1]
    for j in range(1, len(histogram)):
        before = float(at_least[j - 1])
        yield {
            "position": j,
            "marginal": float(at_least[j]) / steps,
            "conditional": float(at_least[j]) / before if before > 0 else None,
            "steps": int(steps),
        }
