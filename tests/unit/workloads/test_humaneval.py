"""HumanEval in DFlash's template."""

from pathlib import Path

from draftbench.workloads.sources.humaneval import humaneval_items


def test_tasks_and_template(wheel_cache: Path) -> None:
    """164 tasks; the first prompt is DFlash's template around HumanEval/0, with tests and solution kept apart."""
    items = humaneval_items(wheel_cache)
    assert [item.item_id for item in items] == [f"HumanEval/{number}" for number in range(164)]
    request = items[0].requests[0]
    prompt = request.messages[0]["content"]
    assert prompt.startswith(
        "Write a solution to the following problem and make sure that it passes the tests:\n```python\n"
        "from typing import List\n\n\ndef has_close_elements("
    )
    assert prompt.endswith("\n```")
    assert request.expectation.expected["entry_point"] == "has_close_elements"
    assert "def check(candidate)" in request.expectation.expected["test"]
    assert "def check" not in prompt
    assert "return False" in request.expectation.text
