"""The log of a session's server: one file, a header line before each instance."""

import os
import time
from pathlib import Path

from draftbench.servers.server_spec import ServerSpec

LOG_TAIL_BYTES = 16_384
LOG_TAIL_LINES = 60


def append_line(path: Path, text: str) -> int:
    """Write one line of ours; where the log goes on after it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        log.write(f"===== draftbench: {text}\n".encode())
        return log.tell()


def append_header(spec: ServerSpec, gpus: str, command: list[str]) -> int:
    """Say which instance begins; where its own lines begin."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return append_line(spec.log_path, f"{spec.session} started {when} on {spec.device} {gpus}: {command}")


def read_log_tail(path: Path, offset: int) -> str:
    """Read the last lines that an instance wrote, nothing of those before it."""
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(offset, size - LOG_TAIL_BYTES))
        lines = log.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])
