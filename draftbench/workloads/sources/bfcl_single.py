"""BFCL v4 single-turn tool calls (package bfcl-eval, Apache-2.0): one question, documents, one or more calls.

The answers are lists of admissible values; an empty string among them means that the argument may be left out.
"""

from pathlib import Path
from typing import Any

import orjson

from draftbench.workloads.bfcl_calls import FunctionCall
from draftbench.workloads.items import Expectation, SourceItem, SourceRequest
from draftbench.workloads.packages import BFCL_EVAL, fetch_wheel, read_member
from draftbench.workloads.sources.bfcl import DATA, openai_tool

CATEGORIES = ("live_simple", "live_multiple", "parallel_multiple")


def single_turn_items(cache_dir: Path) -> list[SourceItem]:
    """Return the questions of all categories, in the dataset's order."""
    wheel = fetch_wheel(BFCL_EVAL, cache_dir)
    return [item for category in CATEGORIES for item in _category(wheel, category)]


def _category(wheel: Path, category: str) -> list[SourceItem]:
    answers = {
        entry["id"]: entry["ground_truth"] for entry in _lines(wheel, f"{DATA}possible_answer/BFCL_v4_{category}.json")
    }
    return [_item(entry, answers[entry["id"]]) for entry in _lines(wheel, f"{DATA}BFCL_v4_{category}.json")]


def _item(entry: dict[str, Any], answers: list[dict[str, dict[str, list[Any]]]]) -> SourceItem:
    calls = [{"name": name, "arguments": arguments} for answer in answers for name, arguments in answer.items()]
    expectation = Expectation("bfcl_answer", {"calls": calls}, _first_answer(calls))
    documents = tuple(entry["function"])
    request = SourceRequest(tuple(entry["question"][0]), expectation)
    return SourceItem(entry["id"], (request,), tuple(map(openai_tool, documents)), documents)


def _first_answer(calls: list[dict[str, Any]]) -> str:
    """Return the calls with the first admissible value of each argument that is not left out."""
    made = [
        FunctionCall(
            call["name"], {name: values[0] for name, values in call["arguments"].items() if values and "" not in values}
        )
        for call in calls
    ]
    return f"[{', '.join(map(str, made))}]"


def _lines(wheel: Path, member: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in read_member(wheel, member).splitlines() if line.strip()]
