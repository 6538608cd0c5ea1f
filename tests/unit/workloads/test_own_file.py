"""The user's own prompts in three formats, and ten kinds of bad line."""

import json
from pathlib import Path

import pytest

from draftbench.errors import WorkloadError
from draftbench.workloads.build import build_workload
from draftbench.workloads.definitions import WorkloadDefinition
from draftbench.workloads.schema import load_rendered
from draftbench.workloads.sources.own_file import own_file_items

USER = {"role": "user", "content": "Hello"}
REPLY = {"role": "assistant", "content": "Hi."}


def write(folder: Path, *records: object) -> Path:
    """Write records as JSON lines; text goes in as it is."""
    path = folder / "own.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def test_openai_conversations(tmp_path: Path) -> None:
    """Every assistant message after the first question is a request; an open end is one, too."""
    system = {"role": "system", "content": "Be brief."}
    closed = {"messages": [system, USER, REPLY, USER, REPLY], "max_tokens": 7}
    opened = {
        "custom_id": "b",
        "body": {
            "messages": [
                USER,
                REPLY,
                {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]},
            ]
        },
    }
    first, second = own_file_items(write(tmp_path, closed, "", opened))
    assert first.item_id == "line-1"
    assert [len(request.messages) for request in first.requests] == [2, 4]
    assert [request.expectation.text for request in first.requests] == ["Hi.", "Hi."]
    assert {request.cap for request in first.requests} == {7}
    assert second.item_id == "b"
    assert [len(request.messages) for request in second.requests] == [1, 3]
    assert second.requests[1].messages[2]["content"] == "And now?"
    assert second.requests[1].expectation is None


def test_aiperf_lines_of_a_session_join(tmp_path: Path) -> None:
    """Lines of one session_id are its turns, with their delays and caps, also where sessions alternate."""
    lines = [
        {"session_id": "s", "messages": [USER], "output_length": 5},
        {"session_id": "t", "messages": [USER]},
        {"session_id": "s", "messages": [USER, REPLY, USER], "delay": 50.4, "meta": {"any": 1}},
    ]
    first, second = own_file_items(write(tmp_path, *lines))
    assert (first.item_id, second.item_id) == ("s", "t")
    assert [(len(r.messages), r.delay_ms, r.cap) for r in first.requests] == [(1, 0, 5), (3, 50, None)]


@pytest.mark.parametrize("as_array", [True, False])
def test_sharegpt(tmp_path: Path, as_array: bool) -> None:
    """human and gpt become user and assistant; a JSON array and JSON lines read the same."""
    turns = [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi."}]
    records = [{"id": "x", "conversations": turns}, {"conversations": turns[:1]}]
    path = write(tmp_path, json.dumps(records)) if as_array else write(tmp_path, *records)
    first, second = own_file_items(path)
    assert first.requests[0].messages == (USER,)
    assert first.requests[0].expectation.text == "Hi."
    assert second.requests[0].expectation is None


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('{"messages": [', "no valid JSON"),
        ('"text"', "no JSON object"),
        ({"prompt": "Hello"}, "none of AIPerf"),
        ({"messages": []}, "messages is no list of messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, r"messages\[0\]: role is none of"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, r"messages\[0\]: content is no text"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\]: content is no text"),
        ({"messages": [REPLY]}, "no message of role user"),
        ({"messages": [USER, {"role": "tool", "content": "x"}]}, r"messages\[1\]: a tool message needs tool_call_id"),
        (
            {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}]},
            r"messages\[1\]: tool_calls need",
        ),
        ({"messages": [USER], "max_tokens": 0}, "max_tokens 0 is no positive number of tokens"),
        ({"messages": [USER], "tools": [{"name": "f"}]}, "tools is no list of OpenAI tool definitions"),
        ({"session_id": "s", "messages": [USER], "delay": -1}, "delay -1 is no number of milliseconds"),
        ({"conversations": [{"from": "elf", "value": "x"}]}, "from 'elf' is none of human"),
        ({"conversations": [{"from": "human", "value": 3}]}, r"messages\[0\]: content is no text"),
        ({"id": "first", "messages": [USER]}, "id 'first' was used before"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "no valid JSON"),
        ('{"messages": [{"role": "user", "content": NaN}]}', "no valid JSON"),
    ],
)
def test_bad_line_is_named_by_number(tmp_path: Path, bad: object, problem: str) -> None:
    """File, line and problem on one line; lines count from one, blank ones included."""
    path = write(tmp_path, {"id": "first", "messages": [USER]}, "", bad)
    with pytest.raises(WorkloadError, match=rf"own.jsonl line 3: {problem}") as caught:
        own_file_items(path)
    assert "\n" not in str(caught.value)


def test_bad_bytes_and_empty_files(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, a bad entry of an array, nothing at all, and no file."""
    path = tmp_path / "own.jsonl"
    path.write_bytes(b'{"messages": [{"role": "user", "content": "\xff"}]}\n')
    with pytest.raises(WorkloadError, match=r"own.jsonl line 1: no valid JSON"):
        own_file_items(path)
    path.write_text(json.dumps([{"messages": [USER]}, {}]))
    with pytest.raises(WorkloadError, match=r"own.jsonl entry 2: none of AIPerf"):
        own_file_items(path)
    path.write_text("\n\n")
    with pytest.raises(WorkloadError, match=r"own.jsonl: holds no conversation"):
        own_file_items(path)
    with pytest.raises(WorkloadError, match=r"none.jsonl: No such file"):
        own_file_items(tmp_path / "none.jsonl")


def test_own_file_builds_with_its_caps_and_hash(tmp_path: Path, target_dir: Path) -> None:
    """The file's caps count where they are below the definition's; its hash is in the manifest."""
    path = write(
        tmp_path,
        {"session_id": "s", "messages": [USER], "output_length": 5},
        {"session_id": "s", "messages": [USER, REPLY, USER], "output_length": 500, "delay": 20},
    )
    definition = WorkloadDefinition(set="own", ranks=(0, 1), max_new_tokens=64, max_context=4096, path=str(path))
    manifest = build_workload(definition, target_dir, tmp_path / "out", tmp_path / "cache")
    (conversation,) = load_rendered(tmp_path / "out" / "rendered.jsonl")
    assert [(turn.max_new_tokens, turn.delay_ms) for turn in conversation.turns] == [(5, 0), (64, 20)]
    assert manifest.packages == ()
    assert len(manifest.source_sha256) == 64


def test_own_tools_reach_both_kinds_of_target(tmp_path: Path, target_dir: Path, tool_target_dir: Path) -> None:
    """OpenAI tools are rendered by a template that has them and put into the system message otherwise."""
    tool = {"type": "function", "function": {"name": "look_up", "description": "d", "parameters": {"type": "object"}}}
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"key": "k"}'}}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "value"},
    ]
    path = write(tmp_path, {"messages": messages, "tools": [tool]})
    definition = WorkloadDefinition(set="own", ranks=(0, 1), max_new_tokens=64, max_context=4096, path=str(path))
    native = build_workload(definition, tool_target_dir, tmp_path / "native", tmp_path)
    text = build_workload(definition, target_dir, tmp_path / "text", tmp_path)
    assert (native.tool_format, text.tool_format) == ("native", "bfcl_text")
    last = json.loads((tmp_path / "text" / "requests.jsonl").read_text().splitlines()[-1])
    assert [message["role"] for message in last["messages"]] == ["system", "user", "assistant", "user"]
    assert last["messages"][2]["content"] == "[look_up(key='k')]"
