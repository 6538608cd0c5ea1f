"""Provenance of a study, gathered from plan and cells."""

import json
from pathlib import Path

from draftbench.figures.provenance_summary import summarize_provenance
from draftbench.layout import Layout

PLAN = {
    "config_sha256": "c0", "seed": 7, "target": {"name": "model X"}, "drafter": None,
    "sessions": [
        {"key": "one", "cells": [{"key": "a"}, {"key": "b"}]},
        {"key": "two", "cells": [{"key": "a"}]},
        {"key": "lost", "cells": [{"key": "a"}]},
    ],
}  # fmt: skip


def _cell(layout: Layout, session: str, cell: str, kernel: str) -> None:
    path = layout.cell_record(session, cell)
    path.parent.mkdir(parents=True)
    record = {"engine": "embedded", "devices": ["cpu", "x"], "provenance": {"machine": {"kernel": kernel}, "git": None}}
    path.write_text(json.dumps(record))


def test_values_that_changed_during_the_run_are_all_named(tmp_path: Path) -> None:
    """A kernel changed between sessions shows both; a session without cells is passed over."""
    layout = Layout(tmp_path)
    _cell(layout, "one", "b", "6.1")
    _cell(layout, "two", "a", "6.2")
    assert summarize_provenance(layout, PLAN) == {
        "config_sha256": "c0",
        "seed": 7,
        "target": "model X",
        "measured.engine": "embedded",
        "measured.devices": "cpu, x",
        "measured.machine.kernel": "6.1; 6.2",
    }


def test_what_aggregation_wrote_comes_first(tmp_path: Path) -> None:
    """With tables/provenance.json the cells are not read."""
    layout = Layout(tmp_path)
    _cell(layout, "one", "a", "6.1")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "provenance.json").write_text('{"machine": "written"}')
    assert summarize_provenance(layout, {}) == {"machine": "written"}


def test_nothing_known_is_empty(tmp_path: Path) -> None:
    """No plan and no cells give nothing, not an error."""
    assert summarize_provenance(Layout(tmp_path), {}) == {}
