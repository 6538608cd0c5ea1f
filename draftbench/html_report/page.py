"""Renders report.html: every text from data is escaped by the template engine, every script is inline."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markdown_it import MarkdownIt
from markupsafe import Markup

from draftbench.figures.declaration import Figure, Skipped
from draftbench.figures.study import Study
from draftbench.html_report.content import page_content
from draftbench.layout import Layout

_HERE = Path(__file__).parent


def build_page(
    study: Study, figures: Sequence[Figure], skipped: Sequence[Skipped], reproduce: str, *, interim: bool = False
) -> str:
    """The whole page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    content = page_content(study, figures, skipped)
    return environment.get_template("page.html.j2").render(
        **content,
        interim=interim,
        reproduce=reproduce,
        plan_html=markdown_html(study.plan_markdown),
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        script=Markup((_HERE / "page.js").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        vega=Markup(_inside_script(_vega_bundle())),  # noqa: S704 - the library's own bundle
        charts_json=Markup(script_json(content["charts"])),  # noqa: S704 - escaped by script_json
    )


def _vega_bundle() -> str:
    bundle: Any = vl_convert.javascript_bundle  # the stub wrongly asks for an argument
    return str(bundle())


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")


def _inside_script(source: str) -> str:
    return source.replace("</script", "<\\/script")


def markdown_html(text: str) -> Markup:
    """Markdown as HTML; HTML inside it is shown as text, headings go two levels down."""
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = renderer.parse(text)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    html = renderer.renderer.render(tokens, renderer.options, {})
    wrapped = html.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    return Markup(wrapped)  # noqa: S704 - rendered with html=False


def write_html_report(
    study: Study,
    figures: Sequence[Figure],
    skipped: Sequence[Skipped],
    layout: Layout,
    reproduce: str,
    *,
    interim: bool = False,
) -> Path:
    """report.html in the results folder, replaced in one step."""
    page = build_page(study, figures, skipped, reproduce, interim=interim)
    part = layout.report_html.with_suffix(".html.part")
    part.write_text(page, encoding="utf-8")
    part.replace(layout.report_html)
    return layout.report_html
