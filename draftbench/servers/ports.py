"""TCP ports, each behind a lock file, so that two servers that start together never choose the same one."""

import random
import socket
from pathlib import Path

from draftbench.errors import LeaseError
from draftbench.servers.locks import FileLock

# Below Linux's ephemeral range (32768 to 60999), so that no outgoing connection sits on one.
PORT_RANGE = range(21_000, 29_000)


def port_lock_path(node_lock_dir: Path, port: int) -> Path:
    """Where the lock of a port lies."""
    return node_lock_dir / f"port-{port}.lock"


def can_bind(port: int) -> bool:
    """Whether nothing listens on the port on any local address; nothing is exposed by the test."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT does not count
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def try_take_port(node_lock_dir: Path, port: int) -> FileLock | None:
    """Take a port's lock if the port is free too."""
    lock = FileLock.try_take(port_lock_path(node_lock_dir, port))
    if lock is not None and not can_bind(port):
        lock.release()
        return None
    return lock


def take_port(node_lock_dir: Path, requested: int | None = None) -> tuple[int, FileLock]:
    """Take the requested port, or a free one of the range.

    The search starts anywhere: another user's servers, behind locks of their own, may be starting at this moment.
    Raises LeaseError when the requested port is in use, or all of the range are.
    """
    if requested is not None:
        lock = try_take_port(node_lock_dir, requested)
        if lock is None:
            raise LeaseError(f"port {requested} is in use; set another `port` in the engine entry, or leave it out")
        return requested, lock
    start = random.randrange(len(PORT_RANGE))
    for port in (*PORT_RANGE[start:], *PORT_RANGE[:start]):
        lock = try_take_port(node_lock_dir, port)
        if lock is not None:
            return port, lock
    raise LeaseError(f"no free port between {PORT_RANGE.start} and {PORT_RANGE.stop - 1}")
