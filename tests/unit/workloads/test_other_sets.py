"""The sets of the full study beside the default three."""

import re
from pathlib import Path

import pytest

from draftbench.workloads.build import LOADERS
from draftbench.workloads.definitions import OWN_SET, SOURCE_SETS
from draftbench.workloads.items import SourceItem
from draftbench.workloads.sources.agent_sessions import agent_session_items
from draftbench.workloads.sources.bfcl import LONG_CONTEXT, multi_turn_items
from draftbench.workloads.sources.bfcl_single import single_turn_items
from draftbench.workloads.sources.gsm8k import gsm8k_items
from draftbench.workloads.sources.mtbench import mtbench_items


def test_every_declared_set_has_a_loader() -> None:
    """And every loader belongs to a declared set."""
    assert set(LOADERS) == set(SOURCE_SETS) - {OWN_SET}


def test_gsm8k(wheel_cache: Path) -> None:
    """One hundred problems whose answer is the number after #### in GSM8K's own solution."""
    items = gsm8k_items(wheel_cache)
    assert len({item.item_id for item in items}) == len(items) == 100
    for item in items:
        (request,) = item.requests
        assert request.messages[0]["content"].endswith(
            "\nPlease reason step by step, and put your final answer within \\boxed{}."
        )
        solution = request.expectation.text
        assert solution.rpartition("#### ")[2].replace(",", "") == request.expectation.expected["answer"]


def test_mtbench(wheel_cache: Path) -> None:
    """Eighty questions, of which thirty have a recorded first reply and thus a second turn."""
    items = mtbench_items(wheel_cache)
    assert len({item.item_id for item in items}) == len(items) == 80
    two_turns = [item for item in items if len(item.requests) == 2]
    assert len(two_turns) == 30
    assert [message["role"] for message in two_turns[0].requests[1].messages] == ["user", "assistant", "user"]


def test_single_turn_calls(wheel_cache: Path) -> None:
    """258 + 1,053 + 200 questions; the reference text leaves optional arguments out."""
    items = {item.item_id: item for item in single_turn_items(wheel_cache)}
    assert len(items) == 258 + 1053 + 200
    rectangle = items["parallel_multiple_3"]
    assert rectangle.requests[0].expectation.text == (
        "[get_rectangle_property(perimeter=14, area=15, property='width'), "
        "get_rectangle_property(perimeter=14, area=15, property='length')]"
    )
    ride = items["live_simple_3-2-1"]
    assert ride.tool_documents[0]["name"] == "uber.ride"
    assert ride.tools[0]["function"]["name"] == "uber_ride"
    assert ride.with_called_tools() == ride, "no recorded history, so nothing to choose tools by"


def test_long_context_sessions_have_long_results(wheel_cache: Path) -> None:
    """200 sessions with 1,203 calls (counted in the dataset); some results fill pages."""
    items = multi_turn_items(wheel_cache, LONG_CONTEXT)
    results = [
        message["content"] for item in items for message in item.requests[-1].messages if message["role"] == "tool"
    ]
    assert len(items) == 200
    assert len(results) == 1203
    assert max(map(len, results)) > 30_000
    assert not [result for result in results if result.startswith("Error during execution")]


@pytest.fixture(scope="module")
def sessions(wheel_cache: Path) -> list[SourceItem]:
    """The recorded coding-agent sessions."""
    return agent_session_items(wheel_cache)


def test_agent_sessions_are_thirteen_with_growing_histories(sessions: list[SourceItem]) -> None:
    """784 requests, each extending the one before; each reply is the text that the next history holds."""
    assert len({item.item_id for item in sessions}) == len(sessions) == 13
    assert sum(len(item.requests) for item in sessions) == 784
    for item in sessions:
        for earlier, later in zip(item.requests, item.requests[1:], strict=False):
            known = len(earlier.messages)
            assert later.messages[:known] == earlier.messages
            assert later.messages[known] == {"role": "assistant", "content": earlier.expectation.text}


def test_nothing_personal_survives_conversion(sessions: list[SourceItem]) -> None:
    """No e-mail address, home folder, public IPv4 address or key-shaped string is left anywhere.

    The patterns are written here again, wider than the converter's; only counts are compared, so that a failure
    prints no raw text.
    """
    patterns = {
        "e-mail": r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+\.[A-Za-z]{2,}",
        "home": r"/(?:home|Users)/[A-Za-z0-9._-]+",
        "address": r"(?<![\d.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\d.])",
        "key": r"\bsk-[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[A-Z0-9]{16}|-----BEGIN [A-Z ]*PRIVATE KEY",
    }
    allowed = {"user@example.com", "/home/user", "/Users/user", "192.0.2.1", "127.0.0.1", "0.0.0.0", "255.255.255.255"}
    texts = {
        text
        for item in sessions
        for text in [
            *(message["content"] for message in item.requests[-1].messages),
            *(request.expectation.text for request in item.requests),
        ]
    }
    survivors = {
        name: sum(match not in allowed for text in texts for match in re.findall(pattern, text))
        for name, pattern in patterns.items()
    }
    assert survivors == dict.fromkeys(patterns, 0)
    assert any("user@example.com" in text for text in texts), "there was something to scrub"
