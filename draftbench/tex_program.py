"""Which program makes the PDF, if any."""

import os
import shutil
from typing import Literal


def tex_program() -> Literal["latexmk", "tectonic"] | None:
    """The TeX driver on the PATH; DRAFTBENCH_TEX=none does without, as on a machine that has neither."""
    if os.environ.get("DRAFTBENCH_TEX") == "none":
        return None
    if shutil.which("latexmk") and shutil.which("pdflatex"):
        return "latexmk"
    return "tectonic" if shutil.which("tectonic") else None
