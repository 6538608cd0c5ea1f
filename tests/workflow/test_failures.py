"""What fails is recorded, loses nothing that was finished, and is measured alone next time."""

import json

import pytest

from tests.workflow.conftest import Workbench, stub_config

pytestmark = pytest.mark.workflow


def test_a_failing_cell_leaves_a_record_an_interim_report_and_one_job(bench: Workbench) -> None:
    """Exit code not 0, all other cells finished; interim says so; the next run measures that cell alone."""
    bench.write_config(stub_config(blocks=1))
    bench.environment["DRAFTBENCH_STUB_FAIL"] = "dflash_tp1:http_500#code_c4"

    failed = bench.run()

    assert failed.code != 0
    assert len(bench.cell_files()) == 5
    record = json.loads(next(bench.results.glob("failures/*.json")).read_text())
    assert (record["arm"], record["workload"], record["concurrency"]) == ("dflash", "code", 4)
    assert "500" in record["message"]
    assert "snakemake interim" in failed.output

    interim = bench.run("interim")

    assert interim.code == 0, interim.output[-3000:]
    page = (bench.results / "interim" / "report.html").read_text()
    assert "INTERIM" in page
    assert record["failure_class"] in page

    del bench.environment["DRAFTBENCH_STUB_FAIL"]
    before = bench.cell_files()
    repaired = bench.run()

    assert repaired.code == 0, repaired.output[-3000:]
    assert repaired.jobs["measure"] == 1
    assert not {"launch", "warmup"} & repaired.jobs.keys()
    assert before.items() <= bench.cell_files().items()
    assert list(bench.results.glob("failures/*.json")) == []


def test_a_server_that_dies_at_start_fails_its_session_alone(bench: Workbench) -> None:
    """The other arms finish; the record holds the class and the end of the log."""
    bench.write_config(stub_config(blocks=1))
    bench.environment["DRAFTBENCH_STUB_FAIL"] = "ddtree-b8_tp1:die_at_start"

    failed = bench.run()

    assert failed.code != 0
    assert len(bench.cell_files()) == 4
    record = json.loads(next(bench.results.glob("failures/*.json")).read_text())
    assert record["stage"] == "launch"
    assert record["arm"] == "ddtree-b8"
    assert record["log_tail"]
