"""Leases against real server processes and real signals."""

import functools
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from draftbench.errors import LeaseError, MeasurementError, ServerError
from draftbench.servers import server_state
from draftbench.servers.leases import is_warm, lease, list_servers, main, mark_warm, stop_all
from draftbench.servers.ports import take_port
from draftbench.servers.probe import request_json
from draftbench.servers.processes import ProcessIdentity, wait_until
from draftbench.servers.server_spec import RunContext
from tests.unit.servers.local_node import Node, SpecFactory, gpu_indices

PROJECT_ROOT = Path(__file__).resolve().parents[3]


def test_a_server_is_reused_by_the_next_lease(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """Two leases of one spec see one instance; the second does not wait for a start."""
    with lease(make_spec("ar"), run) as first:
        assert first.neighbours == ()
    with lease(make_spec("ar"), run) as second:
        assert second.instance_id == first.instance_id
        assert second.pid == first.pid
    assert [state.session for state in list_servers(run)] == ["ar"]


def test_a_changed_spec_hash_starts_a_new_instance(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """A server of other settings is never reused, whatever its session is called."""
    with lease(make_spec("ar", spec_hash="h1"), run) as first:
        pass
    with lease(make_spec("ar", spec_hash="h2"), run) as second:
        assert second.instance_id != first.instance_id
    assert not first.server.is_alive()


def test_a_cpu_session_evicts_the_idle_one(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """CPU sessions hold all units, so the second stops the first, and it has no neighbour."""
    with lease(make_spec("ar"), run) as first:
        assert gpu_indices(first) == [0, 1]
    with lease(make_spec("dflash"), run) as second:
        assert second.neighbours == ()
        assert not first.server.is_alive()
    assert [state.session for state in list_servers(run)] == ["dflash"]


def test_two_tp4_sessions_take_disjoint_numa_halves(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """Eight GPUs in two NUMA nodes: each TP4 gets one node, and knows the other as its neighbour."""
    with lease(make_spec("a", device="cuda", tp=4), run) as a, lease(make_spec("b", device="cuda", tp=4), run) as b:
        assert gpu_indices(a) == [0, 1, 2, 3]
        assert gpu_indices(b) == [4, 5, 6, 7]
        assert (a.neighbours, b.neighbours) == ((), ("a",))
        environment = request_json(b.port, "GET", "/environment")[1]
    assert environment["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_tp8_evicts_everything_idle(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """A TP8 session runs alone: it stops both idle TP4 servers and holds all GPUs."""
    with lease(make_spec("a", device="cuda", tp=4), run), lease(make_spec("b", device="cuda", tp=4), run):
        pass
    with lease(make_spec("c", device="cuda", tp=8), run) as c:
        assert gpu_indices(c) == list(range(8))
        assert c.neighbours == ()


def test_idle_small_sessions_do_not_block_an_aligned_tp4(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """A busy TP2 on one half, an idle TP2 on the other: TP4 evicts the idle one and gets a whole half."""
    devices = {"device": "cuda", "tp": 2}
    with lease(make_spec("a", **devices), run) as a, lease(make_spec("b", **devices), run) as b:
        assert (gpu_indices(a), gpu_indices(b)) == ([0, 1], [2, 3])
        with lease(make_spec("c", **devices), run) as c:
            assert gpu_indices(c) == [4, 5]
        with lease(make_spec("d", device="cuda", tp=4), run) as d:
            assert gpu_indices(d) == [4, 5, 6, 7]
            assert d.aligned
        assert not c.server.is_alive()


def test_a_restarted_session_prefers_its_old_block(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """After its server was stopped, a session comes back to the GPUs that it had, although lower ones are free."""
    with lease(make_spec("a", device="cuda", tp=4), run), lease(make_spec("b", device="cuda", tp=4), run) as before:
        pass
    stop_all(run)
    with lease(make_spec("b", device="cuda", tp=4), run) as after:
        assert gpu_indices(after) == gpu_indices(before) == [4, 5, 6, 7]


def test_an_exclusive_session_holds_every_gpu_but_sees_its_block(
    node: Node, run: RunContext, make_spec: SpecFactory
) -> None:
    """With exclusive packing nothing runs beside a TP2 server, which still gets two GPUs only."""
    with lease(make_spec("a", device="cuda", tp=2, exclusive=True), run) as a:
        assert gpu_indices(a) == [0, 1]
        assert len(a.held) == 8


def test_cells_of_one_session_come_one_after_the_other(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """A second job of the session waits until the first has given the server back."""
    order: list[str] = []
    entered = threading.Event()

    def second_job() -> None:
        with lease(make_spec("ar"), run):
            order.append("second in")

    with lease(make_spec("ar"), run):
        job = threading.Thread(target=lambda: (entered.set(), second_job()))
        job.start()
        entered.wait()
        time.sleep(0.3)
        order.append("first out")
    job.join()
    assert order == ["first out", "second in"]


def test_a_server_that_dies_at_startup_is_noticed_at_once(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """The error names the class and carries the log's line, long before the ready timeout; all is free again."""
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    spec = make_spec("ar", "--dies-at-startup", line, ready_timeout_s=600.0)
    with pytest.raises(ServerError) as caught, lease(spec, run):
        pass
    assert caught.value.failure_class == "out_of_memory"
    assert line in caught.value.log_tail
    assert "exited with code 3 during start-up" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert node.is_clean()


def test_a_server_that_never_gets_healthy_times_out(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """The class is the start-up timeout, and the server is stopped."""
    with pytest.raises(ServerError) as caught, lease(make_spec("ar", "--never-healthy", ready_timeout_s=0.5), run):
        pass
    assert caught.value.failure_class == "startup_timeout"
    assert node.is_clean()


def test_readiness_wants_the_tokens_asked_for(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """A server that is healthy but generates one token too few is not ready."""
    with pytest.raises(ServerError, match="gave 3 tokens, not the 4"), lease(make_spec("ar", "--short-by", "1"), run):
        pass
    assert node.is_clean()


def test_another_server_than_planned_is_refused(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """Keys of /server_info that differ are named, nested ones by their dotted key."""
    expected = {"version": "minimal", "graphs.decode.max_bs": 16}
    spec = make_spec("ar", expected_info=expected)
    with pytest.raises(ServerError, match=r"graphs\.decode\.max_bs is 8, planned 16") as caught, lease(spec, run):
        pass
    assert caught.value.failure_class == "identity"
    assert node.is_clean()


def test_a_program_that_is_not_there_is_one_clear_line(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """A wrong interpreter path in the config does not end in a traceback."""
    spec = make_spec("ar").model_copy(update={"command": ("/nowhere/python", "--port", "{port}")})
    with pytest.raises(LeaseError, match="/nowhere/python cannot be started"), lease(spec, run):
        pass
    assert node.is_clean()


def test_the_death_of_the_server_explains_the_failed_request(
    node: Node, run: RunContext, make_spec: SpecFactory
) -> None:
    """A job whose request broke gets the server's end as the error, and the next lease a new, cold instance."""
    with lease(make_spec("ar"), run) as a:
        mark_warm(run, a)
        assert is_warm(run, a)
    with pytest.raises(ServerError, match="exited with code 7 while ready") as caught, lease(make_spec("ar"), run):
        request_json(a.port, "GET", "/exit?code=7")
    assert caught.value.failure_class == "crash"
    assert isinstance(caught.value.__cause__, http.client.HTTPException | OSError)
    with lease(make_spec("ar"), run) as b:
        assert b.instance_id != a.instance_id
        assert not is_warm(run, b)


def test_an_error_of_the_job_itself_stays_what_it_is(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """A failing job leaves a living server alone."""
    with pytest.raises(ZeroDivisionError), lease(make_spec("ar"), run) as state:
        raise ZeroDivisionError
    assert state.server.is_alive()


def test_a_hung_server_is_found_and_stopped(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """No progress for the hang timeout and no answer to a probe: class hang, server gone although it has the pid."""
    spec = make_spec("ar", hang_timeout_s=0.4)

    def job() -> None:
        with lease(spec, run) as state:
            request_json(state.port, "GET", "/hang")
            assert wait_until(lambda: not state.server.is_alive(), 20.0)
            raise TimeoutError

    with pytest.raises(ServerError, match="hangs") as caught:
        job()
    assert caught.value.failure_class == "hang"


def test_a_hang_that_the_client_found_ends_the_server(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """The client's own verdict stays the error; a server that never generates again is not left for the next cell."""
    with pytest.raises(MeasurementError), lease(make_spec("ar"), run) as state:
        raise MeasurementError("no token on any stream", "hang")
    assert not state.server.is_alive()


def test_a_silent_but_answering_server_is_left_alone(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """Without a note of progress the keeper asks the server; an answer is proof of life."""
    spec = make_spec("ar", hang_timeout_s=1.0)
    with lease(spec, run) as state:
        progress = server_state.progress_path(run, "ar")
        begin = progress.stat().st_mtime
        assert wait_until(lambda: progress.stat().st_mtime > begin, 20.0)
        assert state.server.is_alive()


def test_an_unused_server_stops_after_its_idle_timeout(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """In use it is kept beyond the timeout; given back, it ends by itself."""
    with lease(make_spec("ar", idle_timeout_s=0.6), run) as state:
        time.sleep(1.2)
        assert state.server.is_alive()
    assert wait_until(lambda: node.is_clean(state), 20.0)
    assert server_state.read_state(run, "ar") is None


def test_stop_all_leaves_no_process_lock_or_port(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """Also where the server ignores TERM and has a child that left its session."""
    with lease(make_spec("ar", "--ignores-term", "--setsid-child"), run) as state:
        assert len(node.servers_of_this_node()) == 3
    assert stop_all(run) == ["ar"]
    assert node.is_clean(state)


def test_the_command_line_lists_and_stops(
    node: Node, run: RunContext, make_spec: SpecFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """`list` prints one line a server, `stop-all` ends them."""
    with lease(make_spec("ar"), run) as state:
        pass
    main(["list", "--state", str(run.state_dir)])
    assert capsys.readouterr().out.split("\t")[:2] == ["ar", "ready"]
    main(["stop-all", "--state", str(run.state_dir)])
    assert node.is_clean(state)


def test_the_death_of_the_run_ends_its_servers(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """SIGKILL of Snakemake: keepers see it, and nothing is left."""
    with lease(make_spec("ar", "--setsid-child"), run) as state:
        pass
    node.kill_main(run)
    assert wait_until(lambda: node.is_clean(state), 20.0)


def test_a_job_of_a_dead_run_starts_nothing(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """An orphaned job that comes too late is refused."""
    node.kill_main(run)
    with pytest.raises(LeaseError, match="gone"), lease(make_spec("ar"), run):
        pass
    assert node.is_clean()


def test_the_death_of_the_run_ends_a_server_that_is_starting(
    node: Node, run: RunContext, make_spec: SpecFactory
) -> None:
    """A run killed while its server loads leaves nothing either."""

    def kill_once_starting() -> None:
        wait_until(lambda: server_state.read_state(run, "ar") is not None, 20.0)
        node.kill_main(run)

    killer = threading.Thread(target=kill_once_starting)
    killer.start()
    with pytest.raises(ServerError, match="the run ended"), lease(make_spec("ar", "--startup-seconds", "60"), run):
        pass
    killer.join()
    assert node.is_clean()


def test_a_killed_keeper_takes_its_server_along(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """SIGKILL of the keeper: the kernel kills the server; the next lease reaps what left its session."""
    with lease(make_spec("ar", "--ignores-term", "--setsid-child"), run) as first:
        pass
    first.keeper.send(signal.SIGKILL)
    assert wait_until(lambda: not first.server.is_alive(), 20.0)
    with lease(make_spec("ar"), run) as second:
        assert second.instance_id != first.instance_id
        assert len(node.servers_of_this_node()) == 2
    stop_all(run)
    assert node.is_clean(first, second)


def test_a_killed_keeper_explains_the_failed_request(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """The job that used the server hears that its keeper was killed."""

    def job() -> None:
        with lease(make_spec("ar"), run) as state:
            state.keeper.send(signal.SIGKILL)
            raise ConnectionError

    with pytest.raises(ServerError, match="keeper was killed"):
        job()


def test_another_run_reaps_what_a_killed_run_left(node: Node, make_spec: SpecFactory) -> None:
    """Run and keeper both killed: a child that left its session still holds the GPUs' locks until the next run."""
    first_run, second_run = node.start_run(), node.start_run()
    keeps_locks = make_spec("ar").model_copy(update={"command": _server_with_lock_holding_child(make_spec)})
    with lease(keeps_locks, first_run) as first:
        pass
    node.kill_main(first_run)
    first.keeper.send(signal.SIGKILL)
    assert wait_until(lambda: not first.server.is_alive(), 20.0)
    assert node.servers_of_this_node() != []
    with lease(make_spec("ar"), second_run) as second:
        assert second.main == second_run.main
    stop_all(second_run)
    assert node.is_clean(first, second)


def _server_with_lock_holding_child(make_spec: SpecFactory) -> tuple[str, ...]:
    plain = make_spec("ar").command
    return ("bash", "-c", 'setsid sleep 3602 & exec "$@"', "bash", *plain)


def test_a_killed_server_is_restarted_by_the_next_lease(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """SIGKILL of the server between two cells costs a restart, nothing else."""
    with lease(make_spec("ar"), run) as first:
        pass
    first.server.send(signal.SIGKILL)
    with lease(make_spec("ar"), run) as second:
        assert second.instance_id != first.instance_id


JOB = """
import sys, time
from pathlib import Path
from draftbench.servers.leases import lease, RunContext, ServerSpec
spec = ServerSpec.model_validate_json(sys.argv[1])
with lease(spec, RunContext.from_environment()) as state:
    print(state.instance_id, flush=True)
    time.sleep(600)
"""


def test_a_killed_job_gives_its_server_back(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """SIGKILL of a job frees the server for the next cell at once, and the server lives on."""
    spec = make_spec("ar")
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, spec.model_dump_json()],
        env={**os.environ, **run.to_environment()},
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with job:
        instance = job.stdout.readline().strip()
        assert server_state.is_busy(run, "ar")
        job.kill()
    with lease(spec, run) as state:
        assert state.instance_id == instance


def test_a_job_killed_while_its_server_starts_does_not_cost_the_start(
    node: Node, run: RunContext, make_spec: SpecFactory
) -> None:
    """The keeper goes on, and the next cell waits for the server that is already loading."""
    spec = make_spec("ar", "--startup-seconds", "1.5")
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, spec.model_dump_json()],
        env={**os.environ, **run.to_environment()},
        cwd=PROJECT_ROOT,
    )
    assert wait_until(lambda: server_state.read_state(run, "ar") is not None, 20.0)
    job.kill()
    job.wait()
    starting = server_state.read_state(run, "ar")
    assert starting is not None
    with lease(spec, run) as state:
        assert state.instance_id == starting.instance_id


class Units:
    """Snakemake's `gpus` resource: a job runs only when so many units are free."""

    def __init__(self, total: int) -> None:
        self.free = total
        self.changed = threading.Condition()

    def run(self, units: int, job: Callable[[], None]) -> None:
        """Wait for the units, run the job, give them back."""
        with self.changed:
            self.changed.wait_for(lambda: self.free >= units)
            self.free -= units
        try:
            job()
        finally:
            with self.changed:
                self.free += units
                self.changed.notify_all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_mix_of_tensor_parallelisms_never_shares_a_gpu_nor_deadlocks(
    node: Node, run: RunContext, make_spec: SpecFactory, seed: int
) -> None:
    """Cells of TP1 to TP8 sessions in random order, as many at once as eight units allow."""
    tps = {"a": 1, "b": 1, "c": 2, "d": 2, "e": 4, "f": 4, "g": 8}
    cells = [session for session in tps for _ in range(3)]
    random.Random(seed).shuffle(cells)
    units, active, violations, done = Units(8), {}, [], []

    def cell(session: str) -> None:
        with lease(make_spec(session, device="cuda", tp=tps[session]), run) as state:
            held = set(gpu_indices(state))
            others = [name for name, theirs in list(active.items()) if theirs & held]
            violations.extend(
                [(session, held, others)] if others or not state.aligned or len(held) != state_tp(state) else []
            )
            active[session] = held
            time.sleep(0.1)
            del active[session]
        done.append(session)

    def state_tp(state: server_state.ServerState) -> int:
        return tps[state.session]

    jobs = [
        threading.Thread(target=units.run, args=(tps[session], functools.partial(cell, session))) for session in cells
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(120.0)
    assert violations == []
    assert sorted(done) == sorted(cells)


def test_two_runs_share_a_node_but_no_server(node: Node, make_spec: SpecFactory) -> None:
    """A second run waits for the GPUs, and past its timeout says who holds them."""
    first_run, second_run = node.start_run(), node.start_run()
    impatient = make_spec("dflash", lease_timeout_s=0.3)
    with (
        lease(make_spec("ar"), first_run),
        pytest.raises(LeaseError, match=r"GPU 0, 1 still held after 0\.3 s by ar"),
        lease(impatient, second_run),
    ):
        pass
    assert list_servers(second_run) == []
    assert [state.session for state in list_servers(first_run)] == ["ar"]


def test_a_second_run_goes_on_when_the_first_is_done(node: Node, make_spec: SpecFactory) -> None:
    """Waiting for another run's GPUs ends with the lease once that run stops its servers."""
    first_run, second_run = node.start_run(), node.start_run()
    with lease(make_spec("ar"), first_run):
        pass
    stopper = threading.Timer(0.5, stop_all, [first_run])
    stopper.start()
    with lease(make_spec("ar"), second_run) as state:
        assert state.main == second_run.main
    stopper.join()


def test_a_configured_port_in_use_is_one_clear_line(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """The message names the port and the key; nothing is left held."""
    port, lock = take_port(node.locks)
    with pytest.raises(LeaseError, match=f"port {port} is in use.*`port`"), lease(make_spec("ar", port=port), run):
        pass
    lock.release()
    assert node.is_clean()


def test_sessions_of_one_run_can_share_a_configured_port(node: Node, run: RunContext, make_spec: SpecFactory) -> None:
    """An idle server that has the configured port is stopped, also when it sits on other GPUs."""
    port, lock = take_port(node.locks)
    lock.release()
    with lease(make_spec("a", device="cuda", tp=2, port=port), run) as a:
        pass
    with lease(make_spec("b", device="cuda", tp=2, port=port), run) as b:
        assert (a.port, b.port) == (port, port)
        assert not a.server.is_alive()


def test_too_few_gpus_is_refused_before_anything_starts(make_spec: SpecFactory) -> None:
    """Tensor parallelism beyond the inventory is one line."""
    with pytest.raises(LeaseError, match="tensor parallelism 16 needs 16 GPUs, but 8"):
        make_spec("a", device="cuda", tp=16)


def test_the_threads_of_a_job_do_not_reach_the_server(
    node: Node, run: RunContext, make_spec: SpecFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake sets OMP_NUM_THREADS for each job; the server sees the engine entry's value or none."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    spec = make_spec("ar")
    spec = spec.model_copy(update={"environment": {**spec.environment, "MKL_NUM_THREADS": "2"}})
    with lease(spec, run) as state:
        environment = request_json(state.port, "GET", "/environment")[1]
    assert "OMP_NUM_THREADS" not in environment
    assert environment["MKL_NUM_THREADS"] == "2"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_a_run_is_named_by_its_environment(run: RunContext) -> None:
    """What the Snakefile sets is read back by a job; a job without it is refused."""
    assert RunContext.from_environment(run.to_environment()) == run
    with pytest.raises(LeaseError, match="DRAFTBENCH_STATE not set"):
        RunContext.from_environment({"DRAFTBENCH_MAIN": str(ProcessIdentity.current())})
