"""A workload before it meets a target: conversations as OpenAI chat messages."""

from dataclasses import dataclass, replace
from typing import Any

Message = dict[str, Any]
"""An OpenAI chat message: role, content, tool_calls."""


@dataclass(frozen=True)
class Expectation:
    """What a reply is checked against; `text` is a reference reply where the source has one."""

    check: str
    expected: dict[str, Any]
    text: str | None = None


@dataclass(frozen=True)
class SourceRequest:
    """One request with its full history.

    `delay_ms` passes after the previous reply, before this request; `cap` is the source's own limit in new tokens.
    """

    messages: tuple[Message, ...]
    expectation: Expectation | None = None
    delay_ms: int = 0
    cap: int | None = None


@dataclass(frozen=True)
class SourceItem:
    """A conversation: its requests in order.

    `tools` are OpenAI tool definitions; `tool_documents` the source's own form of them, which goes into the
    system message of a target whose chat template has no tools.
    """

    item_id: str
    requests: tuple[SourceRequest, ...]
    tools: tuple[dict[str, Any], ...] = ()
    tool_documents: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        assert self.requests, self.item_id

    def with_called_tools(self) -> "SourceItem":
        """Return the item with only those tools that its own conversation calls; unchanged where it calls none."""
        called = {
            call["function"]["name"]
            for message in self.requests[-1].messages
            for call in message.get("tool_calls") or ()
        }
        if not called:
            return self
        return replace(
            self,
            tools=tuple(tool for tool in self.tools if tool["function"]["name"] in called),
            tool_documents=tuple(document for document in self.tool_documents if document["name"] in called),
        )
