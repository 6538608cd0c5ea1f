"""What of a plan is measured already, and what that says about the rest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from draftbench.layout import Layout
from draftbench.plan.content import Plan

CellSeconds = Mapping[tuple[str, str], float]
"""Seconds of finished cells by (session key, cell key)."""


@dataclass(frozen=True)
class Progress:
    """Finished and open cells, and the expected seconds of the open ones.

    `correction` = measured / expected seconds of the finished cells; None before the first.
    The matrix never depends on it, only what is said about time.
    """

    finished: int
    open: int
    correction: float | None
    seconds_left: float


def read_measured(plan: Plan, layout: Layout, project: Path) -> CellSeconds:
    """Read what finished cells took from the client's clock in their records."""
    found = {}
    for session in plan.sessions:
        for cell in session.cells:
            try:
                record = json.loads((project / layout.cell_record(session.key, cell.key)).read_bytes())
                found[session.key, cell.key] = (record["end_ns"] - record["start_ns"]) / 1e9
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return found


def progress_of(plan: Plan, measured: CellSeconds) -> Progress:
    """Correct the estimate of the open cells by what the finished ones took.

    Sessions that overlap on the node shorten the rest as they shorten the whole plan.
    """
    expected_of_finished = expected_of_open = 0.0
    for session in plan.sessions:
        open_cells = [cell for cell in session.cells if (session.key, cell.key) not in measured]
        finished = [cell for cell in session.cells if (session.key, cell.key) in measured]
        expected_of_finished += sum(cell.expected for cell in finished)
        if open_cells:
            all_cells = sum(cell.expected for cell in session.cells)
            expected_of_open += session.expected.expected - all_cells + sum(cell.expected for cell in open_cells)
    correction = sum(measured.values()) / expected_of_finished if expected_of_finished else None
    serial = sum(session.expected.expected for session in plan.sessions)
    overlap = plan.duration.expected / serial if serial else 1.0
    return Progress(
        finished=len(measured),
        open=plan.cells - len(measured),
        correction=correction,
        seconds_left=expected_of_open * overlap * (correction or 1.0),
    )
