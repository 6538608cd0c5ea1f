"""Cells against the stub server in a process of its own, reached by a real lease or directly, with planted failures."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from draftbench.errors import DraftbenchError, MeasurementError, ServerError
from draftbench.load.jobs import launch, measure, warm
from draftbench.load.run_file import PlannedSession, RunFile
from draftbench.load.served_instance import ServedInstance
from draftbench.records import CellRecord, FailureRecord
from draftbench.servers.gpu_blocks import pseudo_devices
from draftbench.servers.leases import stop_all
from draftbench.servers.processes import ProcessIdentity
from draftbench.servers.server_spec import RunContext, ServerSpec
from tests.unit.load.builders import CELL, SESSION, RunPlan, dialogue

PROJECT = Path(__file__).parents[3]
STUB = PROJECT / "tests" / "fakes" / "stub_server.py"
PROMPTS = {name: [number, *range(100, 130)] for number, name in enumerate("abcd", start=1)}
MEASURED = [dialogue("a", PROMPTS["a"], [*PROMPTS["a"], *range(200, 230)], delays=[0, 30], cap=32)]
MEASURED += [dialogue(name, PROMPTS[name], cap=32) for name in "bcd"]
CALIBRATION = [dialogue("w", range(300, 330))]
DDTREE_FLAGS = ("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "15")
FAST = ("--stub-prefill-ms", "1", "--stub-step-ms", "2", "--incremental-streaming-output")


def planned(folder: Path, method: str, hang_timeout: float = 30.0) -> RunFile:
    """A run whose session is a DDTree of 15 nodes, or AR."""
    plan = RunPlan(folder, method=method, measured=MEASURED, calibration=CALIBRATION, hang_timeout=hang_timeout)
    run = plan.build()
    run.layout.plan_json.parent.mkdir(parents=True)
    run.layout.plan_json.write_text("{}")
    if method == "AR":
        return run
    session = run.sessions[SESSION].model_copy(update={"draft_budget": 15, "verify_width": 16})
    return run.model_copy(update={"sessions": {SESSION: session}})


@contextmanager
def stub(folder: Path, *flags: str) -> Iterator[ServedInstance]:
    """The stub on a free port, without a lease."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(STUB), "--model-path", "tiny", "--port", str(port), *FAST, *flags]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield ServedInstance(
            url=f"http://127.0.0.1:{port}",
            instance_id="instance-1",
            devices=("cpu",),
            neighbours=(),
            command=tuple(command),
            ready_seconds=None,
            is_alive=lambda: process.poll() is None,
            note_progress=lambda: None,
            is_warm=lambda: True,
            mark_warm=lambda: None,
        )
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{url} never answered")


def measure_on(run: RunFile, served: ServedInstance) -> CellRecord:
    """Measure the only cell on this server."""

    @contextmanager
    def lease(_session: PlannedSession) -> Iterator[ServedInstance]:
        yield served

    output = run.layout.cell_record(SESSION, CELL)
    measure(run, SESSION, CELL, output, lease)
    return CellRecord.model_validate_json(output.read_bytes())


@pytest.mark.parametrize(("method", "flags"), [("AR", ()), ("DDTREE", DDTREE_FLAGS)])
def test_a_sound_stub_gives_a_valid_cell(tmp_path: Path, method: str, flags: tuple[str, ...]) -> None:
    """Five requests in two lanes; greedy AR is scored, a tree of 15 nodes proposes 15 drafts a step."""
    with stub(tmp_path, *flags) as served:
        record = measure_on(planned(tmp_path, method), served)
    folder = tmp_path / "results" / "sessions" / SESSION / CELL
    rows = pq.read_table(folder / "requests.parquet").to_pylist()

    assert record.valid
    assert [(row["conversation"], row["turn"]) for row in rows] == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("d", 0)]
    if method == "AR":
        scored = pq.read_table(folder / "scores.parquet").num_rows
        assert scored == sum(row["completion_tokens"] for row in rows)
    else:
        assert all(row["proposed_drafts"] == 15 * row["verify_steps"] for row in rows)


