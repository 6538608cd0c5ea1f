"""Figures as files: Vega-Lite JSON, SVG, PNG, PDF and pgfplots TeX beside an index."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vl_convert

from draftbench.figures import pgfplots
from draftbench.figures.altair_charts import chart
from draftbench.figures.declaration import Figure, Skipped

PNG_SCALE = 2.0
INDEX_NAME = "figures.json"


def write_figures(figures: Sequence[Figure], skipped: Sequence[Skipped], folder: Path) -> Path:
    """Write every figure in five formats; return the index, which is written last and lists the skipped ones too."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {f"{figure.name}{ending}" for figure in figures for ending in (".json", ".svg", ".png", ".pdf", ".tex")}
    for old in folder.iterdir():
        if old.is_file() and old.name not in wanted:
            old.unlink()
    entries = [_write_figure(figure, folder) for figure in figures]
    index = {"figures": entries, "skipped": [vars(entry) for entry in skipped]}
    path = folder / INDEX_NAME
    path.write_text(json.dumps(index, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _write_figure(figure: Figure, folder: Path) -> dict[str, Any]:
    spec = chart(figure).to_json(indent=None)
    files = {name: folder / f"{figure.name}.{name}" for name in ("json", "svg", "png", "pdf", "tex")}
    files["json"].write_text(spec, encoding="utf-8")
    files["svg"].write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
    files["png"].write_bytes(vl_convert.vegalite_to_png(spec, scale=PNG_SCALE))
    files["pdf"].write_bytes(vl_convert.vegalite_to_pdf(spec))
    files["tex"].write_text(pgfplots.document(figure), encoding="utf-8")
    return {
        "name": figure.name,
        "title": figure.title,
        "category": figure.category,
        "caption": figure.caption,
        "files": {name: path.name for name, path in files.items()},
    }
