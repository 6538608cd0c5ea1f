"""Leases: the right to use a server and its GPUs, for as long as a job needs it.

A job asks for a server of exactly its spec: reused when it lives and is healthy, else started, after idle servers
were evicted from the GPUs needed. Cells of one session come one after the other, each in its own job.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from draftbench.errors import DraftbenchError, LeaseError, ServerError
from draftbench.servers import probe, server_state
from draftbench.servers.allocation import Allocation, allocate, stop_server
from draftbench.servers.failure_classes import FailureClass
from draftbench.servers.keeper_messages import KeeperOrder, KeeperReport
from draftbench.servers.locks import FileLock, release_all
from draftbench.servers.processes import ProcessIdentity, wait_until
from draftbench.servers.server_log import read_log_tail
from draftbench.servers.server_spec import RunContext, ServerSpec, default_node_lock_dir
from draftbench.servers.server_state import (
    ServerEnd,
    ServerState,
    is_warm,
    list_servers,
    mark_warm,
)

__all__ = [
    "RunContext",
    "ServerSpec",
    "ServerState",
    "is_warm",
    "lease",
    "list_servers",
    "mark_warm",
    "note_progress",
    "stop_all",
]

PROJECT_ROOT = Path(__file__).resolve().parents[2]

_KEEPER_DIED = KeeperReport(ready=False, reason="its keeper died", failure_class=FailureClass.CRASH)


@contextlib.contextmanager
def lease(spec: ServerSpec, run: RunContext) -> Iterator[ServerState]:
    """Use a healthy server of exactly this spec; `state.neighbours` names the other living sessions of the run.

    Raises LeaseError when GPUs or a port could not be had, ServerError (with class and log tail) when the server did
    not start, or when it died while in use: then the error of the block is its cause.
    """
    run.require_alive()
    busy_path = server_state.busy_lock_path(run, spec.session)
    with FileLock.take(busy_path, None, f"server {spec.session}", run.require_alive):
        try:
            _note_use(run, spec.session)
            state = _reusable(spec, run) or _start(spec, run)
            _note_use(run, spec.session)
            others = tuple(other.session for other in list_servers(run) if other.session != spec.session)
            with _server_death_explained(run, state):
                yield state.model_copy(update={"neighbours": others})
        finally:
            server_state.touch(busy_path)


def _note_use(run: RunContext, session: str) -> None:
    server_state.touch(server_state.busy_lock_path(run, session))
    note_progress(run, session)


def note_progress(run: RunContext, session: str) -> None:
    """Say that tokens came; without it for the hang timeout, the keeper asks the server itself."""
    server_state.touch(server_state.progress_path(run, session))


def _reusable(spec: ServerSpec, run: RunContext) -> ServerState | None:
    state = _settled_state(spec, run)
    if state is None:
        return None
    wanted = state.main == run.main and state.spec_hash == spec.spec_hash and state.phase == "ready"
    if wanted and state.is_running() and probe.is_healthy(state.port, timeout_s=10.0):
        return state
    stop_server(run, state)
    return None


def _settled_state(spec: ServerSpec, run: RunContext) -> ServerState | None:
    """The session's server; one whose job was killed while it started is waited for, since a start may take minutes."""

    def is_settled() -> bool:
        run.require_alive()
        state = server_state.read_state(run, spec.session)
        return state is None or state.phase != "starting" or not state.is_running()

    wait_until(is_settled, spec.ready_timeout_s)
    return server_state.read_state(run, spec.session)


def _start(spec: ServerSpec, run: RunContext) -> ServerState:
    allocation = allocate(spec, run)
    try:
        report = _run_keeper(_order(spec, run, allocation))
    finally:
        release_all(allocation.locks)  # the keeper holds them now, or nobody
    if not report.ready:
        _raise_not_ready(spec, report)
    state = server_state.read_state(run, spec.session)
    if state is None:
        raise ServerError(f"{spec.session}: the server ended as soon as it was ready", FailureClass.CRASH)
    return state


def _order(spec: ServerSpec, run: RunContext, allocation: Allocation) -> KeeperOrder:
    return KeeperOrder(
        spec=spec,
        main=run.main,
        state_dir=run.state_dir,
        node_lock_dir=run.node_lock_dir,
        gpus=allocation.gpus,
        held=allocation.held,
        aligned=allocation.aligned,
        port=allocation.port,
        nccl_port=allocation.nccl_port,
        lock_descriptors=tuple(lock.descriptor for lock in allocation.locks),
        working_dir=spec.working_dir or Path.cwd(),
    )


