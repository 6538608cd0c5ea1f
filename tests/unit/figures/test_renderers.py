"""Both renderers draw the same points of one declaration."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from draftbench.figures.altair_charts import chart_spec, panel_specs
from draftbench.figures.catalogue import build_catalogue
from draftbench.figures.declaration import Axis, Figure, Panel, Point, Series, Style
from draftbench.figures.latex_text import escape
from draftbench.figures.pgfplots import picture
from draftbench.figures.scales import caption_of, tick_lines, y_range
from draftbench.figures.study import Study, read_study
from tests.unit.figures.tables_by_hand import write_hand_study

Drawn = Counter[tuple[str, str, str, str, str]]
_COORDINATE = re.compile(r"^\(([-\d.e+]+),([-\d.e+]+)\)(?: \+= \(0,([-\d.e+]+)\) -= \(0,([-\d.e+]+)\))?$")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The small study, read back from its Parquet files."""
    return read_study(write_hand_study(tmp_path_factory.mktemp("study")))


def drawn_by_pgfplots(figure: Figure) -> Drawn:
    """(series, x, y, low, high) as TeX would plot them, x of a category turned back into its name."""
    found: Drawn = Counter()
    for part in picture(figure).split("\\nextgroupplot")[1:]:
        labels = re.search(r"xticklabels=\{(.*)\}, x tick label", part)
        names = [label.replace("\\\\", "|") for label in re.findall(r"\{([^{}]*)\}", labels.group(1))] if labels else []
        for series, body in re.findall(r"% series (\S+)\n\\addplot\[.*?\] coordinates \{\n(.*?)\n\};", part, re.DOTALL):
            for line in body.splitlines():
                match = _COORDINATE.match(line)
                assert match, line
                x, y = float(match[1]), float(match[2])
                low = f"{y - float(match[4]):.4g}" if match[4] else ""
                high = f"{y + float(match[3]):.4g}" if match[3] else ""
                place = names[round(x)] if names else f"{x:.4g}"
                found[series, place, f"{y:.4g}", low, high] += 1
    return found


def drawn_by_altair(figure: Figure) -> Drawn:
    """The same from the data that the Vega-Lite specification embeds, each row once a panel."""
    found: Drawn = Counter()
    for spec in panel_specs(figure):
        for row in _rows(spec):
            ends = (f"{row['low']:.4g}", f"{row['high']:.4g}") if row["low"] is not None else ("", "")
            x = row["x"] if isinstance(row["x"], float) else None
            place = f"{x:.4g}" if x is not None else "|".join(escape(line) for line in tick_lines(row["x"]))
            found[row["key"], place, f"{row['y']:.4g}", *ends] += 1
    return found


def _rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    sets = [*spec.get("datasets", {}).values(), spec.get("data", {}).get("values", [])]
    sets += [layer["data"]["values"] for layer in spec["layer"] if "values" in layer.get("data", {})]
    distinct = {str(rows): rows for rows in sets if rows and "key" in rows[0]}
    return [row for rows in distinct.values() for row in rows]


def test_both_renderers_plot_the_same_points(study: Study) -> None:
    """For every figure of a study, print and screen show equal series, positions, values and intervals."""
    figures, _ = build_catalogue(study)
    assert len(figures) >= 11
    for figure in figures:
        printed, shown = drawn_by_pgfplots(figure), drawn_by_altair(figure)
        assert printed == shown, figure.name
        assert sum(printed.values()) == sum(len(panel.points) for panel in figure.panels), figure.name


def test_the_saved_chart_holds_every_point(study: Study) -> None:
    """The chart with its own legend, saved as JSON, SVG and PNG, embeds as many rows as the declaration has points."""
    figure = next(figure for figure in build_catalogue(study)[0] if figure.name == "speedup-by-budget")
    spec = chart_spec(figure)
    assert sum(len(rows) for name, rows in spec["datasets"].items() if name.startswith("panel")) == sum(
        len(panel.points) for panel in figure.panels
    )


def _figure(points: tuple[Point, ...]) -> Figure:
    series = Series("a", Style("50% of $x_1 & <b>", "#0072b2"), points)
    return Figure(
        name="one",
        title="T",
        category="C",
        kind="intervals",
        x=Axis("X", categories=("p_1", "p_2")),
        y=Axis("Y"),
        panels=(Panel("", (series,)),),
        caption="Caption.",
        reference=1.0,
    )


