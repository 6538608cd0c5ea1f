"""The printed report: golden numbers, special characters, honest gaps, and a real PDF."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from draftbench.figures.catalogue import build_catalogue
from draftbench.figures.latex_text import breakable, code, escape
from draftbench.figures.study import read_study
from draftbench.latex_report.compiling import compile_pdf
from draftbench.latex_report.document import build_document
from draftbench.latex_report.writing import write_latex_report
from draftbench.layout import Layout
from tests.unit.figures.tables_by_hand import HandStudy, write_hand_study

HAS_TEX = shutil.which("latexmk") is not None and shutil.which("pdflatex") is not None
needs_tex = pytest.mark.skipif(not HAS_TEX, reason="no latexmk with pdflatex on this machine")


def source_of(layout: Layout, *, interim: bool = False) -> str:
    """report.tex of a results folder."""
    study = read_study(layout)
    figures, skipped = build_catalogue(study)
    return build_document(study, figures, skipped, "snakemake report --configfile my_config.yaml", interim=interim)


def test_every_special_character_is_escaped() -> None:
    """The ten characters that TeX treats specially, quotes and line ends."""
    assert escape("a_b & 50% {x} #1 $y ~ ^ \\") == (
        r"a\_b \& 50\% \{x\} \#1 \$y \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert escape("95 %") == r"95~\%"
    assert escape("two\nlines") == "two lines"


def test_unicode_without_a_glyph_is_spelled_out() -> None:
    """Accented Latin stays, known signs become commands, the rest is named by its code point."""
    assert escape("Zürich") == "Zürich"
    assert escape("×≤µ") == r"\ensuremath{\times}\ensuremath{\le}\textmu{}"
    assert escape("中") == "[U+4E2D]"


def test_long_words_may_break() -> None:
    """A hash of 64 digits gets a break at least every twelve characters; nothing else is added."""
    text = breakable("f" * 64)
    assert text.replace(r"\allowbreak{}", "") == "f" * 64
    assert max(len(piece) for piece in text.split(r"\allowbreak{}")) <= 12
    assert code("a_b") == r"\texttt{a\_\allowbreak{}b}"


def test_the_tables_numbers_stand_in_the_source(tmp_path: Path) -> None:
    """DDTree 15 on code at concurrency 1: 2.4 / 1.45 x 1.08 = 1.79, less and more 9 % = 1.63 to 1.95."""
    source = source_of(write_hand_study(tmp_path))
    assert "1.79" in source
    assert "1.63 to 1.95" in source
    table = source.split("Speed-up over AR. Triangles")[1].split(r"\end{longtable}")[0]
    code_at_1 = next(line for line in table.splitlines() if line.startswith("Code & 1 &"))
    assert re.findall(r"(\d\.\d\d)\\,", code_at_1) == ["1.64", "1.74", "1.79", "1.17"]


def test_an_interim_report_says_so_on_every_page(tmp_path: Path) -> None:
    """The mark stands on the title and in the running head."""
    layout = write_hand_study(tmp_path)
    assert source_of(layout, interim=True).count("INTERIM") == 2
    assert "INTERIM" not in source_of(layout)


def test_a_failed_arm_is_reported_with_its_message_escaped(tmp_path: Path) -> None:
    """The failure's message survives, is escaped, and the missing figure is explained."""
    source = source_of(write_hand_study(tmp_path, HandStudy(lost=("dflash",))))
    table = source.split(r"\section{Failures}")[1].split(r"\section")[0].replace(r"\allowbreak{}", "")
    assert r"CUDA\_ERROR: 100\% of \textless{}memory\textgreater{} \& no \$wap" in table
    assert "Not drawn: speed-up of draft trees over DFlash, since no arm has a speed-up against DFlash." in source


def test_no_section_is_empty(tmp_path: Path) -> None:
    """Also from an empty results folder every heading is followed by content."""
    for layout in (write_hand_study(tmp_path / "a", HandStudy(blocks=1)), Layout(tmp_path / "empty")):
        parts = re.split(r"\\section\{[^}]*\}", source_of(layout))[1:]
        assert len(parts) >= 8
        assert all(len(part.replace(r"\end{document}", "").strip()) > 30 for part in parts)


def test_without_tex_there_is_a_source_and_one_line(tmp_path: Path) -> None:
    """No TeX on the PATH: report.tex is written, an older PDF is gone, and one line says why."""
    layout = write_hand_study(tmp_path)
    layout.report_pdf.write_bytes(b"old")
    study = read_study(layout)
    compiled = write_latex_report(study, *build_catalogue(study), layout, "x", environment={"PATH": str(tmp_path)})
    assert compiled.pdf is None
    assert compiled.reason.startswith("no PDF: neither latexmk nor tectonic was found")
    assert "\n" not in compiled.reason
    assert layout.report_tex.exists()
    assert not layout.report_pdf.exists()
    assert (tmp_path / "report.tex.log").read_text().startswith("no PDF")


@needs_tex
def test_a_tex_without_a_package_gives_a_reason_not_a_crash(tmp_path: Path) -> None:
    """A minimal TeX that lacks a package is named as the cause."""
    source = tmp_path / "report.tex"
    source.write_text("\\documentclass{article}\\usepackage{nosuchpackage}\\begin{document}x\\end{document}")
    compiled = compile_pdf(source)
    assert compiled.pdf is None
    assert compiled.reason == "no PDF: this TeX lacks nosuchpackage.sty; install it as README.md says"


@needs_tex
@pytest.mark.slow
def test_the_pdf_is_real_and_nothing_leaves_its_margin(tmp_path: Path) -> None:
    """TeX builds it; no box is more than 5 pt too large, no reference or glyph is missing, no aux is left."""
    label = "50% & <b>_{x} $5 #1 ~^\\ Zürich"
    layout = write_hand_study(tmp_path, HandStudy(lost=("ddtree-b7",), question=label))
    study = read_study(layout)
    compiled = write_latex_report(study, *build_catalogue(study), layout, "snakemake report")
    assert compiled.pdf == layout.report_pdf
    too_large = [float(size) for size in re.findall(r"Overfull \\[hv]box \(([\d.]+)pt", compiled.log)]
    assert all(size <= 5 for size in too_large)
    assert not re.findall(r"undefined references|Missing character|multiply defined|Rerun to get", compiled.log)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "report.pdf", "report.tex", "report.tex.log",
    ]  # fmt: skip
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext to read the PDF with")
    text = subprocess.run(["pdftotext", "-layout", layout.report_pdf, "-"], capture_output=True, check=True).stdout
    words = text.decode()
    assert "1.63 to 1.95" in words
    assert "50% & <b>_{x} $5 #1" in words
    assert "Zürich" in words
