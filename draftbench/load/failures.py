"""Records of what ended without valid evidence, one file each; removed again when the same job succeeds."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from draftbench.errors import DraftbenchError, LeaseError, MeasurementError, ServerError
from draftbench.load.run_file import RunFile
from draftbench.load.stream import RequestError
from draftbench.provenance import atomic_write_bytes, utc_now
from draftbench.records import FailureRecord

Stage = Literal["launch", "warmup", "measure"]

LOG_TAIL_LINES = 60
_CLASS_OF_KIND = {"connection_lost": "crash", "timeout": "hang"}


def measurement_error(error: RequestError, where: str, server_alive: bool) -> MeasurementError:
    """What a failed request means for its cell: a dead server is a crash, whatever the stream looked like."""
    failure_class = _CLASS_OF_KIND.get(error.kind, "incomplete") if server_alive else "crash"
    return MeasurementError(f"{where} failed ({error.kind}): {error}", failure_class)


@contextmanager
def failure_recorded(run: RunFile, session: str, cell: str | None, stage: Stage) -> Iterator[None]:
    """Write a FailureRecord for any error of the block and pass it on; a former record goes on success."""
    path = run.layout.failure(session, cell or stage)
    try:
        yield
    except Exception as error:
        record = _record(run, session, cell, stage, error)
        atomic_write_bytes(path, record.model_dump_json(indent=2).encode())
        raise
    path.unlink(missing_ok=True)


def _record(run: RunFile, session: str, cell: str | None, stage: Stage, error: Exception) -> FailureRecord:
    planned = run.sessions[session]
    planned_cell = planned.cells.get(cell) if cell is not None else None
    return FailureRecord(
        experiment=run.experiment,
        session=session,
        stage=stage,
        cell=cell,
        arm=planned.arm,
        tensor_parallelism=planned.tensor_parallelism,
        block=planned.block,
        workload=planned_cell.workload if planned_cell else None,
        concurrency=planned_cell.concurrency if planned_cell else None,
        failure_class=failure_class_of(error),
        message=str(error) if isinstance(error, DraftbenchError) else f"{type(error).__name__}: {error}",
        log_tail=_log_tail(planned.server_spec.get("log_path"), error),
        time_utc=utc_now(),
    )


def failure_class_of(error: Exception) -> str:
    """The kind of failure; what nobody foresaw is `invalid`."""
    if isinstance(error, ServerError | MeasurementError):
        return str(error.failure_class)
    return "lease" if isinstance(error, LeaseError) else "invalid"


def _log_tail(log_path: object, error: Exception) -> str:
    """The error's own tail, else the end of the server's log; empty where there is none."""
    if isinstance(error, ServerError) and error.log_tail:
        return error.log_tail
    if not isinstance(log_path, str | Path):
        return ""
    try:
        with Path(log_path).open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, maxlen=LOG_TAIL_LINES))
    except OSError:
        return ""
