"""Which draft budget to use, chosen on one part of the data and reported on another.

The budget with the highest measured speed-up is partly the luckiest one; cross-fitting takes that bonus away.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from draftbench.statistics.comparisons import DECODE_TIME, RATES, THROUGHPUT, PlacePanels, planned_places
from draftbench.statistics.paired_panel import PairedCells, Panel, Place
from draftbench.statistics.random_effects import Floats, estimate_log_ratio, ratio_interval
from draftbench.statistics.study_plan import StudyPlan
from draftbench.statistics.table_writing import table_from_rows

FOLDS = 2
"""Halves of the conversations, every other one."""


@dataclass(frozen=True)
class CrossFit:
    """Held-out log speed-ups (blocks x conversations) of whatever budget the other data selected."""

    held_out: Floats | None
    best: str
    exploratory: bool


def budgets(plan: StudyPlan, requests: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Table budgets: the best tree at every place, against AR, with its cross-fitted speed-up."""
    places = [place for place in planned_places(plan) if len(_trees(plan, place)) > 1]
    rows = [_row(plan, PlacePanels(place, requests, cells, plan.min_decode_tokens), place) for place in places]
    return table_from_rows("budgets", rows)


def _trees(plan: StudyPlan, place: Place) -> dict[str, int | None]:
    return {
        cell.arm: cell.draft_budget
        for cell in plan.conditions
        if cell.method == "DDTREE"
        and (cell.tensor_parallelism, cell.workload, cell.concurrency)
        == (place.tensor_parallelism, place.workload, place.concurrency)
    }


def _row(plan: StudyPlan, panels: PlacePanels, place: Place) -> dict[str, Any]:
    trees, measure = _trees(plan, place), DECODE_TIME if place.concurrency == 1 else THROUGHPUT
    row: dict[str, Any] = {
        "tensor_parallelism": place.tensor_parallelism,
        "workload": place.workload,
        "concurrency": place.concurrency,
        "exploratory": True,
    }
    whole = panels.panel(measure)
    panel = whole.restrict([plan.baseline_arm, *trees]) if whole else None
    pairs = {tree: _pair(panel, tree, plan.baseline_arm, measure) for tree in trees} if panel else {}
    known = {tree: pair for tree, pair in pairs.items() if pair is not None}
    if panel is None or len(known) < len(trees):
        return {**row, "reason": "no block holds valid cells of AR and of every budget"}
    weights = next(iter(known.values())).weights
    fit = cross_fit({tree: pair.cells for tree, pair in known.items()}, weights)
    row |= {"best_arm": fit.best, "best_draft_budget": trees[fit.best], "exploratory": fit.exploratory}
    if fit.held_out is None:
        return {**row, "reason": "one block with one number an arm: nothing can be held out"}
    prompts = _prompts(panels, plan.baseline_arm, fit.best) if measure in RATES else None
    estimate = estimate_log_ratio(fit.held_out, weights, panel.launch_variance(), prompts=prompts)
    low, high = ratio_interval(estimate.mean, estimate.like_these, 1 - plan.confidence)
    return {**row, "held_out_speedup": estimate.ratio, "low": low, "high": high, "reason": estimate.reason}


def _pair(panel: Panel, tree: str, baseline: str, measure: str) -> PairedCells | None:
    return panel.pair(tree, baseline) if measure in RATES else panel.pair(baseline, tree)


def _prompts(panels: PlacePanels, baseline: str, tree: str) -> tuple[Floats, Floats] | None:
    panel = panels.panel(DECODE_TIME)
    pair = panel.pair(baseline, tree) if panel else None
    return (pair.cells, pair.weights) if pair else None


def cross_fit(logs: dict[str, Floats], weights: Floats) -> CrossFit:
    """Selects on other blocks and other conversations than it reports on; on fewer where there are no others.

    `logs` holds log speed-ups by arm, blocks x conversations, all of one shape.
    """
    arms = list(logs)
    stack = np.stack([logs[arm] for arm in arms])
    _, blocks, conversations = stack.shape
    half = np.arange(conversations) % FOLDS
    best = arms[int(np.argmax(stack.mean(axis=1) @ weights))]
    if blocks == 1 and conversations == 1:
        return CrossFit(None, best, exploratory=True)
    held_out = np.empty((blocks, conversations))
    for block in range(blocks):
        other_blocks = np.arange(blocks) != block if blocks > 1 else np.ones(1, dtype=bool)
        for fold in range(min(FOLDS, conversations)):
            others = half != fold if conversations > 1 else np.ones(1, dtype=bool)
            shares = weights[others] / weights[others].sum()
            selected = int(np.argmax(stack[:, other_blocks][:, :, others].mean(axis=1) @ shares))
            held_out[block, half == fold] = stack[selected, block, half == fold]
    return CrossFit(held_out, best, exploratory=blocks == 1)
