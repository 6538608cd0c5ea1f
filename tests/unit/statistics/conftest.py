"""One finished synthetic study, shared by the tests that only read it."""

from pathlib import Path

import polars as pl
import pytest

from draftbench.layout import Layout
from draftbench.statistics.study_plan import StudyPlan, read_plan
from draftbench.statistics.table_writing import read_table
from tests.unit.statistics.study_factory import Study, write_all_tables, write_study

Finished = tuple[Layout, StudyPlan, dict[str, pl.DataFrame]]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A three-block study with every table written."""
    layout = write_study(tmp_path_factory.mktemp("study"), Study(blocks=3))
    write_all_tables(layout)
    return layout, read_plan(layout.plan_json), read_tables(layout)


def read_tables(layout: Layout) -> dict[str, pl.DataFrame]:
    """Every table of a results folder, each checked against its declaration."""
    return {path.stem: read_table(path.stem, layout) for path in sorted((layout.root / "tables").glob("*.parquet"))}


def analysed(root: Path, study: Study, interim: bool = False) -> dict[str, pl.DataFrame]:
    """The tables of a study that a test plants something in."""
    layout = write_study(root, study)
    write_all_tables(layout, interim)
    return read_tables(layout)
