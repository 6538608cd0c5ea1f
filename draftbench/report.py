"""Both reports of one results folder, and the answer in one line for the terminal."""

from draftbench import sentences
from draftbench.figures.catalogue import build_catalogue
from draftbench.figures.study import read_study
from draftbench.html_report.page import write_html_report
from draftbench.latex_report.writing import write_latex_report
from draftbench.layout import Layout
from draftbench.provenance import atomic_write_text


def write_report(layout: Layout, *, interim: bool = False) -> list[str]:
    """report.html, report.tex, report.pdf where TeX allows, answer.txt; returns lines to tell the user.

    Raises ResultsError for unreadable tables, or where TeX stops at an error of the report itself.
    """
    study = read_study(layout)
    figures, skipped = build_catalogue(study)
    reproduce = f"python workflow_scripts/report.py --plan {layout.plan_json.as_posix()}"
    page = write_html_report(study, figures, skipped, layout, reproduce, interim=interim)
    compiled = write_latex_report(study, figures, skipped, layout, reproduce, interim=interim)
    answer = sentences.answer(study)
    atomic_write_text(layout.root / "answer.txt", f"{'INTERIM: ' if interim else ''}{answer}\n")
    return [answer, compiled.reason or f"report: {compiled.pdf}", f"report: {page}"]
