"""A streamed reply, from raw reads to chunks: parsed after the request ended, never while others are timed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from draftbench.records import ChunkRecord

ErrorKind = Literal[
    "http_status", "malformed", "truncated", "content_type", "connection_lost", "timeout", "server_error"
]
EXCERPT_CHARACTERS = 300
_DONE = b"[DONE]"
_EVENT_END = b"\n\n"


class RequestError(Exception):
    """A request that did not end as planned; `kind` names how."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


@dataclass(frozen=True)
class Read:
    """Bytes as they came from the socket, and when."""

    time_ns: int
    data: bytes


@dataclass(frozen=True)
class RawStream:
    """One reply, not yet parsed: when the request was sent, what arrived, when the connection said the end."""

    sent_ns: int
    reads: Sequence[Read]
    done_ns: int

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(len(read.data) for read in self.reads)


@dataclass(frozen=True)
class Speculation:
    """SGLang's account of a request's verify steps; the histogram's index is the number of accepted drafts."""

    verify_steps: int
    accepted_drafts: int
    proposed_drafts: int
    accept_histogram: tuple[int, ...]


@dataclass(frozen=True)
class Reply:
    """What a stream held; chunks without a new token are left out."""

    chunks: tuple[ChunkRecord, ...]
    output_ids: tuple[int, ...]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reason: str
    speculation: Speculation | None
    server_latency_s: float | None
    queue_time_s: float | None


def excerpt(data: bytes) -> str:
    """The beginning of a body on one line, for error messages."""
    text = data.decode("utf-8", "replace")
    return " ".join(text.split())[:EXCERPT_CHARACTERS]


def parse_reply(raw: RawStream) -> Reply:
    """The reply behind a stream's reads, whether its chunks repeat the ids so far or bring only the new ones.

    Tokens per chunk are differences of the cumulative `completion_tokens`.
    Raises RequestError (malformed, truncated, server_error).
    """
    chunks: list[ChunkRecord] = []
    output_ids: list[int] = []
    total = 0
    meta: dict[str, Any] | None = None
    for time_ns, body in _bodies(raw.reads):
        meta = _meta_info(body)
        new = _integer(meta, "completion_tokens") - total
        if new < 0:
            raise RequestError("malformed", f"completion_tokens fell from {total} to {total + new}")
        total += new
        output_ids = _joined(output_ids, body, total)
        if new:
            chunks.append(ChunkRecord(time_ns, new))
    if meta is None:
        raise RequestError("truncated", "the stream held no chunk")
    return _reply(chunks, output_ids, meta)


def _bodies(reads: Sequence[Read]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each event's JSON with the time of the read that completed it; the last event must be [DONE]."""
    done = False
    for time_ns, event in _events(reads):
        payload = _payload(event)
        if payload is None:
            continue
        if done:
            raise RequestError("malformed", f"data after [DONE]: {excerpt(payload)}")
        if payload == _DONE:
            done = True
            continue
        yield time_ns, _json_object(payload)
    if not done:
        raise RequestError("truncated", "the stream ended before [DONE]")


def _events(reads: Sequence[Read]) -> Iterator[tuple[int, bytes]]:
    pending = b""
    for read in reads:
        *events, pending = (pending + read.data).replace(b"\r\n", b"\n").split(_EVENT_END)
        for event in events:
            yield read.time_ns, event
    if pending.strip():
        raise RequestError("truncated", f"the stream ended inside an event: {excerpt(pending)}")


def _payload(event: bytes) -> bytes | None:
    """The data of a server-sent event; None for comments, which keep a connection open."""
    lines = [line for line in event.split(b"\n") if line and not line.startswith(b":")]
    if not lines:
        return None
    if not all(line.startswith(b"data:") for line in lines):
        raise RequestError("malformed", f"not a data line: {excerpt(event)}")
    return b"\n".join(line[len(b"data:") :].strip() for line in lines)


def _json_object(payload: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise RequestError("malformed", f"not JSON: {excerpt(payload)}") from None
    if not isinstance(body, dict):
        raise RequestError("malformed", f"not a JSON object: {excerpt(payload)}")
    if "error" in body:
        raise RequestError("server_error", f"the server answered inside the stream: {excerpt(payload)}")
    return body


def _meta_info(body: dict[str, Any]) -> dict[str, Any]:
    meta = body.get("meta_info")
    if not isinstance(meta, dict):
        raise RequestError("malformed", "a chunk lacks meta_info")
    return meta


def _integer(meta: dict[str, Any], name: str) -> int:
    value = meta.get(name)
    if type(value) is not int:
        raise RequestError("malformed", f"meta_info.{name} is {value!r}, not a whole number")
    return value


def _joined(so_far: list[int], body: dict[str, Any], total: int) -> list[int]:
    """The ids after one more chunk: it holds all `total` of them or only the new ones.

    Where the counts are wrong the ids come out wrong too, and the identities refuse the request.
    """
    ids = body.get("output_ids")
    if not isinstance(ids, list):
        raise RequestError("malformed", "a chunk lacks output_ids")
    return ids if len(ids) == total else so_far + ids


def _reply(chunks: list[ChunkRecord], output_ids: list[int], meta: dict[str, Any]) -> Reply:
    return Reply(
        chunks=tuple(chunks),
        output_ids=tuple(output_ids),
        prompt_tokens=_integer(meta, "prompt_tokens"),
        completion_tokens=_integer(meta, "completion_tokens"),
        cached_tokens=_integer(meta, "cached_tokens"),
        finish_reason=_finish_reason(meta),
        speculation=_speculation(meta),
        server_latency_s=_seconds(meta, "e2e_latency"),
        queue_time_s=_seconds(meta, "queue_time"),
    )


def _finish_reason(meta: dict[str, Any]) -> str:
    reason = meta.get("finish_reason")
    if reason is None:
        raise RequestError("truncated", "the last chunk has no finish_reason")
    kind = reason.get("type") if isinstance(reason, dict) else None
    if not isinstance(kind, str):
        raise RequestError("malformed", f"finish_reason is {reason!r}")
    if kind == "abort":
        raise RequestError("server_error", f"the server aborted the request: {reason.get('message', '')}")
    return kind


def _speculation(meta: dict[str, Any]) -> Speculation | None:
    """The speculative fields, None where the server counted no verify step."""
    if "spec_verify_ct" not in meta:
        return None
    histogram = meta.get("spec_correct_drafts_histogram", meta.get("spec_accept_histogram"))
    if not isinstance(histogram, list) or not all(type(count) is int for count in histogram):
        raise RequestError("malformed", f"meta_info.spec_correct_drafts_histogram is {histogram!r}")
    accepted = "spec_num_correct_drafts" if "spec_num_correct_drafts" in meta else "spec_accepted_drafts"
    proposed = "spec_num_proposed_drafts" if "spec_num_proposed_drafts" in meta else "spec_proposed_drafts"
    return Speculation(
        verify_steps=_integer(meta, "spec_verify_ct"),
        accepted_drafts=_integer(meta, accepted),
        proposed_drafts=_integer(meta, proposed),
        accept_histogram=tuple(histogram),
    )


def _seconds(meta: dict[str, Any], name: str) -> float | None:
    value = meta.get(name)
    return float(value) if isinstance(value, int | float) else None
