"""Processes by pid and start time, and the end of those that a server left behind. Linux only: it reads /proc."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from draftbench.errors import LeaseError

MARK_VARIABLE = "DRAFTBENCH_SERVER"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STATE_FIELD, _PARENT_FIELD, _STARTTIME_FIELD = 0, 1, 19  # of /proc/<pid>/stat, counted after the command name


class ProcessIdentity(BaseModel):
    """One process for good: pids are reused, a pid with its start time (clock ticks since boot) is not."""

    model_config = ConfigDict(frozen=True)

    pid: int
    starttime: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Identify the process that has this pid now; None when there is none or it is a zombie."""
        fields = _stat_fields(pid)
        if fields is None or fields[_STATE_FIELD] in "ZX":
            return None
        return cls(pid=pid, starttime=int(fields[_STARTTIME_FIELD]))

    @classmethod
    def current(cls) -> Self:
        """Identify the calling process."""
        identity = cls.of(os.getpid())
        assert identity is not None
        return identity

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `pid:starttime`, the form of the environment variable DRAFTBENCH_MAIN."""
        pid, separator, starttime = text.partition(":")
        if not (separator and pid.isdigit() and starttime.isdigit()):
            raise LeaseError(f"{text!r} names no process: 'pid:starttime' is needed")
        return cls(pid=int(pid), starttime=int(starttime))

    def __str__(self) -> str:
        return f"{self.pid}:{self.starttime}"

    def is_alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return ProcessIdentity.of(self.pid) == self

    def send(self, signal_number: int) -> None:
        """Signal this process, and no other that may have inherited its pid."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    def send_to_group(self, signal_number: int) -> None:
        """Signal the process group that this process leads."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal_number)


def _all_pids() -> Iterator[int]:
    return (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())


def _parent_of(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[_PARENT_FIELD]) if fields else None


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()  # the command name may hold spaces and brackets


def wait_until(condition: Callable[[], bool], timeout_s: float, interval_s: float = 0.05) -> bool:
    """Poll until the condition holds; False when it does not within the timeout."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(interval_s)
    return True


def marked_processes(mark: str) -> Iterator[ProcessIdentity]:
    """Find every process whose environment carries the server's mark.

    Children that left the process group (setsid) or were re-parented to init still have it.
    """
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    for pid in _all_pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                identity = ProcessIdentity.of(pid)
                if identity is not None:
                    yield identity


def reap_marked(mark: str, timeout_s: float = 10.0) -> int:
    """SIGKILL all processes with this mark until none is left; the number of processes killed."""
    killed: set[ProcessIdentity] = set()

    def none_left() -> bool:
        found = set(marked_processes(mark))
        for identity in found:
            identity.send(signal.SIGKILL)
        killed.update(found)
        return not found

    wait_until(none_left, timeout_s)
    return len(killed)


def become_subreaper() -> None:
    """Let orphaned grandchildren come to this process, not to init, so that it can end and reap them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid: int) -> Callable[[], None]:
    """Build a `preexec_fn` that has the kernel SIGKILL the child when the parent dies.

    The parent must start the child from its main thread: the kernel watches the thread, not the process.
    """

    def before_exec() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it died between fork and prctl
            os._exit(1)

    return before_exec


def end_children(timeout_s: float = 10.0) -> bool:
    """SIGKILL and reap every child of this process, adopted ones included; False when some are left."""
    return wait_until(_kill_and_collect_children, timeout_s)


def _kill_and_collect_children() -> bool:
    children = [pid for pid in _all_pids() if _parent_of(pid) == os.getpid()]
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return not children


_LIBC = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
