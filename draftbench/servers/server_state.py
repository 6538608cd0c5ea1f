"""The records that a run keeps of its servers, one file each in the state folder."""

import contextlib
import os
import time
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from draftbench.servers.gpu_blocks import GpuDevice
from draftbench.servers.locks import is_free
from draftbench.servers.processes import ProcessIdentity
from draftbench.servers.server_spec import RunContext

Record = TypeVar("Record", bound=BaseModel)


class ServerState(BaseModel):
    """A server as its keeper wrote it down; written at start, and again when it is ready."""

    model_config = ConfigDict(frozen=True)

    session: str
    spec_hash: str
    instance_id: str
    phase: Literal["starting", "ready"]
    main: ProcessIdentity
    keeper: ProcessIdentity
    server: ProcessIdentity
    mark: str
    device: Literal["cuda", "cpu"]
    gpus: tuple[GpuDevice, ...]
    held: tuple[GpuDevice, ...]
    aligned: bool
    port: int
    nccl_port: int | None
    url: str
    log_path: Path
    log_offset: int
    command: tuple[str, ...]
    started_unix_s: float
    stop_timeout_s: float
    ready_s: float | None = None
    neighbours: tuple[str, ...] = ()

    @property
    def pid(self) -> int:
        """The server's process."""
        return self.server.pid

    def is_running(self) -> bool:
        """Whether keeper and server both live."""
        return self.keeper.is_alive() and self.server.is_alive()


class ServerEnd(BaseModel):
    """How an instance ended, as its keeper saw it."""

    model_config = ConfigDict(frozen=True, defer_build=True)  # not built by jobs whose servers live

    instance_id: str
    reason: str
    failure_class: str | None
    exit_code: int | None
    log_tail: str


def state_path(run: RunContext, session: str) -> Path:
    """Where a session's server is recorded."""
    return run.state_dir / f"{session}.server.json"


def end_path(run: RunContext, session: str) -> Path:
    """Where the end of a session's last instance is recorded."""
    return run.state_dir / f"{session}.end.json"


def busy_lock_path(run: RunContext, session: str) -> Path:
    """The lock that a job holds for as long as it uses the server."""
    return run.state_dir / f"{session}.busy.lock"


def progress_path(run: RunContext, session: str) -> Path:
    """The file whose time of change says when tokens last came."""
    return run.state_dir / f"{session}.progress"


def write_record(path: Path, record: BaseModel) -> None:
    """Write a record so that a reader sees all of it or the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(record.model_dump_json(indent=1))
    temporary.replace(path)


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """Read a record; None where there is none, or one of another version."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def read_state(run: RunContext, session: str) -> ServerState | None:
    """The session's server, dead or alive."""
    return read_record(state_path(run, session), ServerState)


def all_states(run: RunContext) -> list[ServerState]:
    """All recorded servers of the state folder, dead or alive."""
    states = (read_record(path, ServerState) for path in sorted(run.state_dir.glob("*.server.json")))
    return [state for state in states if state is not None]


def list_servers(run: RunContext) -> list[ServerState]:
    """The servers of this run that live now."""
    return [state for state in all_states(run) if state.main == run.main and state.is_running()]


def is_busy(run: RunContext, session: str) -> bool:
    """Whether a job uses the session's server at this moment."""
    return not is_free(busy_lock_path(run, session))


def last_used(run: RunContext, session: str) -> float:
    """Unix time when a job last took or gave back the session's server; the beginning of time when none did."""
    return _changed(busy_lock_path(run, session))


def last_progress(run: RunContext, session: str) -> float:
    """Unix time when tokens last came, or the lease began."""
    return _changed(progress_path(run, session))


def _changed(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def touch(path: Path) -> None:
    """Set a file's time of change to now; create it where missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path)


def read_previous_block(run: RunContext, session: str) -> tuple[int, ...]:
    """Indices of the GPUs that the session had last; empty when it had none."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return tuple(int(index) for index in _previous_block_path(run, session).read_text().split())
    return ()


def write_previous_block(run: RunContext, session: str, gpus: tuple[GpuDevice, ...]) -> None:
    """Remember the session's GPUs for its next start."""
    run.state_dir.mkdir(parents=True, exist_ok=True)
    _previous_block_path(run, session).write_text(" ".join(str(device.index) for device in gpus))


def _previous_block_path(run: RunContext, session: str) -> Path:
    return run.state_dir / f"{session}.gpus"


def is_warm(run: RunContext, state: ServerState) -> bool:
    """Whether this very instance has been warmed up; a restarted server has not."""
    with contextlib.suppress(FileNotFoundError):
        return _warm_path(run, state).read_text() == state.instance_id
    return False


def mark_warm(run: RunContext, state: ServerState) -> None:
    """Record that this instance has been warmed up."""
    _warm_path(run, state).write_text(state.instance_id)


def _warm_path(run: RunContext, state: ServerState) -> Path:
    return run.state_dir / f"{state.session}.warm"


def new_instance_id(server_pid: int) -> str:
    """Name one launch: the second it began and the server's pid."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{server_pid}"