def test_another_budget_than_planned_is_refused(tmp_path: Path) -> None:
    """The plan wants 15 nodes, the server was started with 7: the rows say so."""
    flags = ("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "7")
    with stub(tmp_path, *flags) as served, pytest.raises(MeasurementError, match="proposed_drafts_fit_the_width"):
        measure_on(planned(tmp_path, "DDTREE"), served)


def test_a_server_without_speculation_is_refused_on_a_speculative_arm(tmp_path: Path) -> None:
    """And the other way round."""
    with stub(tmp_path) as served, pytest.raises(MeasurementError, match="does not speculate"):
        measure_on(planned(tmp_path, "DDTREE"), served)
    other = tmp_path / "other"
    other.mkdir()
    with stub(other, *DDTREE_FLAGS) as served, pytest.raises(DraftbenchError):
        measure_on(planned(other, "AR"), served)


@pytest.mark.parametrize(
    ("failure", "failure_class"),
    [
        ("die:3", "crash"),
        ("hang:3", "hang"),
        ("http_500:3", "incomplete"),
        ("http_429:3", "incomplete"),
        ("truncated_json:3", "incomplete"),
        ("wrong_counts:3", "identity"),
        ("lost_chunk:3", "identity"),
    ],
)
def test_each_planted_failure_gives_its_record(tmp_path: Path, failure: str, failure_class: str) -> None:
    """The third of five requests fails; the record has the class, and there is no cell."""
    run = planned(tmp_path, "DDTREE", hang_timeout=1.5)
    with stub(tmp_path, *DDTREE_FLAGS, "--stub-fail", failure) as served, pytest.raises(MeasurementError):
        measure_on(run, served)
    record = FailureRecord.model_validate_json(run.layout.failure(SESSION, CELL).read_bytes())

    assert record.failure_class == failure_class
    assert not run.layout.cell_record(SESSION, CELL).exists()


def test_a_real_lease_carries_launch_warm_up_and_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three jobs through the keeper: one instance serves all, warmed up once; its death is a ServerError."""
    context = RunContext(ProcessIdentity.current(), tmp_path / "state", tmp_path / "locks")
    for name, value in context.to_environment().items():
        monkeypatch.setenv(name, value)
    run = planned(tmp_path, "DDTREE")
    command = (sys.executable, str(STUB), "--model-path", "tiny", "--port", "{port}", *FAST, *DDTREE_FLAGS)
    spec = ServerSpec(
        session=SESSION,
        spec_hash="0123abcd",
        command=command,
        device="cpu",
        devices=pseudo_devices(1),
        log_path=tmp_path / "server.log",
        working_dir=PROJECT,
        probe_ids=(1, 2, 3),
    )
    session = run.sessions[SESSION].model_copy(update={"server_spec": spec.model_dump(mode="json")})
    run = run.model_copy(update={"sessions": {SESSION: session}})
    output = run.layout.cell_record(SESSION, CELL)
    try:
        launch(run, SESSION, run.layout.launch_record(SESSION))
        warm(run, SESSION, run.layout.warmup_record(SESSION))
        measure(run, SESSION, CELL, output)
        monkeypatch.setattr(f"{measure.__module__}.measure_cell", _kill_the_server)
        with pytest.raises(ServerError):
            measure(run, SESSION, CELL, output)
    finally:
        stop_all(context)
    record = CellRecord.model_validate_json(output.read_bytes())
    failure = FailureRecord.model_validate_json(run.layout.failure(SESSION, CELL).read_bytes())

    assert record.devices == ("cpu",)
    assert record.instance_id in run.layout.launch_record(SESSION).read_text()
    assert record.instance_id in run.layout.warmup_record(SESSION).read_text()
    assert not list(run.layout.session(SESSION).glob("warmup-*.json"))
    assert failure.failure_class == "crash"
    assert failure.log_tail


def _kill_the_server(_plan: object, _conversations: object, server: ServedInstance) -> None:
    os.kill(int(server.instance_id.rsplit("-", 1)[1]), signal.SIGKILL)
    raise MeasurementError("the server died while the cell ran", "crash")
