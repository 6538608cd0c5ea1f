"""What a built workload is on disk.

requests.jsonl    AIPerf's trace format in `messages` mode, one request a line; `meta` is ours (AIPerf ignores it)
rendered.jsonl    the same requests as token ids of one target, what the load generator sends
references.jsonl  what a correct reply contains, keyed by (session_id, turn); never part of a request
manifest.json     where it all came from, what was selected and dropped, lengths, hashes
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftbench.errors import WorkloadError
from draftbench.workloads.definitions import WorkloadDefinition

REQUESTS_FILE = "requests.jsonl"
RENDERED_FILE = "rendered.jsonl"
REFERENCES_FILE = "references.jsonl"
MANIFEST_FILE = "manifest.json"

ToolFormat = Literal["none", "native", "bfcl_text"]
"""How tool documents and calls reach the model: not at all, through the chat template, or as BFCL's own text."""


class StoredRecord(BaseModel):
    """A line or file of a built workload; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Record = TypeVar("Record", bound=StoredRecord)


class RequestMeta(StoredRecord):
    """Our part of a request line."""

    workload: str
    item_id: str
    turn: int = Field(ge=0)
    check: str | None = None


class TraceRequest(StoredRecord):
    """One line of AIPerf's `mooncake_trace` format in `messages` mode.

    `messages` is the full history; `delay` (ms) is waited after the previous reply of the session and is no
    latency; `output_length` is a cap, replies end at the model's own stop token; `extra` goes into the request
    body.
    """

    session_id: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    output_length: int = Field(gt=0)
    delay: int = Field(default=0, ge=0)
    extra: dict[str, Any] = Field(default_factory=dict)
    meta: RequestMeta


class Reference(StoredRecord):
    """What the reply to one request is checked against; `text` is a reference reply where the source has one."""

    session_id: str
    turn: int = Field(ge=0)
    item_id: str
    check: str
    expected: dict[str, Any]
    text: str | None = None


class RenderedRequest(StoredRecord):
    """One request as token ids of the target."""

    session_id: str
    turn: int = Field(ge=0)
    input_ids: list[int] = Field(min_length=1)
    max_new_tokens: int = Field(gt=0)
    delay_ms: int = Field(default=0, ge=0)
    item_id: str


class LengthSummary(StoredRecord):
    """Order statistics of a length over requests or conversations."""

    count: int
    minimum: int
    median: float
    mean: float
    p90: float
    maximum: int


class LengthTable(StoredRecord):
    """Lengths in the target's tokens; `reference_tokens` is None where the source has no reference replies."""

    conversations: int
    requests: int
    prompt_tokens: LengthSummary
    turns: LengthSummary
    reference_tokens: LengthSummary | None


class PackageRecord(StoredRecord):
    """A pinned package that the workload's bytes come from."""

    name: str
    version: str
    sha256: str
    licence: str


class SelectedItem(StoredRecord):
    """One conversation of the sample; `turns_available` counts those of the source before any limit."""

    rank: int
    item_id: str
    turns: int
    turns_available: int


class Manifest(StoredRecord):
    """Provenance of one built workload.

    `dropped` lists items that never got a rank, by reason; `fitting` describes all items that did, `selected`
    this sample.
    """

    set: str
    digest: str
    converter_version: int
    definition: WorkloadDefinition
    packages: tuple[PackageRecord, ...]
    source_sha256: str | None
    seed: int
    tool_format: ToolFormat
    thinking: str
    template_sha256: str
    notes: tuple[str, ...]
    selection: tuple[SelectedItem, ...]
    dropped: dict[str, tuple[str, ...]]
    selected: LengthTable
    fitting: LengthTable
    files: dict[str, str]


@dataclass(frozen=True)
class Turn:
    """One request of a conversation, ready to send."""

    turn: int
    input_ids: tuple[int, ...]
    max_new_tokens: int
    delay_ms: int


@dataclass(frozen=True)
class Conversation:
    """A workload item and its requests, in order."""

    session_id: str
    item_id: str
    turns: tuple[Turn, ...]


def load_rendered(path: Path) -> list[Conversation]:
    """Return the conversations of a rendered.jsonl in file order.

    Raises WorkloadError naming file and line where a line is malformed or a conversation is out of order.
    """
    turns: dict[str, list[Turn]] = {}
    item_ids: dict[str, str] = {}
    for number, line in enumerate(_lines(path), start=1):
        request = _parse(RenderedRequest, line, path, number)
        conversation = turns.setdefault(request.session_id, [])
        if request.turn != len(conversation):
            raise WorkloadError(
                f"{path} line {number}: turn {request.turn} of session {request.session_id} where turn "
                f"{len(conversation)} was due; build the workload again"
            )
        item_ids[request.session_id] = request.item_id
        conversation.append(Turn(request.turn, tuple(request.input_ids), request.max_new_tokens, request.delay_ms))
    return [Conversation(session, item_ids[session], tuple(turns[session])) for session in turns]


def load_references(path: Path) -> dict[tuple[str, int], Reference]:
    """Return the references of a workload by (session_id, turn)."""
    references = (_parse(Reference, line, path, number) for number, line in enumerate(_lines(path), start=1))
    return {(reference.session_id, reference.turn): reference for reference in references}


def load_manifest(path: Path) -> Manifest:
    """Return the manifest; raises WorkloadError where it is missing or malformed."""
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise WorkloadError(f"{path}: no readable manifest ({first_problem(error)}); build it again") from None


def to_jsonl(records: list[Any]) -> bytes:
    """Return records as JSON lines, without keys whose value is None, in field order."""
    return b"".join(orjson.dumps(record.model_dump(exclude_none=True)) + b"\n" for record in records)


def first_problem(error: Exception) -> str:
    """Return the first problem of a validation error on one line."""
    if isinstance(error, ValidationError):
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        return f"{where}: {problem['msg']}" if where else str(problem["msg"])
    return str(error)


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}; build the workload again") from None


def _parse(kind: type[Record], line: bytes, path: Path, number: int) -> Record:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise WorkloadError(f"{path} line {number}: {first_problem(error)}; build the workload again") from None
