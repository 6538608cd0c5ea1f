"""What the user reads while a study runs."""

from pathlib import Path

import pytest

from draftbench.load.progress import (
    FinishedCell,
    cells_left,
    describe_cell,
    note_finished,
    progress_line,
    read_finished,
    seconds_left,
)
from tests.unit.load.builders import CELL, SESSION, RunPlan


def finished(workload: str, seconds: float, ended: float, run: str = "now") -> FinishedCell:
    """A cell at concurrency 1."""
    return FinishedCell(run, workload, 1, seconds, ended)


def test_time_left_follows_the_kinds_and_the_run_s_own_pace() -> None:
    """Code took 10 s, json 30 s; launches made 80 s of those 40, so the pace is 2.

    Left: two code, one json and one unknown kind at the mean of 20 s: 2 x (10 + 10 + 30 + 20) = 140 s.
    """
    done = [finished("code", 10, 1010), finished("json", 30, 1080)]
    left = [("code", 1), ("code", 1), ("json", 1), ("chat", 1)]

    assert seconds_left(left, done, 1080, "now") == pytest.approx(140)


def test_former_runs_give_durations_but_no_pace() -> None:
    """Yesterday's json cell took 50 s; today's code cell 10 s of 10 s elapsed: one json left is 50 s."""
    done = [finished("json", 50, 10, run="yesterday"), finished("code", 10, 1010)]

    assert seconds_left([("json", 1)], done, 1010, "now") == pytest.approx(50)


def test_before_the_first_cell_nobody_knows() -> None:
    """No estimate rather than a wrong one, also right after an earlier run."""
    assert seconds_left([("code", 1)], [finished("code", 9, 9, run="yesterday")], 99, "now") is None


def test_a_cell_counts_as_done_by_its_cell_json(tmp_path: Path) -> None:
    """The count comes from the results, not from memory."""
    run = RunPlan(tmp_path).build()
    assert cells_left(run) == [("code", 2)]
    path = run.layout.cell_record(SESSION, CELL)
    path.parent.mkdir(parents=True)
    path.touch()

    assert cells_left(run) == []
    assert progress_line(run, "done: x") == "done: x | 1 of 1 cells done, 0 left"


def test_finished_cells_survive_a_cut_line(tmp_path: Path) -> None:
    """A line that a kill cut short is left out, the others stay."""
    run = RunPlan(tmp_path).build()
    cell = run.sessions[SESSION].cells[CELL]
    note_finished(run, cell, 12.5)
    path = run.workdir / "finished-cells.jsonl"
    path.write_text(path.read_text() + '{"run": "x", "work')

    assert [(done.kind, done.seconds) for done in read_finished(path)] == [(("code", 2), 12.5)]
    assert ", about " in progress_line(run, "next")


def test_cells_are_described_in_words(tmp_path: Path) -> None:
    """Arm, tp, block, workload and concurrency."""
    session = RunPlan(tmp_path).build().sessions[SESSION]

    assert describe_cell(session, session.cells[CELL]) == "DFlash, TP1, block 1: Code at concurrency 2"
