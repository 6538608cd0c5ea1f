"""One measuring run on a results folder at a time, by a kernel lock that dies with the run."""

import os
from pathlib import Path

from draftbench.errors import ResultsError
from draftbench.servers.locks import FileLock, read_holder
from draftbench.servers.processes import ProcessIdentity

LOCK_NAME = ".measuring.lock"

_held: dict[Path, FileLock] = {}  # keeps the descriptors open for the life of the process


def hold_results_lock(results_dir: Path) -> None:
    """Hold the results folder until this process ends; a second call by it does nothing.

    Started programs do not inherit the lock, forked children give it back.
    Raises ResultsError when another run measures into the folder.
    """
    path = results_dir.resolve() / LOCK_NAME
    if path in _held:
        return
    lock = FileLock.try_take(path)
    if lock is None:
        holder = read_holder(path).partition(":")[0] or "unknown"
        raise ResultsError(
            f"{results_dir} is being measured into by another run (process {holder}); wait for it or stop it"
        )
    lock.write_holder(str(ProcessIdentity.current()))
    _held[path] = lock


def _forget_in_child() -> None:
    for lock in _held.values():
        lock.release()
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
