"""The user's own prompts: AIPerf traces, OpenAI-style JSONL, ShareGPT-style JSON or JSONL, told apart by keys.

Recorded replies become frozen history: each assistant message is one request with what precedes it.
AIPerf lines carry their whole history and are one request each.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from draftbench.errors import WorkloadError
from draftbench.workloads.items import Expectation, Message, SourceItem, SourceRequest

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
}
CAP_KEYS = ("max_completion_tokens", "max_tokens")


class _BadRecordError(Exception):
    """What is wrong with one record; the reader adds where it stands."""


def own_file_items(path: Path) -> list[SourceItem]:
    """Return the conversations of a file in order.

    Raises WorkloadError naming the file and the line (the entry, in a JSON array) of the first bad record.
    """
    items: dict[str, SourceItem] = {}
    for where, record in _records(path):
        try:
            item, continues = _read(record, f"{where.replace(' ', '-')}")
            if item.item_id in items and not continues:
                raise _BadRecordError(f"id {item.item_id!r} was used before")
        except _BadRecordError as problem:
            raise WorkloadError(f"{path} {where}: {problem}") from None
        items[item.item_id] = _joined(items.get(item.item_id), item)
    if not items:
        raise WorkloadError(f"{path}: holds no conversation")
    return list(items.values())


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield ("line 3", record) or, for a JSON array, ("entry 3", record)."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}") from None
    if content.lstrip().startswith(b"["):
        for number, record in enumerate(_json(content, f"{path}"), start=1):
            yield f"entry {number}", record
        return
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield f"line {number}", _json(line, f"{path} line {number}")


def _json(content: bytes, where: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise WorkloadError(f"{where}: no valid JSON: {error.msg}") from None


def _read(record: Any, default_id: str) -> tuple[SourceItem, bool]:
    """Return the item of a record, and whether records of the same id continue one conversation."""
    if not isinstance(record, dict):
        raise _BadRecordError("no JSON object")
    if "session_id" in record and "messages" in record:
        return _aiperf(record), True
    if "conversations" in record:
        return _sharegpt(record, default_id), False
    body = record.get("body", record)
    if isinstance(body, dict) and "messages" in body:
        return _openai(body, str(record.get("custom_id") or record.get("id") or default_id)), False
    raise _BadRecordError("none of AIPerf (session_id, messages), OpenAI (messages) and ShareGPT (conversations)")


def _aiperf(record: dict[str, Any]) -> SourceItem:
    delay, cap = record.get("delay") or 0, record.get("output_length")
    if not isinstance(delay, int | float) or delay < 0:
        raise _BadRecordError(f"delay {delay!r} is no number of milliseconds")
    messages, tools = _messages(record["messages"]), _tools(record)
    request = SourceRequest(messages, delay_ms=round(delay), cap=_cap(cap, "output_length"))
    return SourceItem(str(record["session_id"]), (request,), tools, _documents(tools))


def _openai(body: dict[str, Any], item_id: str) -> SourceItem:
    tools = _tools(body)
    cap = next((_cap(body[key], key) for key in CAP_KEYS if body.get(key) is not None), None)
    return SourceItem(item_id, _requests(_messages(body["messages"]), cap), tools, _documents(tools))


def _sharegpt(record: dict[str, Any], default_id: str) -> SourceItem:
    turns = record["conversations"]
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise _BadRecordError("conversations is no list of objects")
    for turn in turns:
        if turn.get("from") not in SHAREGPT_ROLES:
            raise _BadRecordError(f"from {turn.get('from')!r} is none of {', '.join(SHAREGPT_ROLES)}")
    messages = [{"role": SHAREGPT_ROLES[turn["from"]], "content": turn.get("value")} for turn in turns]
    return SourceItem(str(record.get("id") or default_id), _requests(_messages(messages), None))


def _requests(messages: tuple[Message, ...], cap: int | None) -> tuple[SourceRequest, ...]:
    """Return a request for each assistant message after the first user message, and one for an open end."""
    opening = next((place for place, message in enumerate(messages) if message["role"] == "user"), None)
    if opening is None:
        raise _BadRecordError("no message of role user")
    requests = [
        SourceRequest(messages[:place], _recorded(messages[place]), cap=cap)
        for place in range(opening + 1, len(messages))
        if messages[place]["role"] == "assistant"
    ]
    if messages[-1]["role"] != "assistant":
        requests.append(SourceRequest(messages, cap=cap))
    return tuple(requests)


def _recorded(message: Message) -> Expectation | None:
    text = message["content"]
    return Expectation("recorded_reply", {}, text) if text else None


def _messages(messages: Any) -> tuple[Message, ...]:
    if not isinstance(messages, list) or not messages:
        raise _BadRecordError("messages is no list of messages")
    return tuple(_message(message, place) for place, message in enumerate(messages))


def _message(message: Any, place: int) -> Message:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise _BadRecordError(f"messages[{place}]: role is none of {', '.join(sorted(ROLES))}")
    content = _content(message, place)
    if message["role"] == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise _BadRecordError(f"messages[{place}]: a tool message needs tool_call_id")
    return message | {"content": content}


def _content(message: Message, place: int) -> str:
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    calls = message.get("tool_calls")
    if calls and not all(_is_call(call) for call in calls):
        raise _BadRecordError(f"messages[{place}]: tool_calls need id and function with name and arguments")
    if content is None and calls:
        content = ""
    if not isinstance(content, str):
        raise _BadRecordError(f"messages[{place}]: content is no text")
    return content


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict) or "id" not in call:
        return False
    arguments = call["function"].get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return False
    return isinstance(arguments, dict) and isinstance(call["function"].get("name"), str)


def _tools(record: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    tools = record.get("tools") or []
    named = isinstance(tools, list) and all(
        isinstance(tool, dict) and isinstance(tool.get("function"), dict) and "name" in tool["function"]
        for tool in tools
    )
    if not named:
        raise _BadRecordError("tools is no list of OpenAI tool definitions")
    return tuple(tools)


def _documents(tools: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    return tuple(tool["function"] for tool in tools)


def _cap(value: Any, key: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _BadRecordError(f"{key} {value!r} is no positive number of tokens")
    return value


def _joined(known: SourceItem | None, item: SourceItem) -> SourceItem:
    if known is None:
        return item
    return SourceItem(item.item_id, known.requests + item.requests, known.tools, known.tool_documents)
