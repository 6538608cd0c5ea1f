"""What finished cells say about the rest of a plan."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from draftbench.layout import Layout
from draftbench.plan.budget import fit_budget, skeleton
from draftbench.plan.content import Plan
from draftbench.plan.document import build_plan
from draftbench.plan.markdown import render_markdown
from draftbench.plan.progress import progress_of, read_measured

from .conftest import MakeInputs


@pytest.fixture
def plan(make_inputs: MakeInputs) -> Plan:
    """Six sessions of two cells, one after the other."""
    inputs = make_inputs({"packing": "exclusive"})
    decision = fit_budget(inputs, {})
    return build_plan(replace(inputs, config=decision.config), skeleton(inputs, {}), decision, "c" * 64)


def test_before_the_first_cell_the_estimate_stands(plan: Plan) -> None:
    """Twelve cells are open and the rest is the whole, whose parts were rounded to seconds."""
    progress = progress_of(plan, {})
    assert (progress.finished, progress.open, progress.correction) == (0, 12, None)
    assert progress.seconds_left == pytest.approx(plan.duration.expected, abs=1)


def test_cells_that_took_twice_the_estimate_double_the_rest(plan: Plan) -> None:
    """One whole session took twice its cells' estimate; the other five are expected to take twice theirs."""
    first, *others = plan.sessions
    progress = progress_of(plan, {(first.key, cell.key): 2 * cell.expected for cell in first.cells})
    assert (progress.finished, progress.open) == (2, 10)
    assert progress.correction == pytest.approx(2.0)
    assert progress.seconds_left == pytest.approx(2 * sum(other.expected.expected for other in others), rel=0.02)


def test_durations_come_from_the_cells_records(plan: Plan, tmp_path: Path) -> None:
    """end_ns - start_ns of cell.json; a record that a kill left broken counts as open, and the document says it."""
    layout = Layout.of("test")
    first, second = plan.sessions[0], plan.sessions[1]
    for session, text in ((first, json.dumps({"start_ns": 1_000_000_000, "end_ns": 4_500_000_000})), (second, "{")):
        path = tmp_path / layout.cell_record(session.key, session.cells[0].key)
        path.parent.mkdir(parents=True)
        path.write_text(text)
    measured = read_measured(plan, layout, tmp_path)
    assert measured == {(first.key, first.cells[0].key): 3.5}
    assert "1 of 12 cells are measured already" in render_markdown(plan, progress=progress_of(plan, measured))
