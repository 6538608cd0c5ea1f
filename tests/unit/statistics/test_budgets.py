"""Choosing a budget on one part of the data and reporting it on another."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from draftbench.statistics.budgets import cross_fit
from tests.unit.statistics.conftest import Finished, analysed
from tests.unit.statistics.study_factory import Study


def test_cross_fit_by_hand() -> None:
    """Each quarter reports the arm that the opposite quarter selects.

    a is best where block 2 meets conversation 2 (so (1, 1) reports a), b everywhere else.
    """
    logs = {"a": np.array([[0.5, 0.1], [0.1, 0.9]]), "b": np.array([[0.4, 0.2], [0.2, 0.3]])}
    fit = cross_fit(logs, np.array([0.5, 0.5]))
    assert fit.held_out is not None
    # (1,1) <- (2,2): a 0.5; (1,2) <- (2,1): b 0.2; (2,1) <- (1,2): b 0.2; (2,2) <- (1,1): a 0.9
    assert fit.held_out == pytest.approx(np.array([[0.5, 0.2], [0.2, 0.9]]))
    assert (fit.best, fit.exploratory) == ("a", False)


def test_luck_is_not_reported_as_gain() -> None:
    """Twenty arms of pure noise around 0: the best looks good, its held-out value does not."""
    random = np.random.default_rng(4)
    best, held_out = [], []
    for _ in range(200):
        logs = {str(arm): 0.1 * random.standard_normal((3, 6)) for arm in range(20)}
        fit = cross_fit(logs, np.full(6, 1 / 6))
        assert fit.held_out is not None
        best.append(logs[fit.best].mean())
        held_out.append(fit.held_out.mean())
    assert np.mean(best) > 0.03
    assert abs(np.mean(held_out)) < 0.01


def test_one_block_splits_conversations_and_is_exploratory() -> None:
    """With a single launch only prompts can be held out; with a single prompt too, nothing can."""
    one = cross_fit({"a": np.array([[0.5, 0.1]]), "b": np.array([[0.4, 0.2]])}, np.array([0.5, 0.5]))
    assert one.held_out == pytest.approx(np.array([[0.4, 0.1]]))
    assert one.exploratory
    assert cross_fit({"a": np.array([[0.5]]), "b": np.array([[0.4]])}, np.array([1.0])).held_out is None


def test_the_truly_best_budget_is_found_with_an_interval(finished: Finished) -> None:
    """Budget 15 is the factory's best on code; the interval holds the held-out speed-up."""
    code = finished[2]["budgets"].filter(pl.col("workload") == "code", pl.col("concurrency") == 1).row(0, named=True)
    assert (code["best_draft_budget"], code["exploratory"], code["reason"]) == (15, False, None)
    assert code["low"] < code["held_out_speedup"] < code["high"]


def test_one_block_study_gives_no_interval(tmp_path: Path) -> None:
    """The reason stands in the row."""
    table = analysed(tmp_path, Study(blocks=1))["budgets"]
    assert table["exploratory"].all()
    assert table["low"].null_count() == table.height
    assert table["reason"].null_count() == 0
