"""BFCL sessions: the dataset's own calls, executed by its own simulators."""

import ast
import json
from pathlib import Path

import pytest

from draftbench.workloads.items import SourceItem
from draftbench.workloads.packages import BFCL_EVAL, fetch_wheel, read_member
from draftbench.workloads.sources.bfcl import multi_turn_items, openai_tool, tool_results
from draftbench.workloads.tool_text import SYSTEM_PROMPT, as_text


@pytest.fixture(scope="module")
def items(wheel_cache: Path) -> list[SourceItem]:
    """All sessions of multi_turn_base."""
    return multi_turn_items(wheel_cache)


def session(calls: list[dict[str, object]], **changes: object) -> dict[str, object]:
    """A session with a file system of one folder, `calls` on it."""
    root = {"home": {"type": "directory", "contents": {"a.txt": {"type": "file", "content": "one"}}}}
    return {
        "item_id": "session",
        "initial_config": {"GorillaFileSystem": {"root": root}},
        "involved_classes": ["GorillaFileSystem"],
        "long_context": False,
        "allowed": ["ls", "cat", "rm"],
        "calls": calls,
    } | changes


def test_every_call_is_a_request_and_every_user_turn_ends_with_one(items: list[SourceItem]) -> None:
    """200 sessions with 1,142 ground-truth calls in 734 user turns (counted in the dataset) make 1,876 requests."""
    requests = [request for item in items for request in item.requests]
    assert len(items) == 200
    assert sum(request.expectation is not None for request in requests) == 1142
    assert len(requests) == 1142 + 734


def test_first_session_is_as_in_the_dataset(items: list[SourceItem]) -> None:
    """The first exchange of multi_turn_base_0, followed by hand through the simulator's source."""
    item = items[0]
    last = item.requests[-1].messages
    assert item.item_id == "multi_turn_base_0"
    assert [message["role"] for message in last[:4]] == ["user", "assistant", "tool", "assistant"]
    assert last[1]["tool_calls"][0]["function"] == {"name": "cd", "arguments": '{"folder":"document"}'}
    assert last[2]["content"] == '{"current_working_directory": "document"}'
    assert "cp" not in {tool["function"]["name"] for tool in item.tools}, "cp is this session's excluded function"


def test_ground_truth_calls_execute_without_error(items: list[SourceItem]) -> None:
    """The dataset's calls fit its simulators: no result is an execution error."""
    results = [
        message["content"] for item in items for message in item.requests[-1].messages if message["role"] == "tool"
    ]
    assert len(results) == 1142
    assert not [result for result in results if result.startswith("Error during execution")]


def test_histories_only_grow(items: list[SourceItem]) -> None:
    """Each request's history starts with the previous request's, so that a prefix cache can serve it."""
    for item in items:
        for earlier, later in zip(item.requests, item.requests[1:], strict=False):
            assert later.messages[: len(earlier.messages)] == earlier.messages


def test_only_listed_functions_are_called(wheel_cache: Path) -> None:
    """Private methods, functions outside the list and arguments that do not fit are answered with an error."""
    results = tool_results(
        [
            session(
                [
                    {"name": "ls", "arguments": {}},
                    {"name": "_load_scenario", "arguments": {"scenario": {}}},
                    {"name": "touch", "arguments": {"file_name": "b.txt"}},
                    {"name": "cat", "arguments": {"wrong": 1}},
                    {"name": "ls", "arguments": {}},
                ],
                allowed=["ls", "cat", "_load_scenario"],
            )
        ],
        wheel_cache,
    )[0]
    assert json.loads(results[0]) == {"current_directory_content": ["a.txt"]}
    assert results[1] == "Error during execution: name '_load_scenario' is not defined"
    assert results[2] == "Error during execution: name 'touch' is not defined"
    assert "unexpected keyword argument 'wrong'" in results[3]
    assert results[4] == results[0]


def test_sessions_do_not_see_each_other(wheel_cache: Path) -> None:
    """A session after one that removed the file still finds it."""
    look = session([{"name": "ls", "arguments": {}}])
    remove = session([{"name": "rm", "arguments": {"file_name": "a.txt"}}, {"name": "ls", "arguments": {}}])
    before, removed, after = tool_results([look, remove, look], wheel_cache)
    assert json.loads(removed[1]) == {"current_directory_content": []}
    assert before == after == ['{"current_directory_content": ["a.txt"]}']


