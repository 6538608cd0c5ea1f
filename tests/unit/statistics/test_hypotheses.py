"""Answers to the config's claims."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from draftbench.statistics.hypotheses import hypotheses
from draftbench.statistics.study_plan import PlannedHypothesis, StudyPlan
from draftbench.statistics.table_writing import table_from_rows
from tests.unit.statistics.conftest import Finished


def _speedups(*rows: tuple[str, str, int, str]) -> pl.DataFrame:
    """(arm, baseline, tp, verdict)"""
    return table_from_rows(
        "speedups",
        [
            {"arm": arm, "method": "DDTREE", "baseline": baseline, "tensor_parallelism": tp, "workload": "code",
             "concurrency": 1, "primary": True, "estimate": 1.5, "low_adjusted": 1.2, "high_adjusted": 1.9,
             "verdict": verdict, "reason": "one block" if verdict == "not_tested" else None}
            for arm, baseline, tp, verdict in rows
        ],
    )  # fmt: skip


def _budgets(*best: int, exploratory: bool = False) -> pl.DataFrame:
    rows = [{"best_draft_budget": b, "workload": "code", "concurrency": 1, "exploratory": exploratory} for b in best]
    return table_from_rows("budgets", rows)


def _lossless(*verdicts: str) -> pl.DataFrame:
    return table_from_rows(
        "losslessness", [{"arm": "t", "workload": "code", "verdict": v, "reason": "why"} for v in verdicts]
    )


@pytest.fixture
def plan(finished: Finished) -> StudyPlan:
    """A plan with budgets 7, 15 and 31."""
    return finished[1]


def _answer(
    plan: StudyPlan, kind: str, arm: str | None = None, baseline: str | None = None, **tables: Any
) -> tuple[str, str]:
    claim = PlannedHypothesis("id", kind, arm, baseline, "A claim.")
    row = hypotheses(replace(plan, hypotheses=(claim,)), tables).row(0, named=True)
    return row["answer"], row["evidence"]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["faster", "faster"], "supported"),
        (["faster", "inconclusive"], "undecided"),
        (["faster", "slower"], "refuted"),
        (["not_tested", "not_tested"], "undecided"),
        (["faster", "not_tested"], "undecided"),
    ],
)
def test_faster_must_hold_everywhere(plan: StudyPlan, verdicts: list[str], expected: str) -> None:
    """One counterexample refutes, one open comparison leaves it open."""
    table = _speedups(*(("t", "ar", 1, verdict) for verdict in verdicts), ("t", "dflash", 1, "slower"))
    assert _answer(plan, "arm_faster_than", "t", "ar", speedups=table)[0] == expected


def test_evidence_gives_the_numbers(plan: StudyPlan) -> None:
    """Ratio, the interval that the verdict used, and where."""
    table = _speedups(("t", "ar", 1, "faster"))
    assert _answer(plan, "arm_faster_than", "t", None, speedups=table)[1] == "1.50 (1.20 to 1.90) on code at 1: faster"


def test_without_an_arm_every_tree_is_meant(plan: StudyPlan) -> None:
    """Two trees, one slower."""
    table = _speedups(("a", "ar", 1, "faster"), ("b", "ar", 1, "slower"))
    assert _answer(plan, "arm_faster_than", speedups=table)[0] == "refuted"


def test_survival_is_judged_at_the_highest_tp(plan: StudyPlan) -> None:
    """What happens at TP4 does not matter for a claim about TP8; one tp decides nothing."""
    both = _speedups(("t", "ar", 4, "inconclusive"), ("t", "ar", 8, "faster"))
    assert _answer(plan, "gain_survives_tp", "t", speedups=both)[0] == "supported"
    assert _answer(plan, "gain_survives_tp", "t", speedups=_speedups(("t", "ar", 4, "faster")))[0] == "undecided"


@pytest.mark.parametrize(("best", "expected"), [((15, 15), "supported"), ((7, 15), "undecided"), ((7, 31), "refuted")])
def test_best_budget_inside(plan: StudyPlan, best: tuple[int, ...], expected: str) -> None:
    """Inside everywhere, somewhere, nowhere."""
    assert _answer(plan, "best_budget_inside_sweep", budgets=_budgets(*best))[0] == expected


def test_exploratory_budgets_decide_nothing(plan: StudyPlan) -> None:
    """One block selects but cannot confirm."""
    answer, evidence = _answer(plan, "best_budget_inside_sweep", budgets=_budgets(15, exploratory=True))
    assert answer == "undecided"
    assert "exploratory" in evidence


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["identical", "within_noise"], "supported"),
        (["identical", "not_shown"], "undecided"),
        (["identical", "different"], "refuted"),
        ([], "undecided"),
    ],
)
def test_lossless(plan: StudyPlan, verdicts: list[str], expected: str) -> None:
    """One arm whose output differs refutes the claim."""
    assert _answer(plan, "lossless", losslessness=_lossless(*verdicts))[0] == expected


def test_live_history_is_undecided_without_live_sessions(plan: StudyPlan) -> None:
    """What was not measured is said."""
    assert _answer(plan, "live_predicted_by_frozen") == ("undecided", "the plan holds no sessions with live history")
