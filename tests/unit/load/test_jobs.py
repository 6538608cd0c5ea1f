"""The jobs of a session from run file to files, with a lease on a live server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftbench.errors import LeaseError, MeasurementError, PlanError, ResultsError, ServerError
from draftbench.load import jobs
from draftbench.load.jobs import Lease, launch, measure, warm
from draftbench.load.run_file import PlannedSession, RunFile
from draftbench.load.served_instance import ServedInstance, device_names, redacted_environment
from draftbench.records import CellRecord, FailureRecord
from tests.unit.load.builders import CELL, SESSION, RunPlan, dialogue
from tests.unit.load.test_cell import MEASURED, instance
from tests.unit.load.tiny_server import TinyServer, served_in_thread

CALIBRATION = [dialogue("w", [1, 2, 3])]


@pytest.fixture
def run(tmp_path: Path) -> RunFile:
    """A planned session with one cell."""
    run = RunPlan(tmp_path, measured=MEASURED, calibration=CALIBRATION).build()
    run.layout.plan_json.parent.mkdir(parents=True)
    run.layout.plan_json.write_text("{}")
    return run


def lease_of(server: TinyServer) -> Lease:
    """A lease on one instance of this server, the same every time."""
    served = instance(server)

    @contextmanager
    def lease(_session: PlannedSession) -> Iterator[ServedInstance]:
        yield served

    return lease


def test_launch_records_what_was_started(run: RunFile, capsys: pytest.CaptureFixture[str]) -> None:
    """Command, settings and devices are there; the config's secrets are not; the user reads what happens."""
    session = run.sessions[SESSION].model_copy(update={"environment": {"HF_TOKEN": "sesame", "OMP_NUM_THREADS": "2"}})
    run = run.model_copy(update={"sessions": {SESSION: session}})
    output = run.layout.launch_record(SESSION)
    with served_in_thread(TinyServer()) as server:
        launch(run, SESSION, output, lease_of(server))
    record = json.loads(output.read_text())

    assert (record["arm"], record["instance_id"], record["engine_version"]) == ("dflash", "instance-1", "0.5.17")
    assert (record["ready_seconds"], record["devices"], record["command"][0]) == (1.5, ["cpu"], "python")
    assert record["environment"] == {"HF_TOKEN": "(redacted)", "OMP_NUM_THREADS": "2"}
    assert "sesame" not in output.read_text()
    printed = capsys.readouterr().err
    assert "launch DFlash, TP1, block 1 | 0 of 1 cells done, 1 left" in printed
    assert "ready in 2 s" in printed


def test_nothing_is_launched_without_a_plan(run: RunFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing plan.json is one line, and no lease is taken."""
    monkeypatch.setattr(jobs, "PLAN_PATIENCE_S", 0.0)
    run.layout.plan_json.unlink()
    with pytest.raises(PlanError, match="nothing is launched without a plan"):
        launch(run, SESSION, run.layout.launch_record(SESSION), lease_of(TinyServer()))


def test_warm_up_and_measure_share_a_warm_instance(run: RunFile) -> None:
    """Measuring after a warm-up sends the four measured requests and nothing else."""
    server = TinyServer()
    with served_in_thread(server):
        lease = lease_of(server)
        warm(run, SESSION, run.layout.warmup_record(SESSION), lease)
        warmed = server.calls
        measure(run, SESSION, CELL, run.layout.cell_record(SESSION, CELL), lease)

    assert warmed > 0
    assert server.calls == warmed + 4
    assert CellRecord.model_validate_json(run.layout.cell_record(SESSION, CELL).read_bytes()).valid
    assert json.loads(run.layout.warmup_record(SESSION).read_text())["instance_id"] == "instance-1"


def test_a_restarted_server_is_warmed_up_again(run: RunFile) -> None:
    """A cold instance gets its own record beside warmup.json, and only then the cell."""
    with served_in_thread(TinyServer()) as server:
        measure(run, SESSION, CELL, run.layout.cell_record(SESSION, CELL), lease_of(server))

    again = json.loads((run.layout.session(SESSION) / "warmup-instance-1.json").read_text())
    assert again["workloads"][0]["items"] == ["item-w"]


def test_a_failed_cell_leaves_a_record_that_success_removes(run: RunFile) -> None:
    """The record says class, message and log; the next, successful measurement takes it away."""
    (run.layout.root.parent / "server.log").write_text("line one\nline two\n")
    output, failure = run.layout.cell_record(SESSION, CELL), run.layout.failure(SESSION, CELL)
    broken = TinyServer(fault="http_500", faulty_call=5)
    with served_in_thread(broken), pytest.raises(MeasurementError):
        measure(run, SESSION, CELL, output, lease_of(broken))
    record = FailureRecord.model_validate_json(failure.read_bytes())
    assert not output.exists()

    with served_in_thread(TinyServer()) as server:
        measure(run, SESSION, CELL, output, lease_of(server))

    assert (record.stage, record.cell, record.failure_class) == ("measure", CELL, "incomplete")
    assert (record.workload, record.concurrency, record.arm) == ("code", 2, "dflash")
    assert "HTTP 500" in record.message
    assert record.log_tail == "line one\nline two\n"
    assert output.exists()
    assert not failure.exists()


@pytest.mark.parametrize(
    ("error", "failure_class", "tail"),
    [
        (ServerError("did not start", "out_of_memory", "CUDA out of memory"), "out_of_memory", "CUDA out of memory"),
        (LeaseError("no GPU"), "lease", ""),
    ],
)
def test_a_lease_that_fails_is_recorded(run: RunFile, error: Exception, failure_class: str, tail: str) -> None:
    """Launch failures have a file of their own, with the server's log where there is one."""

    @contextmanager
    def lease(_session: PlannedSession) -> Iterator[ServedInstance]:
        raise error
        yield

    with pytest.raises(type(error)):
        launch(run, SESSION, run.layout.launch_record(SESSION), lease)
    record = FailureRecord.model_validate_json(run.layout.failure(SESSION, "launch").read_bytes())

    assert (record.stage, record.cell, record.failure_class, record.log_tail) == ("launch", None, failure_class, tail)


def test_a_measured_prompt_in_the_calibration_set_is_refused(run: RunFile, tmp_path: Path) -> None:
    """A warm-up with a measured conversation would fill the cache that its cell must find empty."""
    run = RunPlan(tmp_path, measured=MEASURED, calibration=MEASURED[:1]).build()
    with served_in_thread(TinyServer()) as server, pytest.raises(MeasurementError, match="is measured"):
        warm(run, SESSION, run.layout.warmup_record(SESSION), lease_of(server))


def test_a_cell_is_written_in_its_place_only(run: RunFile, tmp_path: Path) -> None:
    """Another --output is a mistake of the rule."""
    with pytest.raises(ResultsError, match="is not this cell's place"):
        measure(run, SESSION, CELL, tmp_path / "cell.json", lease_of(TinyServer()))


def test_devices_are_named_by_uuid() -> None:
    """UUIDs where known, numbers where not, `cpu` for a CPU server whatever units it holds."""
    assert device_names("cuda", [(0, "GPU-1"), (3, None)]) == ("GPU-1", "gpu3")
    assert device_names("cpu", [(0, None)]) == ("cpu",)


def test_only_secrets_are_hidden() -> None:
    """A tokenizer is no token."""
    shown = {"TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "0", "SPECULATIVE_TOKEN_MAP": "x"}

    assert redacted_environment(shown) == shown
    assert set(redacted_environment({"HF_TOKEN": "a", "API_KEY": "b", "DB_PASSWORD": "c"}).values()) == {"(redacted)"}
