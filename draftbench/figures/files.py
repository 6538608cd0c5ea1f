"""Figures as files: Vega-Lite JSON, SVG, PNG, PDF and pgfplots TeX beside an index."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vl_convert

from draftbench.figures import pgfplots
from draftbench.figures.altair_charts import chart_spec
from draftbench.figures.declaration import Figure, Skipped
from draftbench.figures.scales import caption_of
from draftbench.provenance import atomic_write_text

PNG_SCALE = 2.0
INDEX_NAME = "figures.json"
KINDS = ("json", "svg", "png", "pdf", "tex")


def write_figures(figures: Sequence[Figure], skipped: Sequence[Skipped], folder: Path) -> Path:
    """Every figure in five formats, a subfolder each; return the index, written last, which lists the skipped ones too.

    Files of figures that no longer exist are removed.
    """
    for kind in KINDS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for old in (folder / kind).iterdir():
            if old.stem not in {figure.name for figure in figures}:
                old.unlink()
    entries = [_write_figure(figure, folder) for figure in figures]
    index = {"figures": entries, "skipped": [vars(entry) for entry in skipped]}
    path = folder / INDEX_NAME
    atomic_write_text(path, json.dumps(index, indent=2, ensure_ascii=False) + "\n")
    return path


def _write_figure(figure: Figure, folder: Path) -> dict[str, Any]:
    spec = json.dumps(chart_spec(figure))
    files = {kind: folder / kind / f"{figure.name}.{kind}" for kind in KINDS}
    svg = vl_convert.vegalite_to_svg(spec)
    files["json"].write_text(spec, encoding="utf-8")
    files["svg"].write_text(svg, encoding="utf-8")
    files["png"].write_bytes(vl_convert.svg_to_png(svg, scale=PNG_SCALE))
    files["pdf"].write_bytes(vl_convert.svg_to_pdf(svg))
    files["tex"].write_text(pgfplots.document(figure), encoding="utf-8")
    return {
        "name": figure.name,
        "title": figure.title,
        "category": figure.category,
        "caption": caption_of(figure),
        "files": {kind: path.relative_to(folder).as_posix() for kind, path in files.items()},
    }
