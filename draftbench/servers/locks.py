"""Kernel locks on files. The kernel drops them when their last holder dies, however it dies."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from draftbench.errors import LeaseError

POLL_INTERVAL_S = 0.05


class FileLock:
    """An exclusive flock on a file, held from `try_take` or `take` to `release`.

    A child that inherits the descriptor holds the lock too: it is free only when both are gone.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def try_take(cls, path: Path) -> Self | None:
        """Take the lock now, or return None when someone holds it. Raises LeaseError where no file can be made."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LeaseError(f"cannot make the lock {path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    @classmethod
    def take(cls, path: Path, timeout_s: float | None, what: str, give_up: Callable[[], None]) -> Self:
        """Wait for the lock; None waits without end.

        `give_up` is called at each poll and may raise, to stop waiting for another reason.
        Raises LeaseError, naming `what` and the holder, at the timeout.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            lock = cls.try_take(path)
            if lock is not None:
                return lock
            if end is not None and time.monotonic() >= end:
                raise LeaseError(f"{what} is still held after {timeout_s:g} s by {read_holder(path) or 'someone'}")
            give_up()
            time.sleep(POLL_INTERVAL_S)

    def write_holder(self, text: str) -> None:
        """Say in the file who holds the lock; only for messages and for clearing up after a killed holder."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, text.encode(), 0)

    def release(self) -> None:
        """Close this process's descriptor; a child that inherited it goes on holding the lock."""
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def read_holder(path: Path) -> str:
    """What the last holder wrote into the lock's file; empty when nothing."""
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def try_take_all(paths: list[Path]) -> list[FileLock] | None:
    """Take all locks or none, without waiting, so that two takers cannot block each other."""
    taken: list[FileLock] = []
    for path in paths:
        lock = FileLock.try_take(path)
        if lock is None:
            release_all(taken)
            return None
        taken.append(lock)
    return taken


def release_all(locks: list[FileLock]) -> None:
    """Release several locks."""
    for lock in locks:
        lock.release()


@contextlib.contextmanager
def released_on_error(locks: list[FileLock]) -> Iterator[None]:
    """Release the locks if the block raises; they stay held otherwise."""
    try:
        yield
    except BaseException:
        release_all(locks)
        raise


def is_free(path: Path) -> bool:
    """Whether the lock could be had at this moment."""
    lock = FileLock.try_take(path)
    if lock is None:
        return False
    lock.release()
    return True
