"""Paired ratios, their intervals and verdicts."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from draftbench.statistics.speedups import speedups, verdict
from draftbench.statistics.study_plan import PlannedCell, StudyPlan
from draftbench.statistics.table_writing import table_from_rows
from tests.unit.statistics.conftest import Finished, analysed
from tests.unit.statistics.study_factory import FactoryArm, FactoryWorkload, Study, with_arm

ARMS = (("ar", "AR", None), ("dflash", "DFLASH", None), ("tree", "DDTREE", 15))


def _plan(blocks: int = 2, concurrency: int = 1, arms: tuple[tuple[str, str, int | None], ...] = ARMS) -> StudyPlan:
    cells = tuple(
        PlannedCell(f"{arm}{block}", "c", arm, method, budget, 1, 1, block, 0, "code", concurrency)
        for block in range(1, blocks + 1)
        for arm, method, budget in arms
    )
    return StudyPlan("x", "tree", 0.03, 0.95, 8, (), cells, ())


def _tables(plan: StudyPlan, times: dict[tuple[str, int, str, int], float], **changes: Any) -> list[pl.DataFrame]:
    """Requests with a decode time per token (ms) by (arm, block, conversation, turn), and the plan's cells."""
    requests = [
        {
            "arm": arm,
            "method": next(cell.method for cell in plan.cells if cell.arm == arm),
            "tensor_parallelism": 1,
            "workload": "code",
            "concurrency": plan.cells[0].concurrency,
            "block": block,
            "conversation": conversation,
            "turn": turn,
            "decode_tokens": 20,
            "decode_time_per_token_ms": value,
            "ttft_ms": 10 * value,
            "turn_time_s": value,
            **changes,
        }
        for (arm, block, conversation, turn), value in times.items()
    ]
    cells = [{**cell.condition, "block": cell.block, "status": "measured"} for cell in plan.cells]
    return [table_from_rows("requests", requests), table_from_rows("cells", cells)]


def _times(ratios: dict[str, list[list[float]]]) -> dict[tuple[str, int, str, int], float]:
    """AR takes 12 ms a token everywhere; an arm 12 / ratio[block][conversation]."""
    return {
        (arm, block, f"c{conversation}", 0): 12.0 / ratio
        for arm, rows in ratios.items()
        for block, row in enumerate(rows, start=1)
        for conversation, ratio in enumerate(row)
    }


def _one(table: pl.DataFrame, arm: str, baseline: str, measure: str = "decode_time_per_token") -> dict[str, Any]:
    return table.filter(pl.col("arm") == arm, pl.col("baseline") == baseline, pl.col("measure") == measure).row(
        0, named=True
    )


RATIOS = {
    "ar": [[1.0, 1.0], [1.0, 1.0]],
    "dflash": [[1.5, 1.5], [1.5, 1.5]],
    "tree": [[2.0, 2.5], [2.2, 2.4]],
}


def test_estimates_are_geometric_means_of_paired_ratios() -> None:
    """Against AR (2 x 2.5 x 2.2 x 2.4)^(1/4); against DFlash the same over 1.5."""
    plan = _plan()
    table = speedups(plan, *_tables(plan, _times(RATIOS)))
    expected = (2.0 * 2.5 * 2.2 * 2.4) ** 0.25
    assert _one(table, "tree", "ar")["estimate"] == pytest.approx(expected)
    assert _one(table, "tree", "dflash")["estimate"] == pytest.approx(expected / 1.5)
    assert _one(table, "dflash", "ar")["estimate"] == pytest.approx(1.5)
    assert (_one(table, "tree", "ar")["blocks"], _one(table, "tree", "ar")["conversations"]) == (2, 2)
    assert table.filter(pl.col("primary")).height == 3


def test_interval_for_these_prompts_by_hand() -> None:
    """Two arms, two blocks: the half-difference of block means with 1 df, t = 12.7062."""
    plan = _plan(arms=(ARMS[0], ARMS[2]))
    table = speedups(plan, *_tables(plan, _times({"ar": RATIOS["ar"], "tree": RATIOS["tree"]})))
    row = _one(table, "tree", "ar")
    blocks = [math.log(2.0 * 2.5) / 2, math.log(2.2 * 2.4) / 2]
    half = 12.7062047 * abs(blocks[0] - blocks[1]) / 2
    middle = sum(blocks) / 2
    assert row["low_these_prompts"] == pytest.approx(math.exp(middle - half))
    assert row["high_these_prompts"] == pytest.approx(math.exp(middle + half))


