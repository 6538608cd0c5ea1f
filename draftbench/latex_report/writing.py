"""Writes report.tex and, where TeX is installed, report.pdf."""

from collections.abc import Mapping, Sequence

from draftbench.figures.declaration import Figure, Skipped
from draftbench.figures.study import Study
from draftbench.latex_report.compiling import Compiled, compile_pdf
from draftbench.latex_report.document import build_document
from draftbench.layout import Layout


def write_latex_report(
    study: Study,
    figures: Sequence[Figure],
    skipped: Sequence[Skipped],
    layout: Layout,
    reproduce: str,
    *,
    interim: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Compiled:
    """report.tex, report.tex.log and report.pdf in the results folder.

    Raises ResultsError where TeX stops at an error.
    """
    layout.report_tex.parent.mkdir(parents=True, exist_ok=True)
    source = build_document(study, figures, skipped, reproduce, interim=interim)
    layout.report_tex.write_text(source, encoding="utf-8")
    compiled = compile_pdf(layout.report_tex, environment)
    text = compiled.log if compiled.pdf else f"{compiled.reason}\n{compiled.log}"
    layout.report_tex.with_suffix(".tex.log").write_text(text, encoding="utf-8")
    return compiled
