"""Is the output still the model's own: first differences, the floor, verdicts, and planted faults."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from draftbench.layout import Layout
from draftbench.losslessness.divergence import Outputs, compare_outputs, first_difference, with_margins
from draftbench.losslessness.judgement import (
    Evidence,
    Floor,
    judge_greedy,
    length_p_value,
    rate_p_value,
    trend_p_value,
)
from draftbench.losslessness.table import losslessness
from draftbench.statistics.aggregate import aggregate
from draftbench.statistics.study_plan import StudyPlan, read_plan
from tests.unit.statistics.study_factory import FactoryWorkload, Study, with_arm, write_study

SMALL = Study(
    blocks=2,
    workloads=(
        FactoryWorkload("code", conversations=10, output_tokens=60, concurrency=(1, 4)),
        FactoryWorkload("json", conversations=10, output_tokens=60),
    ),
)
FLOOR = Floor(tokens=5000, disagreements=6, margin_max=0.05)


def _judge(root: Path, study: Study) -> pl.DataFrame:
    layout = write_study(root, study)
    plan = read_plan(layout.plan_json)
    return _losslessness(plan, layout)


def _losslessness(plan: StudyPlan, layout: Layout, interim: bool = False) -> pl.DataFrame:
    tables = aggregate(plan, layout, interim)
    return losslessness(plan, layout, tables["cells"], tables["requests"])


@pytest.mark.parametrize(
    ("ours", "theirs", "position"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 9, 3], [1, 2, 3], 1), ([1, 2], [1, 2, 3], 2), ([], [], None), ([9], [], 0)],
)
def test_first_difference(ours: list[int], theirs: list[int], position: int | None) -> None:
    """A missing token differs from any token."""
    assert first_difference(np.array(ours), np.array(theirs)) == position


def test_the_margin_is_ars_at_the_first_difference() -> None:
    """Request 7 of AR is the same prompt as request 0 of the arm; its margin at position 1 is 0.5 - 0.3."""
    columns = {"conversation": ["a"], "turn": [0], "tokens": [3], "repetitive": [False]}
    arm = Outputs(pl.DataFrame({**columns, "request": [0], "output_ids": [[1, 9, 9]]}))
    baseline = Outputs(pl.DataFrame({**columns, "request": [7], "output_ids": [[1, 2, 3]]}))
    scores = pl.DataFrame(
        {
            "request": [7, 7, 0],
            "position": [0, 1, 1],
            "top1_logprob": [0.0, -0.3, 0.0],
            "top2_logprob": [-9.0, -0.5, -5.0],
        }
    )
    row = with_margins(compare_outputs(arm, baseline), scores).row(0, named=True)
    assert (row["position"], row["margin"]) == (1, pytest.approx(0.2))


@pytest.mark.parametrize(
    ("evidence", "floor", "expected"),
    [
        (Evidence(0, 0, 0, 0, 0, None), FLOOR, "not_shown"),
        (Evidence(20, 1000, 0, 0, 0, None), FLOOR, "identical"),
        (Evidence(20, 1000, 0, 0, 0, None), None, "identical"),
        (Evidence(20, 1000, 2, 0, 0, 0.08), FLOOR, "within_noise"),
        (Evidence(20, 1000, 2, 0, 1, 0.4), FLOOR, "different"),
        (Evidence(20, 1000, 2, 0, 0, 0.02), None, "not_shown"),
        (Evidence(20, 1000, 2, 1, 0, 0.02), FLOOR, "not_shown"),
        # A floor without any disagreement: one small difference says nothing, a sure token lost says all.
        (Evidence(20, 1000, 1, 0, 1, 0.02), Floor(2000, 0, None), "not_shown"),
        (Evidence(20, 1000, 1, 0, 1, 2.5), Floor(2000, 0, None), "different"),
        # Ten differences in 1,000 tokens against none in 10,000 are no accident.
        (Evidence(20, 1000, 10, 0, 10, 0.02), Floor(10_000, 0, None), "different"),
        # In exact arithmetic a tie below 1e-4 nats may go either way.
        (Evidence(20, 1000, 1, 0, 0, 5e-5), Floor(2000, 0, None), "within_noise"),
    ],
)
def test_verdicts(evidence: Evidence, floor: Floor | None, expected: str) -> None:
    """Each with a sentence."""
    verdict, reason = judge_greedy(evidence, floor)
    assert verdict == expected
    assert len(reason) > 20


def test_floor_limit_is_twice_the_floor_and_at_least_the_exact_margin() -> None:
    """0.05 nats seen: 0.1; nothing seen: 1e-4."""
    assert FLOOR.limit == pytest.approx(0.1)
    assert Floor(100, 0, None).limit == pytest.approx(1e-4)


def test_rate_p_value_by_hand() -> None:
    """2 of 2 against 0 of 2: one of C(4, 2) = 6 tables."""
    assert rate_p_value(Evidence(2, 2, 2, 0, 2, 0.1), Floor(2, 0, None)) == pytest.approx(1 / 6)


def test_trend_by_hand() -> None:
    """0, 2, 4 of 10: T = 4, variance 0.2 x 0.8 x 20 = 3.2, z = 4 / sqrt(3.2) = 2.236."""
    assert trend_p_value([0, 2, 4], [10, 10, 10]) == pytest.approx(0.012674, abs=1e-6)
    falling = trend_p_value([4, 2, 0], [10, 10, 10])
    assert falling is not None
    assert falling > 0.98
    assert trend_p_value([0, 0], [10, 10]) is None
    assert trend_p_value([3], [10]) is None


def test_length_tests() -> None:
    """Ten answers shorter by 1 to 10 tokens: exact signed ranks give 2 / 2^10; equal lengths give 1."""
    ours = [20] * 10
    theirs = [20 + difference for difference in range(1, 11)]
    assert length_p_value(ours, theirs, paired=True) == pytest.approx(2 / 2**10)
    assert length_p_value([5, 6], [5, 6], paired=True) == 1.0
    assert length_p_value([], [], paired=False) is None


def test_exact_arithmetic_gives_identical(tmp_path: Path) -> None:
    """No close call is ever flipped: every arm is identical, and AR repeats itself over blocks."""
    table = _judge(tmp_path, replace(SMALL, noise_margin=0.0))
    assert set(table["verdict"]) == {"identical"}
    assert table["ar_ar_identical"].to_list() == table["ar_ar_requests"].to_list() == [10] * table.height
    assert table["requests"].to_list() == [20] * table.height
    assert table["length_p_value"].to_list() == [1.0] * table.height


def test_rounding_is_within_noise(tmp_path: Path) -> None:
    """Arms that leave AR only where the target is undecided are not blamed."""
    table = _judge(tmp_path, replace(SMALL, noise_margin=0.06))
    assert "within_noise" in set(table["verdict"]) <= {"identical", "within_noise"}
    assert table["margin_max"].max() < 0.06
    assert not table["leakage_suspected"].any()
    assert table["identical"].to_list() == (table["requests"] - table["diverged"]).to_list()


def test_a_leak_above_budget_16_is_found_and_named(tmp_path: Path) -> None:
    """Budget 31 leaves AR's tokens where the target is sure; 7 and 15 do not."""
    table = _judge(tmp_path, with_arm(replace(SMALL, noise_margin=0.06), "ddtree-b31", leaks=0.5))
    leaking = table.filter(pl.col("arm") == "ddtree-b31")
    assert set(leaking["verdict"]) == {"different"}
    assert leaking["leakage_suspected"].all()
    assert all("state leakage suspected" in reason for reason in leaking["reason"])
    others = table.filter(pl.col("arm") != "ddtree-b31")
    assert set(others["verdict"]) <= {"identical", "within_noise"}
    assert not others["leakage_suspected"].any()