def test_short_turns_are_dropped_in_all_blocks() -> None:
    """A turn under 8 decode tokens in one block of one arm leaves the pair everywhere; session time keeps it."""
    plan = _plan()
    requests, cells = _tables(plan, _times(RATIOS))
    short = (pl.col("arm") == "tree") & (pl.col("block") == 1) & (pl.col("conversation") == "c1")
    requests = requests.with_columns(decode_tokens=pl.when(short).then(7).otherwise(pl.col("decode_tokens")))
    table = speedups(plan, requests, cells)
    assert _one(table, "tree", "ar")["estimate"] == pytest.approx((2.0 * 2.2) ** 0.5)
    assert _one(table, "tree", "ar")["conversations"] == 1
    assert _one(table, "tree", "ar", "session_time")["conversations"] == 2


def test_blocks_pair_only_with_themselves() -> None:
    """The machine slows down by half in block 2: no ratio changes."""
    plan = _plan()
    slowed = {key: value * (1.5 if key[1] == 2 else 1.0) for key, value in _times(RATIOS).items()}
    table, same = (speedups(plan, *_tables(plan, times)) for times in (slowed, _times(RATIOS)))
    assert table["estimate"].to_list() == pytest.approx(same["estimate"].to_list())
    assert table["low"].to_list() == pytest.approx(same["low"].to_list())


def test_throughput_is_the_ratio_in_the_window_paired_by_block() -> None:
    """Windows of 100 and 110 tokens/s for AR, 150 and 176 for the tree: (1.5 x 1.6)^(1/2)."""
    plan = _plan(concurrency=4, arms=(ARMS[0], ARMS[2]))
    requests, cells = _tables(plan, _times({"ar": RATIOS["ar"], "tree": RATIOS["tree"]}))
    rates = {("ar", 1): 100.0, ("ar", 2): 110.0, ("tree", 1): 150.0, ("tree", 2): 176.0}
    column = [rates[row] for row in cells.select("arm", "block").rows()]
    cells = cells.with_columns(throughput_window=pl.Series(column))
    row = _one(speedups(plan, requests, cells), "tree", "ar", "throughput")
    assert row["estimate"] == pytest.approx((1.5 * 1.6) ** 0.5)
    assert (row["primary"], row["blocks"], row["conversations"]) == (True, 2, 2)
    half = 12.7062047 * abs(math.log(1.6 / 1.5)) / 2
    assert row["high_these_prompts"] == pytest.approx(math.exp(math.log(2.4) / 2 + half))


def test_no_window_is_a_reason_not_a_number() -> None:
    """Without a window of full occupancy throughput is not tested."""
    plan = _plan(concurrency=4)
    row = _one(speedups(plan, *_tables(plan, _times(RATIOS))), "tree", "ar", "throughput")
    assert (row["estimate"], row["verdict"]) == (None, "not_tested")
    assert "window" in row["reason"]


def test_one_block_is_never_judged() -> None:
    """An estimate stands there, without interval or verdict, and with the reason."""
    plan = _plan(blocks=1)
    row = _one(speedups(plan, *_tables(plan, _times({arm: rows[:1] for arm, rows in RATIOS.items()}))), "tree", "ar")
    assert row["estimate"] == pytest.approx(5**0.5)
    assert (row["low"], row["low_these_prompts"], row["verdict"]) == (None, None, "not_tested")
    assert "one block" in row["reason"]


