"""Kernel locks and ports, held by real processes."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from draftbench.errors import LeaseError, ResultsError
from draftbench.servers.locks import FileLock, is_free, read_holder, try_take_all
from draftbench.servers.ports import PORT_RANGE, can_bind, port_lock_path, take_port
from draftbench.servers.processes import ProcessIdentity, wait_until
from draftbench.servers.results_lock import LOCK_NAME, hold_results_lock

PROJECT_ROOT = Path(__file__).resolve().parents[3]

HOLDER = """
import sys, time
from pathlib import Path
from draftbench.servers.locks import FileLock
lock = FileLock.try_take(Path(sys.argv[1]))
print(lock is not None, flush=True)
time.sleep(600)
"""

MEASURING_RUN = """
import os, subprocess, sys, time
from pathlib import Path
from draftbench.servers.results_lock import hold_results_lock
hold_results_lock(Path(sys.argv[1]))
hold_results_lock(Path(sys.argv[1]))
child = subprocess.Popen(["sleep", "600"], close_fds=False)
forked = os.fork()
if forked == 0:
    time.sleep(600)
print(child.pid, forked, flush=True)
time.sleep(600)
"""


def start(program: str, argument: Path) -> subprocess.Popen[str]:
    """Run a program of this file."""
    return subprocess.Popen(
        [sys.executable, "-c", program, str(argument)], cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    """Wait for the program to say that it is there."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_killed_holder_frees_its_lock(tmp_path: Path) -> None:
    """The kernel drops the lock with the process; no file has to be cleared away."""
    path = tmp_path / "x.lock"
    with start(HOLDER, path) as holder:
        assert first_line(holder) == "True"
        assert not is_free(path)
        holder.send_signal(signal.SIGKILL)
    assert is_free(path)


def test_an_inherited_descriptor_keeps_the_lock(tmp_path: Path) -> None:
    """A GPU is free only when keeper and server are both gone."""
    lock = FileLock.try_take(tmp_path / "x.lock")
    assert lock is not None
    with subprocess.Popen(["sleep", "600"], pass_fds=[lock.descriptor]) as heir:
        lock.release()
        assert not is_free(lock.path)
        heir.kill()
    assert is_free(lock.path)


def test_all_locks_or_none(tmp_path: Path) -> None:
    """A block of which one device is taken leaves the others free."""
    paths = [tmp_path / f"{name}.lock" for name in "abc"]
    taken = FileLock.try_take(paths[2])
    assert taken is not None
    assert try_take_all(paths) is None
    assert is_free(paths[0])
    taken.release()
    locks = try_take_all(paths)
    assert locks is not None
    assert not any(is_free(path) for path in paths)


def test_waiting_for_a_lock_ends_with_who_holds_it(tmp_path: Path) -> None:
    """The message has what was wanted, how long, and the holder's own words."""
    lock = FileLock.try_take(tmp_path / "x.lock")
    assert lock is not None
    lock.write_holder("the other run")
    with pytest.raises(LeaseError, match=r"GPU 3 is still held after 0\.1 s by the other run"):
        FileLock.take(lock.path, 0.1, "GPU 3", lambda: None)
    assert read_holder(lock.path) == "the other run"


def test_waiting_can_be_given_up_for_another_reason(tmp_path: Path) -> None:
    """A job whose run has died stops waiting."""
    lock = FileLock.try_take(tmp_path / "x.lock")

    def give_up() -> None:
        raise LeaseError("the run is gone")

    with pytest.raises(LeaseError, match="the run is gone"):
        FileLock.take(tmp_path / "x.lock", None, "GPU 3", give_up)
    assert lock is not None


def test_a_lock_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A lock folder that is a file, or another user's, names itself."""
    (tmp_path / "locks").write_text("")
    with pytest.raises(LeaseError, match=r"cannot make the lock .*locks/gpu-0"):
        FileLock.try_take(tmp_path / "locks" / "gpu-0.lock")


def test_ports_differ_as_long_as_they_are_held(tmp_path: Path) -> None:
    """Two servers that start together get two ports, although nobody listens yet; a released one can be had again."""
    first, first_lock = take_port(tmp_path)
    second, _ = take_port(tmp_path)
    assert {first, second} <= set(PORT_RANGE)
    assert first != second
    first_lock.release()
    assert take_port(tmp_path, first)[0] == first


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_on_which_a_stranger_listens_is_not_taken(tmp_path: Path, address: str) -> None:
    """A listener without any lock is seen too, and its port refused when the config asks for it."""
    with socket.create_server((address, 0)) as stranger:
        port = stranger.getsockname()[1]
        assert not can_bind(port)
        with pytest.raises(LeaseError, match=f"port {port} is in use"):
            take_port(tmp_path, port)
        assert is_free(port_lock_path(tmp_path, port))
    assert take_port(tmp_path, port)[0] == port


def test_a_second_measuring_run_is_refused(tmp_path: Path) -> None:
    """One line with the folder and the other process; programs and forks of the holder do not keep the lock."""
    with start(MEASURING_RUN, tmp_path) as holder:
        children = [int(pid) for pid in first_line(holder).split()]
        with pytest.raises(ResultsError, match=rf"another run \(process {holder.pid}\)"):
            hold_results_lock(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert all(ProcessIdentity.of(pid) for pid in children)
        try:
            assert wait_until(lambda: is_free(tmp_path / LOCK_NAME), 10.0)
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)


def test_a_process_is_known_by_pid_and_start_time() -> None:
    """A zombie is dead, a wrong start time is another process, and neither is signalled."""
    process = subprocess.Popen(["sleep", "600"])
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    assert ProcessIdentity.parse(str(identity)) == identity
    stranger = ProcessIdentity(pid=identity.pid, starttime=identity.starttime + 1)
    stranger.send(signal.SIGKILL)
    assert not stranger.is_alive()
    assert identity.is_alive()
    identity.send(signal.SIGKILL)
    assert wait_until(lambda: not identity.is_alive(), 10.0)  # a zombie: nobody has waited for it
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("text", ["", "12", "12:", "a:b", "12:x"])
def test_what_names_no_process_is_refused(text: str) -> None:
    """The form is pid:starttime."""
    with pytest.raises(LeaseError, match="names no process"):
        ProcessIdentity.parse(text)
