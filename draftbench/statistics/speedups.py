"""Ratios with verdicts: what the study was run for (decisions 9 and 10)."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from draftbench.statistics.comparisons import (
    Compared,
    Comparison,
    PlacePanels,
    compare,
    planned_comparisons,
    planned_places,
)
from draftbench.statistics.multiplicity import holm_levels
from draftbench.statistics.random_effects import Spread, crossed_bootstrap, p_value, ratio_interval
from draftbench.statistics.study_plan import StudyPlan
from draftbench.statistics.table_writing import table_from_rows

FASTER, SLOWER, INCONCLUSIVE, NOT_TESTED = "faster", "slower", "inconclusive", "not_tested"


@dataclass(frozen=True)
class Result:
    """A comparison on one measure, with its estimate."""

    comparison: Comparison
    measure: str
    compared: Compared

    @property
    def primary(self) -> bool:
        """Whether the result belongs to the family that shares one error rate."""
        return self.measure == self.comparison.primary_measure

    def spread(self, like_these: bool) -> Spread | None:
        """The spread that verdicts use, for prompts like these or for these; None where it cannot be estimated."""
        estimate = self.compared.estimate
        if estimate is None:
            return None
        return estimate.like_these_in_family if like_these else estimate.these_prompts

    def margin_p_value(self, margin: float, like_these: bool) -> float | None:
        """p of a true ratio inside the margin; None where nothing can be tested."""
        estimate, spread = self.compared.estimate, self.spread(like_these)
        if estimate is None or spread is None:
            return None
        return p_value(estimate.mean, spread, math.log1p(margin))


def speedups(plan: StudyPlan, requests: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Table speedups: every planned comparison on every measure, tested or with the reason why not."""
    results = []
    comparisons = planned_comparisons(plan)
    for place in planned_places(plan):
        panels = PlacePanels(place, requests, cells, plan.min_decode_tokens)
        for comparison in comparisons:
            if comparison.place == place:
                results += [Result(comparison, m, compare(panels, comparison, m)) for m in comparison.measures]
    return table_from_rows("speedups", judge(results, plan.margin, 1 - plan.confidence))


def judge(results: Sequence[Result], margin: float, alpha: float) -> list[dict[str, Any]]:
    """Rows with intervals at the family's levels; secondary measures get none, so they get no verdict either."""
    family = [result for result in results if result.primary]
    levels = {
        like_these: holm_levels([result.margin_p_value(margin, like_these) for result in family], alpha)
        for like_these in (True, False)
    }
    places = {id(result): index for index, result in enumerate(family)}
    rows = []
    for result in results:
        index = places.get(id(result))
        own = {like: None if index is None else levels[like][index] for like in levels}
        rows.append(_row(result, margin, alpha, own))
    return rows


def verdict(low: float | None, high: float | None, margin: float) -> str:
    """faster where the whole interval is above 1 + margin, slower where it is below 1 / (1 + margin)."""
    if low is None or high is None:
        return NOT_TESTED
    if low > 1 + margin:
        return FASTER
    return SLOWER if high < 1 / (1 + margin) else INCONCLUSIVE


def _row(result: Result, margin: float, alpha: float, levels: dict[bool, float | None]) -> dict[str, Any]:
    row = {
        **result.comparison.arm.condition,
        "baseline": result.comparison.baseline,
        "measure": result.measure,
        "primary": result.primary,
        "reason": result.compared.reason,
        "verdict": NOT_TESTED,
        "verdict_these_prompts": NOT_TESTED,
    }
    if result.compared.estimate is None:
        return row
    return {**row, **_estimate_columns(result, margin, alpha), **_verdict_columns(result, margin, levels)}


def _estimate_columns(result: Result, margin: float, alpha: float) -> dict[str, Any]:
    estimate, paired = result.compared.estimate, result.compared.paired
    assert estimate is not None
    assert paired is not None
    low, high = ratio_interval(estimate.mean, estimate.like_these, alpha)
    low_these, high_these = ratio_interval(estimate.mean, estimate.these_prompts, alpha)
    one_number_a_cell = paired.cells.shape[1] == 1
    resampled = None if one_number_a_cell else crossed_bootstrap(paired.cells, paired.weights, alpha, _seed(result))
    like = estimate.like_these
    return {
        "estimate": estimate.ratio,
        "low": low,
        "high": high,
        "blocks": estimate.blocks,
        "conversations": estimate.conversations,
        "low_these_prompts": low_these,
        "high_these_prompts": high_these,
        "low_bootstrap": math.exp(resampled[0]) if resampled else None,
        "high_bootstrap": math.exp(resampled[1]) if resampled else None,
        "p_value": p_value(estimate.mean, like) if like else None,
        "p_value_margin": result.margin_p_value(margin, like_these=True),
        "degrees_of_freedom": like.degrees_of_freedom if like else None,
        "turns": None if result.measure.startswith("throughput") else paired.turns,
    }


def _verdict_columns(result: Result, margin: float, levels: dict[bool, float | None]) -> dict[str, Any]:
    estimate = result.compared.estimate
    assert estimate is not None
    columns: dict[str, Any] = {}
    for like_these, suffix in ((True, ""), (False, "_these_prompts")):
        level = levels[like_these]
        spread = result.spread(like_these) if level is not None else None
        low, high = ratio_interval(estimate.mean, spread, level or 1.0)
        columns[f"low_adjusted{suffix}"], columns[f"high_adjusted{suffix}"] = low, high
        columns[f"verdict{suffix}"] = verdict(low, high, margin)
    return columns


def _seed(result: Result) -> int:
    place = result.comparison.place
    name = (result.comparison.arm.arm, result.comparison.baseline, result.measure)
    return zlib.crc32(repr((*name, place.tensor_parallelism, place.workload, place.concurrency)).encode())