def test_an_arm_without_cells_is_listed_with_its_reason() -> None:
    """The family holds every planned comparison, also those that could not be made."""
    plan = _plan()
    requests, cells = _tables(plan, _times({name: RATIOS[name] for name in ("ar", "dflash")}))
    cells = cells.with_columns(status=pl.when(pl.col("arm") == "tree").then(pl.lit("failed")).otherwise("status"))
    row = _one(speedups(plan, requests, cells), "tree", "ar")
    assert (row["estimate"], row["verdict"], row["reason"]) == (None, "not_tested", "tree has no valid cell here")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.04, 1.2, "faster"),
        (1.02, 1.2, "inconclusive"),
        (0.8, 0.96, "slower"),
        (0.8, 0.98, "inconclusive"),
        (None, None, "not_tested"),
    ],
)
def test_verdict_needs_the_whole_interval_beyond_the_margin(
    low: float | None, high: float | None, expected: str
) -> None:
    """At a margin of 3 % the limits are 1.03 and 1 / 1.03 = 0.9709."""
    assert verdict(low, high, 0.03) == expected


def test_the_adjusted_interval_is_wider_and_agrees_with_the_verdict(finished: Finished) -> None:
    """Familywise intervals contain the plain ones; each verdict can be read off its interval."""
    table = finished[2]["speedups"].filter(pl.col("primary"))
    for row in table.iter_rows(named=True):
        assert row["low_adjusted"] <= row["low"] * (1 + 1e-9)
        assert row["high_adjusted"] >= row["high"] * (1 - 1e-9)
        beyond = row["low_adjusted"] > 1.03 or row["high_adjusted"] < 1 / 1.03
        assert (row["verdict"] in {"faster", "slower"}) == beyond
        assert row["low_adjusted_these_prompts"] >= row["low_adjusted"] * (1 - 1e-9)
    assert {"faster", "inconclusive"} <= set(table["verdict"])


def test_secondary_measures_have_intervals_but_no_verdict(finished: Finished) -> None:
    """What is outside the family is described, not judged."""
    rest = finished[2]["speedups"].filter(~pl.col("primary"))
    assert set(rest["verdict"]) == {"not_tested"}
    assert rest["low"].null_count() == 0


STEADY = Study(
    arms=(
        FactoryArm("ar", "AR"),
        FactoryArm("dflash", "DFLASH", verify_width=8, acceptance=0.0, step_cost=1.0),
        FactoryArm("ddtree-b15", "DDTREE", 15, 16, acceptance=0.0, step_cost=1.0),
    ),
    workloads=(FactoryWorkload("code", conversations=8, output_tokens=80),),
    blocks=4,
    launch_spread=0.002,
)
"""Arms that draft nothing and cost nothing: every true ratio is 1."""


def test_equal_arms_are_not_told_apart(tmp_path: Path) -> None:
    """No verdict for or against an arm that is AR in all but name."""
    table = analysed(tmp_path, STEADY)["speedups"].filter(pl.col("primary"))
    assert set(table["verdict"]) == {"inconclusive"}
    assert table["estimate"].to_list() == pytest.approx([1.0] * table.height, abs=0.01)


def test_a_planted_slowdown_is_found_at_its_size(tmp_path: Path) -> None:
    """Steps 6 % dearer, nothing accepted: slower than AR by 1/1.06 and by as much than DFlash."""
    table = analysed(tmp_path, replace(with_arm(STEADY, "ddtree-b15", step_cost=1.06), seed=1))["speedups"]
    for baseline in ("ar", "dflash"):
        row = _one(table, "ddtree-b15", baseline)
        assert row["verdict"] == "slower"
        assert row["low"] < 1 / 1.06 < row["high"]


def test_arms_added_later_pair_within_their_own_blocks() -> None:
    """An arm of blocks 3 and 4 has two blocks, whatever AR has."""
    cells = tuple(
        PlannedCell(f"{arm}{block}", "c", arm, method, budget, 1, 1, block, 0, "code", 1)
        for block in (1, 2, 3, 4)
        for arm, method, budget in (ARMS[0], ARMS[1] if block < 3 else ARMS[2])
    )
    plan = replace(_plan(), cells=cells)
    times = {(cell.arm, cell.block, c, 0): 12.0 - cell.block for cell in cells for c in ("c0", "c1")}
    row = _one(speedups(plan, *_tables(plan, times)), "tree", "ar")
    assert (row["blocks"], row["estimate"]) == (2, pytest.approx(1.0))
    assert row["degrees_of_freedom"] == pytest.approx(2)
