"""Why an arm is faster or slower: more tokens a step against dearer steps.

At concurrency 1 a turn's decode time per token is its step time divided by its yield, so that the speed-up is exactly
yield ratio x step-time ratio over the same turns.
"""

from typing import Any

import numpy as np
import polars as pl

from draftbench.statistics.comparisons import (
    STEPPED_DECODE_TIME,
    Comparison,
    PlacePanels,
    planned_comparisons,
    planned_places,
)
from draftbench.statistics.paired_panel import PairedCells, Panel
from draftbench.statistics.random_effects import LogEstimate, estimate_log_ratio, ratio_interval
from draftbench.statistics.study_plan import StudyPlan
from draftbench.statistics.table_writing import table_from_rows


def decomposition(plan: StudyPlan, requests: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Table decomposition: one row a planned comparison.

    Above concurrency 1 the product is the ratio of decode times, not of throughput.
    """
    rows = []
    comparisons = planned_comparisons(plan)
    for place in planned_places(plan):
        panels = PlacePanels(place, requests, cells, plan.min_decode_tokens)
        rows += [_row(panels, each, 1 - plan.confidence) for each in comparisons if each.place == place]
    return table_from_rows("decomposition", rows)


def _row(panels: PlacePanels, comparison: Comparison, alpha: float) -> dict[str, Any]:
    row: dict[str, Any] = {**comparison.arm.condition, "baseline": comparison.baseline}
    time, tokens, cost = (panels.panel(name) for name in (STEPPED_DECODE_TIME, "yield", "step_time_ms"))
    arm, baseline = comparison.arm.arm, comparison.baseline
    paired = [
        time.pair(baseline, arm) if time else None,
        tokens.pair(arm, baseline) if tokens else None,
        cost.pair(baseline, arm) if cost else None,
    ]
    if time is None or tokens is None or cost is None or any(pair is None for pair in paired):
        return {**row, "reason": f"no turn of {arm} and {baseline} that both can be paired and has its steps known"}
    speedup, yields, costs = (pair for pair in paired if pair is not None)
    yield_estimate = _yield_estimate(tokens, yields, comparison)
    cost_estimate = estimate_log_ratio(costs.cells, costs.weights, cost.launch_variance())
    yield_low, yield_high = ratio_interval(yield_estimate.mean, yield_estimate.like_these, alpha)
    cost_low, cost_high = ratio_interval(cost_estimate.mean, cost_estimate.like_these, alpha)
    return {
        **row,
        "speedup": float(_geometric(speedup)),
        "yield_ratio": yield_estimate.ratio,
        "yield_low": yield_low,
        "yield_high": yield_high,
        "step_time_ratio": cost_estimate.ratio,
        "step_time_low": cost_low,
        "step_time_high": cost_high,
        "reason": cost_estimate.reason,
    }


def _geometric(pair: PairedCells) -> float:
    return estimate_log_ratio(pair.cells, pair.weights, None).ratio


def _yield_estimate(panel: Panel, pair: PairedCells, comparison: Comparison) -> LogEstimate:
    """AR yields 1 by definition, so the launch variance of yields comes from the other arms, and no drift is shared."""
    launch = panel.launch_variance(remove_blocks=False, arms=lambda arm: not _never_drafts(panel, arm))
    launches = 1 if _never_drafts(panel, comparison.baseline) else 2
    return estimate_log_ratio(pair.cells, pair.weights, launch, launches_per_ratio=launches)


def _never_drafts(panel: Panel, arm: str) -> bool:
    logs = panel.logs[[row for row, (name, _) in enumerate(panel.sessions) if name == arm]]
    return bool((logs[~np.isnan(logs)] == 0).all())
