"""From cell folders to tables: what is read, what is refused and what is marked."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from draftbench.errors import ResultsError
from draftbench.layout import Layout
from draftbench.statistics.aggregate import aggregate
from draftbench.statistics.study_plan import read_plan
from draftbench.tables import TABLES
from tests.unit.statistics.conftest import Finished
from tests.unit.statistics.study_factory import FactoryWorkload, Study, write_study

SMALL = Study(blocks=2, workloads=(FactoryWorkload("code", conversations=2, output_tokens=20),))


def _aggregate(layout: Layout, interim: bool = False) -> dict[str, pl.DataFrame]:
    return aggregate(read_plan(layout.plan_json), layout, interim)


def _first_cell(layout: Layout) -> Path:
    cell = read_plan(layout.plan_json).cells[0]
    return layout.cell(cell.session, cell.cell)


def test_cells_agree_with_a_plain_recomputation(finished: Finished) -> None:
    """Every number of a cell, computed again by loops over the raw files."""
    layout, _, tables = finished
    picked = tables["cells"].filter(pl.col("arm") == "ddtree-b15", pl.col("concurrency") == 4).row(0, named=True)
    folder = layout.cell(picked["session"], picked["cell"])
    rows = pl.read_parquet(folder / "requests.parquet").to_dicts()
    chunks = pl.read_parquet(folder / "chunks.parquet").to_dicts()
    record = json.loads((folder / "cell.json").read_text())
    start, end = record["window_start_ns"], record["window_end_ns"]
    in_window = sum(chunk["new_tokens"] for chunk in chunks if start < chunk["time_ns"] <= end)
    decode = sum(row["last_token_ns"] - row["first_token_ns"] for row in rows)
    steps, accepted = (sum(row[key] for row in rows) for key in ("verify_steps", "accepted_drafts"))
    tokens = sum(row["completion_tokens"] for row in rows)
    whole = max(row["last_token_ns"] for row in rows) - min(row["sent_ns"] for row in rows)
    times: dict[int, list[int]] = {}
    for chunk in chunks:
        times.setdefault(chunk["request"], []).append(chunk["time_ns"])
    gaps = np.concatenate([np.diff(arrivals) for arrivals in times.values()]) / 1e6
    expected = {
        "requests": len(rows),
        "output_tokens": tokens,
        "throughput_window": in_window / ((end - start) / 1e9),
        "throughput_makespan": tokens / (whole / 1e9),
        "step_time_ms": decode / 1e6 / steps,
        "yield": (tokens - len(rows)) / steps,
        "acceptance_length": 1 + accepted / steps,
        "inter_chunk_p50_ms": np.median(gaps),
        "inter_chunk_p99_ms": np.quantile(gaps, 0.99),
        "ttft_p50_ms": np.median([(row["first_token_ns"] - row["sent_ns"]) / 1e6 for row in rows]),
    }
    assert {name: picked[name] for name in expected} == pytest.approx(expected)


def test_every_table_is_as_declared_with_csv_and_dictionary(finished: Finished) -> None:
    """Each declared table lies there as Parquet and CSV; the dictionary names every column; lists stay out of CSV."""
    layout, _, tables = finished
    assert set(tables) == set(TABLES)
    dictionary = json.loads((layout.root / "tables" / "data-dictionary.json").read_text())
    assert {name: [column["name"] for column in columns] for name, columns in dictionary.items()} == {
        name: [column.name for column in columns] for name, columns in TABLES.items()
    }
    with layout.table("requests").with_suffix(".csv").open() as file:
        header = next(csv.reader(file))
    assert "accept_histogram" not in header
    assert len(header) == len(TABLES["requests"]) - 1


def test_folders_outside_the_plan_are_never_read(tmp_path: Path) -> None:
    """A stale session beside the planned ones, even a corrupt one, changes nothing."""
    layout = write_study(tmp_path, SMALL)
    before = _aggregate(layout)
    stale = layout.session("ar_tp1_block9-00000000") / "code_c1-000000"
    shutil.copytree(_first_cell(layout), stale)
    (stale / "requests.parquet").write_text("garbage")
    after = _aggregate(layout)
    assert after["requests"].equals(before["requests"])


def test_missing_cells_are_refused_by_name(tmp_path: Path) -> None:
    """A final report never rests on part of the plan without saying so."""
    layout = write_study(tmp_path, SMALL)
    folder = _first_cell(layout)
    shutil.rmtree(folder)
    with pytest.raises(ResultsError, match=f"1 of 10 planned cells.*{folder.name} \\(missing\\)"):
        _aggregate(layout)


def test_interim_marks_what_is_missing_and_what_failed(tmp_path: Path) -> None:
    """Status and reason stand in cells, the record in failures, both in deviations."""
    study = Study(blocks=2, workloads=SMALL.workloads, failed=(("ddtree-b31", 1, "code", 1),))
    layout = write_study(tmp_path, study)
    plan = read_plan(layout.plan_json)
    gone = next(cell for cell in plan.cells if cell.arm == "dflash" and cell.block == 2)
    shutil.rmtree(layout.cell(gone.session, gone.cell))
    tables = _aggregate(layout, interim=True)
    marked = tables["cells"].filter(pl.col("status") != "measured").select("arm", "block", "status", "status_reason")
    assert sorted(marked.rows()) == [
        ("ddtree-b31", 1, "failed", "crash: the server died with signal 9"),
        ("dflash", 2, "missing", "not measured yet"),
    ]
    assert tables["failures"].select("arm", "stage", "failure_class").rows() == [("ddtree-b31", "measure", "crash")]
    assert tables["deviations"].height == 2
    assert tables["requests"].filter(pl.col("arm") == "dflash")["block"].unique().to_list() == [1]


def test_an_invalid_cell_counts_as_failed(tmp_path: Path) -> None:
    """A cell whose check did not pass is no evidence, though its rows are there."""
    layout = write_study(tmp_path, SMALL)
    path = _first_cell(layout) / "cell.json"
    record = json.loads(path.read_text())
    record["checks"].append({"name": "client_kept_up", "passed": False, "detail": "lag 12 ms"})
    path.write_text(json.dumps(record))
    with pytest.raises(ResultsError, match="failed"):
        _aggregate(layout)
    row = _aggregate(layout, interim=True)["cells"].filter(pl.col("status") == "failed").row(0, named=True)
    assert row["status_reason"] == "invalid: client_kept_up lag 12 ms"


@pytest.mark.parametrize("name", ["requests.parquet", "chunks.parquet", "cell.json"])
def test_corrupt_files_are_named(tmp_path: Path, name: str) -> None:
    """One line says which file and what to do."""
    layout = write_study(tmp_path, SMALL)
    path = _first_cell(layout) / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ResultsError, match=f"{name}: not .*delete the cell's folder"):
        _aggregate(layout)


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    """A file of an older schema does not pass as an empty column."""
    layout = write_study(tmp_path, SMALL)
    path = _first_cell(layout) / "requests.parquet"
    pl.read_parquet(path).drop("verify_steps").write_parquet(path)
    with pytest.raises(ResultsError, match="lacks the columns verify_steps"):
        _aggregate(layout)


def test_a_cell_of_other_conditions_is_refused(tmp_path: Path) -> None:
    """A folder is only a key; what it holds must be what the plan says."""
    layout = write_study(tmp_path, SMALL)
    path = _first_cell(layout) / "cell.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"concurrency": 16}))
    with pytest.raises(ResultsError, match="concurrency is 16, but the plan says 1"):
        _aggregate(layout)


def test_refused_arms_restarts_and_changed_plans_are_deviations(tmp_path: Path) -> None:
    """What did not go as planned is listed whatever its kind."""
    refusal = {"arm": "ddtree-b64", "method": "DDTREE", "tensor_parallelism": 1, "reason": "does not fit in memory"}
    layout = write_study(
        tmp_path, Study(blocks=2, workloads=(FactoryWorkload("code", concurrency=(1, 2)),), refusals=(refusal,))
    )
    path = _first_cell(layout) / "cell.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"instance_id": "other", "plan_sha256": "f" * 64}))
    tables = _aggregate(layout)
    happened = tables["deviations"]["happened"].to_list()
    assert happened[:2] == ["refused: does not fit in memory"] * 2
    assert "another version of the plan" in happened[2]
    assert "2 launches" in happened[3]
    refused = tables["cells"].filter(pl.col("status") == "refused")
    assert refused.select("arm", "method", "concurrency").rows() == [
        ("ddtree-b64", "DDTREE", 1),
        ("ddtree-b64", "DDTREE", 2),
    ]


def test_a_missing_or_broken_plan_is_one_line(tmp_path: Path) -> None:
    """The user is told which file and what to run."""
    with pytest.raises(ResultsError, match="there is no plan; run"):
        read_plan(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text('{"experiment": "x"}')
    with pytest.raises(ResultsError, match=r"plan\.json: lacks 'sessions'"):
        read_plan(tmp_path / "plan.json")
