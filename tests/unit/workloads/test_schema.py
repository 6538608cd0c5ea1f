"""Reading a built workload back."""

import json
from pathlib import Path

import pytest

from draftbench.errors import WorkloadError
from draftbench.workloads.schema import Conversation, Turn, load_manifest, load_rendered


def line(session: str, turn: int, **changes: object) -> str:
    """A rendered request."""
    record = {"session_id": session, "turn": turn, "input_ids": [1, 2], "max_new_tokens": 8, "item_id": session}
    return json.dumps(record | changes)


def write(folder: Path, *lines: str) -> Path:
    """Write lines to rendered.jsonl."""
    path = folder / "rendered.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_conversations_come_in_file_order(tmp_path: Path) -> None:
    """Turns of a session are gathered, also where sessions alternate."""
    path = write(tmp_path, line("b", 0), line("a", 0, delay_ms=5), line("b", 1, input_ids=[1, 2, 3]))
    assert load_rendered(path) == [
        Conversation("b", "b", (Turn(0, (1, 2), 8, 0), Turn(1, (1, 2, 3), 8, 0))),
        Conversation("a", "a", (Turn(0, (1, 2), 8, 5),)),
    ]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("{", "line 2: Invalid JSON"),
        (line("a", 2), "line 2: turn 2 of session a where turn 1 was due"),
        (line("a", 0), "line 2: turn 0 of session a where turn 1 was due"),
        (line("a", 1, input_ids=[]), "line 2: input_ids: List should have at least 1 item"),
        (line("a", 1, input_ids=["x"]), "line 2: input_ids.0: Input should be a valid integer"),
        (line("a", 1, max_new_tokens=0), "line 2: max_new_tokens: Input should be greater than 0"),
        (line("a", 1, max_tokens=4), "line 2: max_tokens: Extra inputs are not permitted"),
        ("", "line 2: Invalid JSON"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, bad: str, problem: str) -> None:
    """File, line number and what is wrong, on one line."""
    path = write(tmp_path, line("a", 0), bad, line("a", 1))
    with pytest.raises(WorkloadError) as caught:
        load_rendered(path)
    assert str(path) in str(caught.value)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    """No traceback for a workload that was never built."""
    with pytest.raises(WorkloadError, match=r"rendered.jsonl: No such file or directory; build the workload again"):
        load_rendered(tmp_path / "rendered.jsonl")
    with pytest.raises(WorkloadError, match=r"manifest.json: no readable manifest"):
        load_manifest(tmp_path / "manifest.json")
