"""Building blocks of the document: booktabs tables, figures with captions, paragraphs, key-value lists."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pylatex import NoEscape

from draftbench.figures.declaration import Figure
from draftbench.figures.latex_text import breakable, code, escape
from draftbench.figures.pgfplots import picture
from draftbench.figures.scales import caption_of
from draftbench.report_content import flattened

LONGEST_VALUE = 400
DRAFT_MACRO = "draftbenchdraft"
"""Defined while TeX settles widths of tables: pictures are left out, since drawing them takes most of its time."""


def paragraph(text: str) -> NoEscape:
    """Plain text as a paragraph."""
    return NoEscape(f"{escape(text)}\n\n")


def labelled(heading: str, sentences: Iterable[str]) -> NoEscape:
    """A run-in heading with sentences; several become a list."""
    items = list(sentences)
    head = rf"\paragraph{{{escape(heading)}.}}"
    if len(items) == 1:
        return NoEscape(f"{head} {escape(items[0])}\n\n")
    return NoEscape(f"{head}\n{itemized(items)}")


def itemized(sentences: Iterable[str]) -> NoEscape:
    """A tight bullet list."""
    lines = "\n".join(rf"  \item {breakable(sentence)}" for sentence in sentences)
    return NoEscape(f"\\begin{{itemize}}[leftmargin=1.2em, itemsep=1pt, topsep=2pt]\n{lines}\n\\end{{itemize}}\n\n")


def figure_block(figure: Figure) -> NoEscape:
    """The drawing with a title in bold and a caption that stands alone, in place and never torn apart.

    No float: longtables and floats on one page spoil each other's page breaks.
    """
    return NoEscape(
        f"\\par\\medskip\\noindent\\begin{{minipage}}{{\\textwidth}}\n\\centering\n"
        f"\\ifdefined\\{DRAFT_MACRO}\\rule{{0pt}}{{5cm}}\\else\n{picture(figure)}\n\\fi\n"
        f"\\captionof{{figure}}{{\\textbf{{{escape(figure.title)}.}} {escape(caption_of(figure))}}}\n"
        "\\end{minipage}\\par\\bigskip\n\n"
    )


def long_table(
    columns: str, header: Sequence[str], rows: Iterable[Sequence[str]], caption: str, *, size: str = "footnotesize"
) -> NoEscape:
    """A booktabs table that may cross pages; every cell is LaTeX already, header and caption are plain text."""
    heads = " & ".join(rf"\textbf{{{escape(name)}}}" for name in header)
    body = "\n".join(" & ".join(row) + r" \\" for row in rows)
    return NoEscape(
        f"{{\\{size}\\setlength{{\\tabcolsep}}{{4pt}}\n\\begin{{longtable}}{{{columns}}}\n"
        f"\\caption{{{escape(caption)}}}\\\\\n\\toprule\n{heads} \\\\\n\\midrule\n\\endfirsthead\n"
        f"\\toprule\n{heads} \\\\\n\\midrule\n\\endhead\n\\bottomrule\n\\endfoot\n"
        f"{body}\n\\end{{longtable}}}}\n\n"
    )


def key_values(content: Mapping[str, Any], caption: str) -> NoEscape:
    """Nested settings as dotted keys beside their values."""
    rows = [(code(key), breakable(_shortened(value))) for key, value in flattened(content)]
    columns = r"@{}>{\raggedright\arraybackslash}p{5.2cm}>{\raggedright\arraybackslash}p{10.2cm}@{}"
    return long_table(columns, ("Key", "Value"), rows, caption)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… (cut)"
