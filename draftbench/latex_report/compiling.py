"""From LaTeX source to PDF, in a folder of its own so that nothing but the PDF is left beside the results."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from draftbench.errors import ResultsError
from draftbench.latex_report.blocks import DRAFT_MACRO

TIME_LIMIT_S = 1200
_MISSING_FILE = re.compile(r"File `([^']+)' not found")
_ERROR = re.compile(r"^(?:!|\S+?:\d+:) ?(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """The PDF, or the one line that says why there is none; `log` is TeX's own."""

    pdf: Path | None
    reason: str
    log: str


def compile_pdf(source: Path, environment: Mapping[str, str] | None = None) -> Compiled:
    """Build <source>.pdf beside the source with latexmk, or tectonic where that is found instead.

    Without TeX, or with one that lacks a package, there is no PDF and a reason; an older PDF is removed.
    Raises ResultsError where TeX stops at an error, which is a fault of the report.
    """
    target = source.with_suffix(".pdf")
    target.unlink(missing_ok=True)
    environment = dict(os.environ if environment is None else environment)
    commands = tex_commands(environment)
    if not commands:
        return Compiled(None, "no PDF: neither latexmk nor tectonic was found; install TeX and run again", "")
    with tempfile.TemporaryDirectory(prefix="draftbench-tex-") as name:
        folder = Path(name)
        shutil.copyfile(source, folder / "report.tex")
        output = "".join(_run([*command, "report.tex"], folder, environment) for command in commands)
        log = _read_log(folder) or output
        built = folder / "report.pdf"
        if not built.exists() or _ERROR.search(log):
            return _without_pdf(log)
        shutil.copyfile(built, target.with_suffix(".pdf.part"))
    target.with_suffix(".pdf.part").replace(target)
    return Compiled(target, "", log)


def tex_commands(environment: Mapping[str, str]) -> list[list[str]]:
    """Command lines of the TeX that is installed, in order; empty without one or with DRAFTBENCH_TEX=none."""
    path = environment.get("PATH", "")
    if environment.get("DRAFTBENCH_TEX") == "none":
        return []
    latexmk, pdflatex, tectonic = (shutil.which(name, path=path) for name in ("latexmk", "pdflatex", "tectonic"))
    if latexmk and pdflatex:
        strict = ["-interaction=nonstopmode", "-halt-on-error", "-file-line-error"]
        settle = [latexmk, "-pdf", *strict, "-norc", rf"-usepretex=\def\{DRAFT_MACRO}{{}}"]
        return [settle, [pdflatex, *strict]]
    return [[tectonic, "--keep-logs", "--chatter", "minimal"]] if tectonic else []


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, env=dict(environment), capture_output=True, timeout=TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ResultsError(f"report.tex: TeX did not finish within {TIME_LIMIT_S} s") from None
    return (done.stdout + done.stderr).decode("utf-8", errors="replace")


def _read_log(folder: Path) -> str:
    log = folder / "report.log"
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _without_pdf(log: str) -> Compiled:
    missing = _MISSING_FILE.search(log)
    if missing:
        return Compiled(None, f"no PDF: this TeX lacks {missing.group(1)}; install it as README.md says", log)
    error = _ERROR.search(log)
    detail = error.group(1).strip() if error else "no message; see report.tex.log"
    raise ResultsError(f"report.tex: TeX stopped: {detail}")