def _run_keeper(order: KeeperOrder) -> KeeperReport:
    """Start a keeper and wait for its report; it goes on living when this process ends."""
    log_path = order.spec.log_path
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "draftbench.servers.keeper"],
            cwd=PROJECT_ROOT,  # the package is not installed
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=order.lock_descriptors,
            start_new_session=True,
        )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with contextlib.suppress(BrokenPipeError), keeper.stdin:
        keeper.stdin.write(order.model_dump_json().encode())
    with keeper.stdout:
        answer = keeper.stdout.read()  # ends when the keeper answers, or dies
    report = KeeperReport.model_validate_json(answer) if answer else _KEEPER_DIED
    if not report.ready:
        keeper.wait()  # with its end the locks are free
    return report


def _raise_not_ready(spec: ServerSpec, report: KeeperReport) -> None:
    if report.failure_class is None and report.log_tail is None:
        raise LeaseError(f"{spec.session}: {report.reason}")
    failure_class = report.failure_class or FailureClass.CRASH
    message = f"{spec.session} did not become ready ({failure_class}): {report.reason}; log: {spec.log_path}"
    raise ServerError(message, failure_class, report.log_tail or "")


@contextlib.contextmanager
def _server_death_explained(run: RunContext, state: ServerState) -> Iterator[None]:
    """Turn whatever failed in a job into the death of its server, where that is the cause."""
    try:
        yield
    except Exception as error:
        end = _find_end(run, state)
        if end is None:
            if getattr(error, "failure_class", None) == FailureClass.HANG:
                stop_server(run, state)  # it may look healthy and still never generate again
            raise
        failure_class = end.failure_class or FailureClass.CRASH
        message = f"{state.session}: {end.reason} ({failure_class}); log: {state.log_path}"
        raise ServerError(message, failure_class, end.log_tail) from error


def _find_end(run: RunContext, state: ServerState) -> ServerEnd | None:
    """How this instance ended; None when it lives. A broken connection may come shortly before the exit."""

    def recorded() -> ServerEnd | None:
        end = server_state.read_record(server_state.end_path(run, state.session), ServerEnd)
        return end if end is not None and end.instance_id == state.instance_id else None

    wait_until(lambda: not state.is_running() or recorded() is not None, 1.0)
    if state.is_running() and recorded() is None:
        return None
    wait_until(lambda: recorded() is not None or not state.keeper.is_alive(), 5.0)
    return recorded() or ServerEnd(
        instance_id=state.instance_id,
        reason="the server's keeper was killed",
        failure_class=FailureClass.CRASH,
        exit_code=None,
        log_tail=read_log_tail(state.log_path, state.log_offset),
    )


def stop_all(run: RunContext) -> list[str]:
    """Stop every server of the state folder, side by side; the sessions that had one."""
    states = server_state.all_states(run)
    for state in states:
        state.keeper.send(signal.SIGTERM)
    for state in states:
        stop_server(run, state)
    return [state.session for state in states]


def main(arguments: list[str] | None = None) -> int:
    """Stop or list the servers of a state folder."""
    import argparse  # 20 ms that no job needs

    parser = argparse.ArgumentParser(prog="python -m draftbench.servers.leases", description=main.__doc__)
    parser.add_argument("action", choices=["stop-all", "list"])
    parser.add_argument("--state", type=Path, required=True, help="the run's state folder (DRAFTBENCH_STATE)")
    options = parser.parse_args(arguments)
    locks = Path(os.environ.get("DRAFTBENCH_LOCKS") or default_node_lock_dir())
    run = RunContext(ProcessIdentity.current(), options.state.resolve(), locks)
    if options.action == "stop-all":
        stop_all(run)
        return 0
    for state in server_state.all_states(run):
        gpus = ",".join(str(device.index) for device in state.gpus)
        life = state.phase if state.is_running() else "dead"
        print(f"{state.session}\t{life}\t{state.device} {gpus}\t{state.url}\t{state.instance_id}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DraftbenchError as error:
        sys.exit(f"draftbench: {error}")