def test_an_arm_that_repeats_itself_is_seen(tmp_path: Path) -> None:
    """Its outputs differ, are twice as long, and are marked by the detector; AR's are not."""
    table = _judge(tmp_path, with_arm(SMALL, "dflash", loops=True)).filter(pl.col("arm") == "dflash")
    for row in table.iter_rows(named=True):
        assert row["verdict"] == "different"
        assert row["repetitive_share"] > 0.9
        assert row["repetitive_share_ar"] == 0
        assert row["length_ratio"] == pytest.approx(2.0)
        assert row["length_p_value"] < 0.01


def test_sampled_output_is_not_judged_by_tokens(tmp_path: Path) -> None:
    """At temperature above 0 tokens differ by design; only lengths are compared."""
    table = _judge(tmp_path, replace(SMALL, temperature=0.8))
    assert set(table["verdict"]) == {"not_shown"}
    assert table["diverged"].null_count() == table.height
    assert table["length_ratio"].to_list() == pytest.approx([1.0] * table.height)


def test_without_scores_a_difference_is_not_excused(tmp_path: Path) -> None:
    """AR's scores are missing: what differs is not shown to be noise."""
    layout = write_study(tmp_path, replace(SMALL, noise_margin=0.06))
    for path in layout.root.glob("sessions/*/*/scores.parquet"):
        path.unlink()
    plan = read_plan(layout.plan_json)
    table = _losslessness(plan, layout)
    assert set(table.filter(pl.col("diverged") > 0)["verdict"]) == {"not_shown"}


def test_a_failed_arm_is_not_shown(tmp_path: Path) -> None:
    """No valid cell, no claim."""
    study = replace(SMALL, failed=tuple(("ddtree-b7", block, "json", 1) for block in (1, 2)))
    layout = write_study(tmp_path, study)
    plan = read_plan(layout.plan_json)
    table = _losslessness(plan, layout, interim=True)
    row = table.filter(pl.col("arm") == "ddtree-b7", pl.col("workload") == "json").row(0, named=True)
    assert (row["requests"], row["verdict"]) == (0, "not_shown")
