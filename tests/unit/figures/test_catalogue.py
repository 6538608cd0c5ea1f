"""Which figures a study gives, and what they plot."""

from pathlib import Path

import pytest

from draftbench.errors import ResultsError
from draftbench.figures.catalogue import build_catalogue
from draftbench.figures.declaration import Figure
from draftbench.figures.study import Study, read_study
from draftbench.layout import Layout
from tests.unit.figures.tables_by_hand import FULL_STUDY, HandStudy, speedup_of, write_hand_study


def figure_named(study: Study, name: str) -> Figure:
    """The figure of this name."""
    return next(figure for figure in build_catalogue(study)[0] if figure.name == name)


def test_points_are_the_tables_numbers_with_the_verdicts_interval(tmp_path: Path) -> None:
    """Speed-up over AR plots the estimate and the adjusted interval, 9 % each way in this study, untouched."""
    study = read_study(write_hand_study(tmp_path))
    series = {one.key: one for one in figure_named(study, "speedup-vs-ar").panels[0].series}
    points = {point.x: point for point in series["ddtree-b15"].points}
    truth = speedup_of("ddtree-b15", "code", 4)
    assert points["Code, c = 4"].y == pytest.approx(truth)
    assert points["Code, c = 4"].low == pytest.approx(truth * 0.91)
    assert points["Code, c = 4"].high == pytest.approx(truth * 1.09)
    assert "ar" not in series


def test_trees_against_the_chain_are_their_own_figure(tmp_path: Path) -> None:
    """The second ratio is as prominent as the first and holds trees only."""
    study = read_study(write_hand_study(tmp_path))
    names = [figure.name for figure in build_catalogue(study)[0]]
    assert names[:2] == ["speedup-vs-ar", "speedup-vs-dflash"]
    assert list(figure_named(study, "speedup-vs-dflash").styles) == ["ddtree-b7", "ddtree-b15", "ddtree-b31"]


def test_the_chain_stands_at_its_own_verify_width(tmp_path: Path) -> None:
    """A chain of width 8 verifies 7 drafts and stands above the tree of 7 nodes."""
    study = read_study(write_hand_study(tmp_path))
    series = {one.key: one for one in figure_named(study, "yield-by-budget").panels[0].series}
    assert [point.x for point in series["tree"].points] == [7.0, 15.0, 31.0]
    assert [point.x for point in series["chain"].points] == [7.0]


def test_decomposition_multiplies_to_the_speedup(tmp_path: Path) -> None:
    """The plotted yield ratio times the plotted step-time ratio is the plotted speed-up."""
    study = read_study(write_hand_study(tmp_path))
    for panel in figure_named(study, "decomposition").panels:
        values = {series.key: [point.y for point in series.points] for series in panel.series}
        products = [a * b for a, b in zip(values["yield_ratio"], values["step_time_ratio"], strict=True)]
        assert products == pytest.approx(values["speedup"])


def test_missing_data_skip_a_figure_with_the_reason(tmp_path: Path) -> None:
    """Without DFlash there is no figure against it, and the reason is kept."""
    study = read_study(write_hand_study(tmp_path, HandStudy(lost=("dflash",))))
    figures, skipped = build_catalogue(study)
    assert "speedup-vs-dflash" not in [figure.name for figure in figures]
    assert {entry.name: entry.reason for entry in skipped}["speedup-vs-dflash"] == (
        "no arm has a speed-up against DFlash"
    )


def test_an_empty_folder_gives_no_figure_and_a_reason_for_each(tmp_path: Path) -> None:
    """A results folder without tables is no error: every figure is skipped."""
    figures, skipped = build_catalogue(read_study(Layout(tmp_path)))
    assert figures == []
    assert len(skipped) == 13
    assert all(entry.reason for entry in skipped)


def test_a_single_block_plots_points_without_bars(tmp_path: Path) -> None:
    """One block gives points, no intervals, and a caption that says why."""
    study = read_study(write_hand_study(tmp_path, HandStudy(blocks=1)))
    figure = figure_named(study, "speedup-vs-ar")
    assert not any(point.has_interval for panel in figure.panels for point in panel.points)
    assert "single block" in figure.caption


def test_the_full_study_is_split_by_tensor_parallelism_and_workload(tmp_path: Path) -> None:
    """Two tensor parallelisms give two figures; five workloads give five panels with concurrency on the axis."""
    study = read_study(write_hand_study(tmp_path, FULL_STUDY))
    figure = figure_named(study, "speedup-vs-ar-tp8")
    assert [panel.title for panel in figure.panels] == ["Agentic", "Chat", "Code", "JSON", "Math"]
    assert figure.x.categories == ("c = 1", "c = 4", "c = 16", "c = 32")
    assert {point.tensor_parallelism for panel in figure.panels for point in panel.points} == {8}


def test_a_broken_table_is_one_clear_line(tmp_path: Path) -> None:
    """A damaged Parquet file names itself and what to do."""
    layout = write_hand_study(tmp_path)
    layout.table("levels").write_bytes(b"not parquet")
    with pytest.raises(ResultsError, match=r"levels\.parquet: cannot be read as Parquet .*run the statistics rule"):
        read_study(layout)
