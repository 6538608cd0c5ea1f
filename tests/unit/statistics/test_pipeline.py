"""The three scripts that rules run, as processes of their own."""

import subprocess
import sys
from pathlib import Path

import polars as pl

from draftbench.tables import TABLES
from tests.unit.statistics.conftest import analysed
from tests.unit.statistics.study_factory import FactoryWorkload, Study, write_study

ROOT = Path(__file__).resolve().parents[3]


def _run(script: str, plan: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "workflow_scripts" / script), "--plan", str(plan), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=plan.parent)


WORKLOADS = (FactoryWorkload("code", conversations=3, concurrency=(1, 2)),)


def test_scripts_write_every_table(tmp_path: Path) -> None:
    """One after another, from any folder, without a word on stderr."""
    plan = write_study(tmp_path, Study(blocks=2, workloads=WORKLOADS)).plan_json
    runs = [_run(script, plan) for script in ("aggregate.py", "losslessness.py", "statistics.py")]
    assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * 3
    assert {path.stem for path in (tmp_path / "tables").glob("*.parquet")} == set(TABLES)


def test_gaps_are_refused_with_one_line_unless_interim(tmp_path: Path) -> None:
    """The line says how to get a report of the rest."""
    plan = write_study(tmp_path, Study(blocks=1, workloads=WORKLOADS, failed=(("dflash", 1, "code", 1),))).plan_json
    refused = _run("aggregate.py", plan)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "snakemake interim" in refused.stderr
    assert _run("aggregate.py", plan, "--interim").returncode == 0


def test_an_interim_study_is_judged_to_the_end(tmp_path: Path) -> None:
    """Every table exists although a cell failed; what it leaves untested says so."""
    tables = analysed(tmp_path, Study(blocks=2, workloads=WORKLOADS, failed=FAILED_DFLASH), interim=True)
    assert set(tables) == set(TABLES)
    lost = tables["speedups"].filter((pl.col("arm") == "dflash") & pl.col("primary") & (pl.col("concurrency") == 1))
    assert lost.select("verdict", "reason").rows() == [("not_tested", "dflash has no valid cell here")]


FAILED_DFLASH = tuple(("dflash", block, "code", 1) for block in (1, 2))


def test_statistics_without_aggregate_says_what_to_run(tmp_path: Path) -> None:
    """One line, no traceback."""
    plan = write_study(tmp_path, Study(blocks=1, workloads=(FactoryWorkload("code", conversations=2),))).plan_json
    run = _run("statistics.py", plan)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert "run `snakemake aggregate`" in run.stderr
