"""Puts the document together: title with the answer, then every section that has content."""

from collections.abc import Sequence

from pylatex import Document, NoEscape, Package

from draftbench import sentences
from draftbench.figures.declaration import Figure, Skipped
from draftbench.figures.latex_text import code, escape
from draftbench.figures.pgfplots import PREAMBLE
from draftbench.figures.study import Study
from draftbench.latex_report.sections import SECTIONS, Material

_STYLE = r"""
\definecolor{accent}{RGB}{0,90,150}
\captionsetup{hypcap=false, font=small, labelfont=bf, justification=raggedright, singlelinecheck=false, skip=5pt}
\titleformat{\section}{\Large\bfseries\sffamily\color{accent}}{\thesection}{0.6em}{}
\titlespacing*{\section}{0pt}{2.4ex plus .6ex}{1.1ex}
\titleformat{\paragraph}[runin]{\normalfont\normalsize\bfseries\sffamily}{}{0pt}{}
\titlespacing*{\paragraph}{0pt}{1.4ex plus .4ex}{0.6em}
\setlength{\parindent}{0pt}\setlength{\parskip}{0.55ex plus .2ex}
\setlength{\LTcapwidth}{\textwidth}\setlength{\LTleft}{0pt}
\renewcommand{\arraystretch}{1.12}
\raggedbottom
\emergencystretch=3em
\pagestyle{fancy}\fancyhf{}\renewcommand{\headrulewidth}{0.3pt}
"""


def build_document(
    study: Study, figures: Sequence[Figure], skipped: Sequence[Skipped], reproduce: str, *, interim: bool = False
) -> str:
    """LaTeX source of the whole report; `reproduce` is the command that makes it again."""
    document = Document(
        documentclass="article",
        document_options=["a4paper", "10pt"],
        fontenc="T1",
        inputenc="utf8",
        lmodern=False,
        textcomp=True,
        microtype=True,
        page_numbers=False,
        indent=True,
        geometry_options={"a4paper": True, "hmargin": "2.5cm", "top": "2.3cm", "bottom": "2.3cm"},
    )
    _packages(document)
    document.preamble.append(NoEscape(PREAMBLE + _STYLE + _running_heads(study, interim)))
    document.append(NoEscape(_title(study, interim)))
    material = Material(study, figures, skipped, code(reproduce))
    for title, build in SECTIONS:
        blocks = build(material)
        if blocks:
            document.append(NoEscape(f"\\section{{{escape(title)}}}\n"))
            document.extend(blocks)
    return str(document.dumps())


def _packages(document: Document) -> None:
    document.packages.append(Package("mathpazo"))
    document.packages.append(Package("helvet", options=["scaled=0.9"]))
    for name in ("amsmath", "amssymb", "booktabs", "longtable", "array", "caption", "enumitem", "titlesec", "fancyhdr"):
        document.packages.append(Package(name))
    document.packages.append(Package("xcolor"))
    document.packages.append(Package("siunitx"))
    document.packages.append(Package("hyperref", options=["hidelinks"]))


def _running_heads(study: Study, interim: bool) -> str:
    mark = r"\textbf{INTERIM} \textbullet\ " if interim else ""
    return (
        f"\\fancyhead[L]{{\\footnotesize\\sffamily {mark}{escape(study.experiment)}}}\n"
        "\\fancyfoot[C]{\\footnotesize\\sffamily\\thepage}\n"
        f"\\hypersetup{{pdftitle={{{escape(study.experiment)}: speculative decoding report}}}}\n"
    )


def _title(study: Study, interim: bool) -> str:
    banner = ""
    if interim:
        banner = (
            "{\\color{red!70!black}\\bfseries\\sffamily INTERIM: made from the valid cells that exist so far; "
            "numbers and verdicts will change.}\\par\\medskip\n"
        )
    return (
        f"\\thispagestyle{{plain}}\n{banner}"
        f"{{\\sffamily\\footnotesize\\color{{black!60}}Speculative decoding report: {escape(study.experiment)}\\par}}\n"
        f"\\medskip{{\\LARGE\\bfseries\\sffamily\\raggedright {escape(study.question or study.experiment)}\\par}}\n"
        "\\bigskip\\noindent{\\color{accent}\\rule{\\textwidth}{1.2pt}}\\par\\smallskip\n"
        f"{{\\large\\raggedright {escape(sentences.answer(study))}\\par}}\n"
        "\\smallskip\\noindent{\\color{accent}\\rule{\\textwidth}{0.4pt}}\\par\n"
    )
