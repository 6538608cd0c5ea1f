"""What a user reads while a study runs: what runs now, how many cells are left, and about when it ends."""

import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from draftbench.labels import arm_label, workload_label
from draftbench.load.run_file import PlannedCell, PlannedSession, RunFile

FINISHED_FILE = "finished-cells.jsonl"

Kind = tuple[str, int]
"""(workload, concurrency): cells of one kind take about as long."""


@dataclass(frozen=True)
class FinishedCell:
    """A cell that this or a former run finished; `ended_unix_s` is wall time, `seconds` its job's duration."""

    run: str
    workload: str
    concurrency: int
    seconds: float
    ended_unix_s: float

    @property
    def kind(self) -> Kind:
        """What makes durations comparable."""
        return (self.workload, self.concurrency)


def note_finished(run: RunFile, cell: PlannedCell, seconds: float) -> None:
    """Append one line to the run's list of finished cells; a short append is whole or absent."""
    path = run.workdir / FINISHED_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    finished = FinishedCell(_this_run(), cell.workload, cell.concurrency, seconds, time.time())
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finished.__dict__) + "\n")


def read_finished(path: Path) -> list[FinishedCell]:
    """The finished cells on record; lines that a kill cut short are left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(FinishedCell(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def seconds_left(left: Sequence[Kind], finished: Sequence[FinishedCell], now_unix_s: float, run: str) -> float | None:
    """Estimated seconds until the last cell is done; None before this run has finished one.

    Durations by kind are means of finished cells; the run's own pace (elapsed time over the sum of its cells'
    durations) brings in launches, warm-ups and cells that run side by side.
    """
    own = [cell for cell in finished if cell.run == run]
    if not own:
        return None
    elapsed = now_unix_s - min(cell.ended_unix_s - cell.seconds for cell in own)
    pace = elapsed / sum(cell.seconds for cell in own)
    expected = expected_seconds(finished)
    overall = mean(cell.seconds for cell in finished)
    return pace * sum(expected.get(kind, overall) for kind in left)


def expected_seconds(finished: Sequence[FinishedCell]) -> Mapping[Kind, float]:
    """Mean duration by kind."""
    by_kind: dict[Kind, list[float]] = defaultdict(list)
    for cell in finished:
        by_kind[cell.kind].append(cell.seconds)
    return {kind: mean(seconds) for kind, seconds in by_kind.items()}


def cells_left(run: RunFile) -> list[Kind]:
    """The planned cells without a cell.json."""
    return [
        (cell.workload, cell.concurrency)
        for session_key, session in run.sessions.items()
        for cell_key, cell in session.cells.items()
        if not run.layout.cell_record(session_key, cell_key).exists()
    ]


def progress_line(run: RunFile, doing: str) -> str:
    """`measure DDTree 15, ... | 12 of 40 cells done, 28 left, about 9 min, until about 23:40`."""
    left = cells_left(run)
    total = sum(len(session.cells) for session in run.sessions.values())
    now = time.time()
    seconds = seconds_left(left, read_finished(run.workdir / FINISHED_FILE), now, _this_run())
    return f"{doing} | {total - len(left)} of {total} cells done, {len(left)} left{_ending(seconds, now)}"


def describe_session(session: PlannedSession) -> str:
    """`DDTree 15, TP1, block 2`."""
    label = arm_label(session.arm, session.method, session.draft_budget)
    return f"{label}, TP{session.tensor_parallelism}, block {session.block}"


def describe_cell(session: PlannedSession, cell: PlannedCell) -> str:
    """`DDTree 15, TP1, block 2: Code at concurrency 4`."""
    return f"{describe_session(session)}: {workload_label(cell.workload)} at concurrency {cell.concurrency}"


def _ending(seconds: float | None, now_unix_s: float) -> str:
    if seconds is None:
        return ""
    end = time.strftime("%H:%M", time.localtime(now_unix_s + seconds))
    return f", about {_duration(seconds)}, until about {end}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _this_run() -> str:
    return os.environ.get("DRAFTBENCH_MAIN", "")
