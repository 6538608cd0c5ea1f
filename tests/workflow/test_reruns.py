"""A rerun does what is missing and no more, in one invocation."""

import json
import shutil
from pathlib import Path

import pytest

from tests.workflow.conftest import Workbench, stub_config

pytestmark = pytest.mark.workflow

ANALYSIS = {"aggregate": 1, "losslessness": 1, "statistics": 1, "figures": 1, "report": 1}


def _then_nothing_to_do(bench: Workbench) -> None:
    after = bench.dry_run()
    assert after.code == 0
    assert after.jobs == {}, after.output[-3000:]


def test_a_finished_run_has_nothing_to_do(again: Workbench) -> None:
    """3 arms, 2 blocks, 2 cells each were measured; the next run starts no job."""
    assert len(again.cell_files()) == 12
    _then_nothing_to_do(again)


def test_a_deleted_cell_is_measured_alone(again: Workbench) -> None:
    """Exactly that measure job runs, and what follows from it."""
    victim = min(again.cell_files())
    shutil.rmtree(victim.parent)

    done = again.run()

    assert done.code == 0, done.output[-3000:]
    assert done.jobs == {"measure": 1, **ANALYSIS}
    assert victim.exists()
    _then_nothing_to_do(again)


def test_an_added_budget_comes_in_new_blocks_alone(again: Workbench) -> None:
    """Two new blocks of AR and the new tree; no finished cell is touched."""
    before = again.cell_files()
    content = stub_config()
    content["arms"][2]["draft_budgets"] = [8, 16]
    again.write_config(content)

    done = again.run()

    assert done.code == 0, done.output[-3000:]
    assert {rule: done.jobs[rule] for rule in ("launch", "warmup", "measure")} == {
        "launch": 4,
        "warmup": 4,
        "measure": 8,
    }
    after = again.cell_files()
    assert before.items() <= after.items()
    new = {
        path.parts[-3].split("-")[0] + "-" + path.parts[-3].split("block")[1][0]
        for path in after.keys() - before.keys()
    }
    assert new == {"ar_tp1_block3-3", "ar_tp1_block4-4", "ddtree-3", "ddtree-4"}
    _then_nothing_to_do(again)


def test_a_changed_flag_of_one_arm_measures_its_cells_alone(again: Workbench) -> None:
    """Another launch flag of DFlash: its 2 sessions with 2 cells each, in the same blocks."""
    before = again.cell_files()
    content = stub_config()
    content["arms"][1]["flags"] = {"stub-yield": 2.5}
    again.write_config(content)

    done = again.run()

    assert done.code == 0, done.output[-3000:]
    assert {rule: done.jobs[rule] for rule in ("launch", "warmup", "measure")} == {
        "launch": 2,
        "warmup": 2,
        "measure": 4,
    }
    new = again.cell_files().keys() - before.keys()
    assert {path.parts[-3].rsplit("-", 1)[0] for path in new} == {"dflash_tp1_block1", "dflash_tp1_block2"}
    _then_nothing_to_do(again)


def test_edited_figure_code_rebuilds_figures_and_report_alone(again: Workbench) -> None:
    """No measurement follows from an edited figure."""
    catalogue = again.folder / "draftbench" / "figures" / "catalogue.py"
    catalogue.write_text(catalogue.read_text() + "\n# edited\n")

    done = again.run()

    assert done.code == 0, done.output[-3000:]
    assert done.jobs == {"figures": 1, "report": 1}
    _then_nothing_to_do(again)


def test_a_changed_margin_judges_again_without_measuring(again: Workbench) -> None:
    """The margin enters the plan and what is judged by it, never a cell."""
    again.write_config(stub_config(statistics={"margin": 0.1}))

    done = again.run()

    assert done.code == 0, done.output[-3000:]
    assert done.jobs == {"plan": 1, **ANALYSIS}
    _then_nothing_to_do(again)


def test_results_copied_elsewhere_need_no_measurement(finished: Workbench, tmp_path: Path) -> None:
    """Without Snakemake's own records, files written in another order: analysis may run, no measurement does."""
    folder = tmp_path / "elsewhere"
    shutil.copytree(finished.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(".snakemake", "results"))
    for path in sorted(finished.folder.glob("results/**/*"), reverse=True):
        if path.is_file():
            target = folder / path.relative_to(finished.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    elsewhere = Workbench(folder, finished.mark, finished.environment)

    planned = elsewhere.dry_run()

    assert planned.code == 0
    assert not {"launch", "warmup", "measure"} & planned.jobs.keys(), planned.output[-3000:]


def test_a_changed_plan_is_written_without_snakemakes_records(again: Workbench) -> None:
    """Copied results lack `.snakemake`; a margin changed afterwards still reaches plan.json before the report."""
    shutil.rmtree(again.folder / ".snakemake")
    again.write_config(stub_config(statistics={"margin": 0.2, "max_client_lag_share": 100.0}))

    done = again.run()

    assert done.code == 0, done.output[-3000:]
    assert done.jobs["plan"] == 1
    assert not {"launch", "warmup", "measure"} & done.jobs.keys()
    assert json.loads((again.results / "plan" / "plan.json").read_text())["statistics"]["margin"] == 0.2


def test_a_dry_run_writes_no_results(bench: Workbench) -> None:
    """The plan can be looked at without leaving a trace among the results."""
    planned = bench.dry_run()

    assert planned.jobs["measure"] == 12
    assert not bench.results.exists()


def test_stale_lists_what_no_plan_wants_and_deletes_nothing(again: Workbench) -> None:
    """After DFlash left the config its two sessions are listed, and still there."""
    content = stub_config()
    del content["arms"][1]
    again.write_config(content)

    listed = again.run("stale")

    assert listed.code == 0, listed.output[-3000:]
    assert listed.output.count("/sessions/dflash_tp1_block") >= 2
    assert "/sessions/ar_tp1_block" not in listed.output
    assert len(again.cell_files()) == 12