def test_a_huge_interval_does_not_squash_the_points() -> None:
    """The axis stays near the estimates; the caption then says that bars go on beyond the frame."""
    figure = _figure((Point("p_1", 1.5, 0.01, 80.0), Point("p_2", 2.0, 1.8, 2.2)))
    low, high = y_range(figure)
    assert low < 1.0
    assert 2.2 < high < 4.0
    assert caption_of(figure).endswith("the tables give their ends.")


def test_a_small_interval_is_inside_the_frame() -> None:
    """Bars that fit are shown whole and the caption stays as declared."""
    figure = _figure((Point("p_1", 1.5, 1.3, 1.7), Point("p_2", 2.0, 1.8, 2.2)))
    low, high = y_range(figure)
    assert low < 1.0
    assert high > 2.2
    assert caption_of(figure) == "Caption."


def test_labels_with_special_characters_are_escaped_for_tex() -> None:
    """A label from data cannot break the picture."""
    text = picture(_figure((Point("p_1", 1.5),)))
    assert r"50\% of \$x\_1 \& \textless{}b\textgreater{}" in text
    assert r"p\_1" in text


def test_styles_differ_in_marker_and_dash_for_grey_print(study: Study) -> None:
    """No two arms share marker or dash pattern, so that they can be told apart without colour."""
    styles = list(study.arm_styles().values())
    assert len({style.marker for style in styles}) == len(styles) == 5
    assert len({style.dash for style in styles}) == len(styles)


def test_an_arm_looks_the_same_in_every_figure(study: Study) -> None:
    """Label, colour and marker of an arm do not depend on which arms a figure holds."""
    looks: dict[str, set[Style]] = {}
    for figure in build_catalogue(study)[0]:
        if figure.by_arm:
            for key, style in figure.styles.items():
                looks.setdefault(key, set()).add(style)
    assert {"ar", "dflash", "ddtree-b15"} <= set(looks)
    assert all(len(styles) == 1 for styles in looks.values())


def test_png_and_svg_are_written_with_an_index(study: Study, tmp_path: Path) -> None:
    """Each figure lies in five formats, stale files are removed, and the index names all and what is skipped."""
    import json

    from draftbench.figures.files import KINDS, write_figures

    figures, skipped = build_catalogue(study)
    (tmp_path / "svg").mkdir()
    (tmp_path / "svg" / "old.svg").write_text("stale")
    index = json.loads(write_figures(figures[:1], skipped, tmp_path).read_text())
    assert [entry["name"] for entry in index["figures"]] == ["speedup-vs-ar"]
    assert {"speedup-session-time"} == {entry["name"] for entry in index["skipped"]}
    assert all(entry["reason"] for entry in index["skipped"])
    paths = [tmp_path / index["figures"][0]["files"][kind] for kind in KINDS]
    assert all(path.stat().st_size > 500 for path in paths)
    assert paths[KINDS.index("png")].read_bytes()[:4] == b"\x89PNG"
    assert paths[KINDS.index("pdf")].read_bytes()[:5] == b"%PDF-"
    assert not (tmp_path / "svg" / "old.svg").exists()


@pytest.mark.parametrize("scale", ["linear", "log10"])
def test_a_bar_of_any_length_stays_within_what_tex_can_draw(scale: Literal["linear", "log10"]) -> None:
    """Two blocks can give an interval from 1e-10 to 1e10; TeX's lengths end at 5.75 m, about a hundred frames."""
    points = (Point("p_1", 1.5, 1e-10, 1e10), Point("p_2", 1.2, 1.1, 1.3))
    figure = Figure(
        name="wide",
        title="Wide",
        category="Speed",
        kind="intervals",
        x=Axis("X", categories=("p_1", "p_2")),
        y=Axis("Y", scale=scale),
        panels=(Panel("", (Series("a", Style("A", "#0072b2"), points),)),),
        caption="A caption.",
    )
    low, high = y_range(figure)

    wide = next(line for line in picture(figure).splitlines() if line.startswith("(0.0000,1.5)"))
    match = _COORDINATE.match(wide)
    assert match
    assert float(match[3]) < 100 * (high - low)