def test_age_is_computed_on_the_pinned_day(wheel_cache: Path) -> None:
    """Someone born on 23 March 2008 is 18 on the wheel's day (2026-03-23); a day younger is not, for ever."""
    person = {"first_name": "A", "last_name": "B", "passport_number": "US1"}
    results = tool_results(
        [
            session(
                [
                    {"name": "verify_traveler_information", "arguments": person | {"date_of_birth": "2008-03-23"}},
                    {"name": "verify_traveler_information", "arguments": person | {"date_of_birth": "2008-03-24"}},
                ],
                involved_classes=["TravelAPI"],
                initial_config={"TravelAPI": {"user_first_name": "A", "user_last_name": "B"}},
                allowed=["verify_traveler_information"],
            )
        ],
        wheel_cache,
    )[0]
    assert [json.loads(result)["verification_status"] for result in results] == [True, False]


def test_tools_are_json_schema() -> None:
    """BFCL's type names become JSON Schema's; a property called "type" and its text stay."""
    document = {
        "name": "f",
        "description": "d.",
        "parameters": {
            "type": "dict",
            "properties": {"type": {"type": "float"}, "xs": {"type": "array", "items": {"type": "dict"}}},
            "required": ["type"],
        },
        "response": {"type": "dict"},
    }
    assert openai_tool(document) == {
        "type": "function",
        "function": {
            "name": "f",
            "description": 'd. The response field has the following schema: {"type":"dict"}',
            "parameters": {
                "type": "object",
                "properties": {"type": {"type": "number"}, "xs": {"type": "array", "items": {"type": "object"}}},
                "required": ["type"],
            },
        },
    }


def test_system_prompt_is_bfcls_own(wheel_cache: Path) -> None:
    """The text form's prompt equals what BFCL's source composes from its templates."""
    source = read_member(fetch_wheel(BFCL_EVAL, wheel_cache), "bfcl_eval/constants/default_prompts.py").decode()
    constants = {
        target.id: node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    style = ast.literal_eval(constants["PROMPT_STYLE_TEMPLATES"])["classic"]
    call_form = ast.literal_eval(constants["OUTPUT_FORMAT_MAPPING"])["python"]
    layout = ast.literal_eval(constants["_PLAINTEXT_SYSTEM_PROMPT_TEMPLATE"])
    composed = layout.format(
        persona=style["persona"],
        task=style["task"],
        tool_call_format=style["tool_call_no_tag"].format(output_format=call_form, param_types=""),
        multiturn_behavior=style["multiturn_behavior"],
        available_tools=style["available_tools"].format(format="json", functions="DOCUMENTS"),
    )
    assert SYSTEM_PROMPT.format(functions="DOCUMENTS") == composed


def test_text_form_of_an_exchange(items: list[SourceItem]) -> None:
    """Calls become BFCL's text, results a user message, and the next question joins the last result."""
    item = items[0]
    converted = as_text(item.requests[-1].messages, item.tool_documents)
    assert [message["role"] for message in converted[:4]] == ["system", "user", "assistant", "user"]
    assert converted[0]["content"].endswith(json.dumps(list(item.tool_documents), ensure_ascii=False) + "\n")
    assert converted[2]["content"] == "[cd(folder='document')]"
    assert converted[3]["content"] == (
        "[{'role': 'tool', 'name': \"cd(folder='document')\", "
        "'content': '{\"current_working_directory\": \"document\"}'}]"
    )
    assert converted[7]["content"].endswith(
        "\n\nPerform a detailed search using grep to identify sections in the file pertaining to 'budget analysis'."
    )
    assert {message["role"] for message in converted} == {"system", "user", "assistant"}


def test_called_tools_are_those_of_the_session(items: list[SourceItem]) -> None:
    """multi_turn_base_0 calls cd, mkdir, mv, grep, sort and diff, and no Twitter function."""
    reduced = items[0].with_called_tools()
    expected = {"cd", "mkdir", "mv", "grep", "sort", "diff"}
    assert {tool["function"]["name"] for tool in reduced.tools} == expected
    assert {document["name"] for document in reduced.tool_documents} == expected
