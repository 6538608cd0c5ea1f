"""Absolute levels over blocks, and acceptance by draft position."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from draftbench.statistics.acceptance import acceptance_by_position
from draftbench.statistics.levels import mean_over_blocks
from tests.unit.statistics.conftest import Finished


def test_acceptance_by_hand() -> None:
    """10 steps: 4 accept none, 3 one, 2 two, 1 three."""
    rows = list(acceptance_by_position(np.array([4.0, 3.0, 2.0, 1.0])))
    assert [row["marginal"] for row in rows] == pytest.approx([0.6, 0.3, 0.1])
    assert [row["conditional"] for row in rows] == pytest.approx([0.6, 0.5, 1 / 3])
    assert [row["position"] for row in rows] == [1, 2, 3]


def test_positions_never_reached_have_no_conditional() -> None:
    """Nothing accepted two drafts, so what would have followed is unknown."""
    rows = list(acceptance_by_position(np.array([5.0, 5.0, 0.0, 0.0])))
    assert [row["conditional"] for row in rows] == [0.5, 0.0, None]
    assert list(acceptance_by_position(np.array([0.0]))) == []


def test_marginals_sum_to_the_accepted_drafts_a_step(finished: Finished) -> None:
    """An identity between two tables: the sum over positions is the acceptance length less 1."""
    _, _, tables = finished
    mine = [pl.col("arm") == "dflash", pl.col("workload") == "json"]
    total = tables["acceptance"].filter(*mine)["marginal"].sum()
    requests = tables["requests"].filter(*mine)
    assert total == pytest.approx(requests["accepted_drafts"].sum() / requests["steps"].sum())


def test_level_is_a_geometric_mean_with_students_interval() -> None:
    """Three blocks: scipy's t interval of the logs."""
    values = [9.0, 10.0, 11.0]
    level = mean_over_blocks(values, 0.05)
    logs = np.log(values)
    low, high = stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs))
    assert level["estimate"] == pytest.approx((9 * 10 * 11) ** (1 / 3))
    assert (level["low"], level["high"]) == pytest.approx((math.exp(low), math.exp(high)))


def test_level_of_one_block_has_no_interval_and_of_none_no_estimate() -> None:
    """Each says why."""
    one, none = mean_over_blocks([5.0], 0.05), mean_over_blocks([], 0.05)
    assert one["estimate"] == pytest.approx(5)
    assert "low" not in one
    assert "one block" in one["reason"]
    assert none == {"blocks": 0, "reason": "not measured, or undefined for this arm"}


def test_ar_has_no_acceptance_length_and_a_yield_of_one(finished: Finished) -> None:
    """What is undefined for an arm is null with a reason."""
    _, _, tables = finished
    ar = tables["levels"].filter(pl.col("arm") == "ar", pl.col("workload") == "code", pl.col("concurrency") == 1)
    by_metric = {row["metric"]: row for row in ar.iter_rows(named=True)}
    assert by_metric["acceptance_length"]["estimate"] is None
    assert by_metric["acceptance_length"]["reason"]
    assert by_metric["yield"]["estimate"] == pytest.approx(1)
    assert by_metric["session_time_s"]["conversations"] == 6
