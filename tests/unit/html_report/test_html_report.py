"""The page: self-contained, escaped, the same conclusions, and drawn by a real browser."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from draftbench import sentences
from draftbench.figures.catalogue import build_catalogue
from draftbench.figures.study import read_study
from draftbench.html_report.content import dark_variant
from draftbench.html_report.page import build_page, markdown_html, script_json, write_html_report
from draftbench.layout import Layout
from tests.unit.figures.tables_by_hand import FULL_STUDY, LOG_TAIL, HandStudy, write_hand_study

HOSTILE = '</script><script>alert(1)</script> & "quoted" <b>_{x} 50%'


def page_of(layout: Layout, *, interim: bool = False) -> str:
    """report.html of a results folder."""
    study = read_study(layout)
    return build_page(study, *build_catalogue(study), "snakemake report", interim=interim)


class _Elements(HTMLParser):
    """Tags with attributes, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self._inside or self._inside[-1] not in {"script", "style"}:
            self.words.append(data)


def parsed(page: str) -> _Elements:
    """The page as a browser's parser sees it."""
    elements = _Elements()
    elements.feed(page)
    return elements


def test_the_page_asks_nothing_of_the_network(tmp_path: Path) -> None:
    """No element loads from elsewhere, and the page's own policy forbids it."""
    elements = parsed(page_of(write_hand_study(tmp_path)))
    loading = [(tag, a) for tag, a in elements.tags if tag in {"script", "img", "link", "iframe"}]
    assert all("src" not in attributes and "href" not in attributes for _, attributes in loading)
    links = [a["href"] for tag, a in elements.tags if tag == "a" and a.get("href")]
    assert links
    assert all(link.startswith(("#", "sessions/")) for link in links if link)
    assert any("default-src 'none'" in (a.get("content") or "") for tag, a in elements.tags if tag == "meta")


def test_hostile_text_from_data_stays_text(tmp_path: Path) -> None:
    """A question or log that looks like markup is shown, not run."""
    page = page_of(write_hand_study(tmp_path, HandStudy(question=HOSTILE, lost=("dflash",))))
    assert "<script>alert(1)" not in page
    words = "".join(parsed(page).words)
    assert HOSTILE in words
    assert LOG_TAIL in words


def test_it_says_what_the_printed_report_says(tmp_path: Path) -> None:
    """Answer and every conclusion stand on the page word for word."""
    layout = write_hand_study(tmp_path)
    words = "".join(parsed(page_of(layout)).words)
    study = read_study(layout)
    assert sentences.answer(study) in words
    for entry in sentences.conclusions(study):
        assert all(sentence in words for sentence in entry.sentences)


def test_every_cell_is_a_row_with_a_link(tmp_path: Path) -> None:
    """Forty cells, forty rows: measured ones link to their folder, failed ones to their log."""
    elements = parsed(page_of(write_hand_study(tmp_path, HandStudy(lost=("dflash",)))))
    rows = [a for tag, a in elements.tags if tag == "tr" and "data-arm" in a]
    assert len(rows) == 40
    links = [str(a.get("href")) for tag, a in elements.tags if tag == "a"]
    assert sum(link.startswith("sessions/") for link in links) == 32
    assert sum(link.startswith("#failure-") for link in links) == 4


def test_interim_is_marked(tmp_path: Path) -> None:
    """The mark stands in title and page."""
    layout = write_hand_study(tmp_path)
    assert page_of(layout, interim=True).count("INTERIM:") == 2
    assert "INTERIM:" not in page_of(layout)


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path: Path) -> None:
    """No plan, no tables: no answer, no chart, the reasons."""
    words = "".join(parsed(page_of(Layout(tmp_path))).words)
    assert "No answer: the plan names no primary arm." in words
    assert "No plan.json was found beside the results." in words
    assert "Failures were not recorded." in words


@pytest.mark.slow
def test_the_full_study_stays_below_ten_megabytes(tmp_path: Path) -> None:
    """960 cells and 24 figures in one file of reasonable size."""
    layout = write_hand_study(tmp_path, FULL_STUDY)
    study = read_study(layout)
    write_html_report(study, *build_catalogue(study), layout, "x")
    assert 500_000 < layout.report_html.stat().st_size < 10_000_000


def test_markdown_of_the_plan_cannot_smuggle_html() -> None:
    """Tables are rendered, raw HTML is shown as text."""
    html = markdown_html("# Plan\n\n| a |\n|---|\n| 1 |\n\n<b>x</b>")
    assert "<h3>Plan</h3>" in html
    assert "<td>1</td>" in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html


def test_json_in_a_script_cannot_end_it() -> None:
    """No angle bracket survives, and the content is unchanged when parsed."""
    text = script_json({"a": HOSTILE})
    assert "<" not in text
    assert json.loads(text) == {"a": HOSTILE}


def test_dark_colours_are_light_enough() -> None:
    """The darkest tree colour is lightened for a dark page, a light one is kept."""
    red, green, blue = (int(dark_variant("#5c1a00")[place : place + 2], 16) for place in (1, 3, 5))
    assert 0.3 * red + 0.59 * green + 0.11 * blue > 100
    assert dark_variant("#f0c05a") == "#f0c05a"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
def test_a_browser_draws_every_chart_in_the_window(tmp_path: Path) -> None:
    """Headless Chromium runs the page under its own policy: cells are counted, every chart is drawn."""
    layout = write_hand_study(tmp_path / "study")
    study = read_study(layout)
    write_html_report(study, *build_catalogue(study), layout, "x")
    picture = tmp_path / "page.png"
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,9000", "--virtual-time-budget=30000",
    ]  # fmt: skip
    address = layout.report_html.resolve().as_uri()
    subprocess.run(["chromium", *flags, f"--screenshot={picture}", address], check=True, capture_output=True)
    assert picture.stat().st_size > 200_000
    done = subprocess.run(["chromium", *flags, "--dump-dom", address], check=True, capture_output=True)
    text = done.stdout.decode()
    assert "40 of 40 cells" in text
    assert ">This chart could not be drawn" not in text
    assert len(re.findall(r'data-drawn="yes"', text)) == len(re.findall(r'data-chart="', text))
