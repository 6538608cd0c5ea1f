"""Speed-up as yield ratio times step-time ratio."""

import numpy as np
import polars as pl
import pytest

from tests.unit.statistics.conftest import Finished


def test_speedup_is_exactly_yield_times_step_time(finished: Finished) -> None:
    """The identity of decision 9, for every comparison and concurrency, to rounding."""
    table = finished[2]["decomposition"]
    product = (table["yield_ratio"] * table["step_time_ratio"]).to_numpy()
    assert product == pytest.approx(table["speedup"].to_numpy(), rel=1e-12)


def test_it_decomposes_the_speedup_that_is_reported(finished: Finished) -> None:
    """At concurrency 1 the product is the estimate of table speedups."""
    _, _, tables = finished
    keys = ["arm", "baseline", "workload", "concurrency"]
    decode = tables["speedups"].filter(pl.col("measure") == "decode_time_per_token")
    joined = decode.join(tables["decomposition"], on=keys)
    assert joined.height == decode.height > 0
    assert joined["speedup"].to_numpy() == pytest.approx(joined["estimate"].to_numpy(), rel=1e-12)


def test_parts_agree_with_a_plain_recomputation(finished: Finished) -> None:
    """Tree against DFlash on json: geometric means over turns of yields and step times, by loops."""
    _, _, tables = finished
    rows = tables["requests"].filter(pl.col("workload") == "json")
    by = {(r["arm"], r["block"], r["conversation"]): r for r in rows.iter_rows(named=True)}
    units = [(b, c) for arm, b, c in by if arm == "ar"]
    tree = [by["ddtree-b15", b, c] for b, c in units]
    chain = [by["dflash", b, c] for b, c in units]
    yields = np.log([t["yield"] / d["yield"] for t, d in zip(tree, chain, strict=True)]).mean()
    costs = np.log([d["step_time_ms"] / t["step_time_ms"] for t, d in zip(tree, chain, strict=True)]).mean()
    row = tables["decomposition"].filter(
        pl.col("arm") == "ddtree-b15", pl.col("baseline") == "dflash", pl.col("workload") == "json"
    )
    assert row["yield_ratio"].item() == pytest.approx(np.exp(yields))
    assert row["step_time_ratio"].item() == pytest.approx(np.exp(costs))


def test_step_costs_of_the_factory_are_recovered(finished: Finished) -> None:
    """The tree's steps truly cost 1.30 of AR's: the interval holds 1 / 1.30."""
    table = finished[2]["decomposition"].filter(
        pl.col("arm") == "ddtree-b15", pl.col("baseline") == "ar", pl.col("concurrency") == 1
    )
    for row in table.iter_rows(named=True):
        assert row["step_time_low"] < 1 / 1.30 < row["step_time_high"]
        assert row["step_time_high"] / row["step_time_low"] < 1.1
