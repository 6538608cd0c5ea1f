"""The contract between measuring and everything after it: what a cell leaves behind.

A cell's folder holds `requests.parquet` (one row a request), `chunks.parquet` (one row a streamed chunk), for AR
`scores.parquet` (the target's two best tokens at each output position, from a prefill of its own output), and
`cell.json`, written last.
Times are nanoseconds of the client's monotonic clock; they compare within one cell only.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = 1

REQUEST_COLUMNS: dict[str, str] = {
    "cell": "string",  # session key / cell key
    "request": "int32",  # number within the cell, in planned order
    "conversation": "string",
    "item": "string",
    "turn": "int32",  # from 0
    "lane": "int32",  # which of the C concurrent conversations
    "instance_id": "string",  # the server launch that answered
    "sent_tokens": "int32",  # ids sent
    "prompt_tokens": "int32",  # as the server counted them
    "cached_tokens": "int32",
    "max_new_tokens": "int32",
    "completion_tokens": "int32",
    "first_chunk_tokens": "int32",
    "chunks": "int32",
    "verify_steps": "int32",  # null for AR
    "accepted_drafts": "int32",
    "proposed_drafts": "int32",
    "accept_histogram": "list<int32>",  # index j: steps that accepted exactly j drafts
    "merged_chunks": "bool",  # chunks - 1 differs from the steps: per-step times are not to be read from this row
    "output_ids": "list<int32>",
    "finish_reason": "string",
    "due_ns": "int64",  # when the schedule wanted it sent (previous turn done + delay)
    "sent_ns": "int64",
    "first_token_ns": "int64",
    "last_token_ns": "int64",
    "done_ns": "int64",
    "server_latency_s": "float64",
    "queue_time_s": "float64",
    "error": "string",  # null when the request ended as planned
}
"""Column -> Arrow type of requests.parquet; every column but the first eight may be null."""

CHUNK_COLUMNS: dict[str, str] = {
    "cell": "string",
    "request": "int32",
    "chunk": "int32",
    "time_ns": "int64",
    "new_tokens": "int32",
}

SCORE_COLUMNS: dict[str, str] = {
    "cell": "string",
    "request": "int32",
    "position": "int32",  # output position, from 0
    "token": "int32",  # what AR decoded there
    "top1_token": "int32",  # the prefill's best token
    "top1_logprob": "float64",
    "top2_token": "int32",
    "top2_logprob": "float64",
}


@dataclass(frozen=True)
class ChunkRecord:
    """A streamed chunk: arrival and how many tokens it brought."""

    time_ns: int
    new_tokens: int


@dataclass
class RequestRecord:
    """One request as measured; field meanings stand beside REQUEST_COLUMNS."""

    request: int
    conversation: str
    item: str
    turn: int
    lane: int
    instance_id: str
    sent_tokens: int
    max_new_tokens: int
    due_ns: int
    sent_ns: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    verify_steps: int | None = None
    accepted_drafts: int | None = None
    proposed_drafts: int | None = None
    accept_histogram: list[int] | None = None
    output_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    done_ns: int | None = None
    server_latency_s: float | None = None
    queue_time_s: float | None = None
    error: str | None = None
    chunks: list[ChunkRecord] = field(default_factory=list)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Check(_Record):
    """One validity rule applied to a cell."""

    name: str
    passed: bool
    detail: str = ""


class CellRecord(_Record):
    """cell.json: every parameter that made the cell and the proof that it is valid."""

    schema_version: int = SCHEMA_VERSION
    experiment: str
    session: str
    cell: str
    arm: str
    method: str
    draft_budget: int | None
    verify_width: int | None
    tensor_parallelism: int
    block: int
    session_order: int
    workload: str
    workload_key: str
    workload_kind: str
    concurrency: int
    temperature: float
    top_p: float
    max_new_tokens: int
    instance_id: str
    devices: tuple[str, ...]
    neighbours: tuple[str, ...]
    engine: str
    engine_version: str
    resolved: dict[str, Any]
    plan_sha256: str
    started_utc: str
    start_ns: int
    end_ns: int
    window_start_ns: int | None
    window_end_ns: int | None
    window_reason: str = ""
    planned_requests: int
    completed_requests: int
    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    loop_lag_max_ms: float
    load_average: float
    checks: tuple[Check, ...]
    telemetry: dict[str, Any] | None = None
    telemetry_reason: str = ""
    provenance: dict[str, Any]

    @property
    def valid(self) -> bool:
        """Whether every validity rule passed."""
        return all(check.passed for check in self.checks)


FailureClass = Literal[
    "out_of_memory",
    "port",
    "nccl",
    "drafter_mismatch",
    "unsupported_flag",
    "startup_timeout",
    "crash",
    "hang",
    "client_late",
    "throttled",
    "identity",
    "incomplete",
    "cache_state",
    "lease",
    "invalid",
]


class FailureRecord(_Record):
    """One file under failures/: what ended without valid evidence, and what the log said."""

    schema_version: int = SCHEMA_VERSION
    experiment: str
    session: str
    stage: Literal["launch", "warmup", "measure"]
    cell: str | None
    arm: str
    tensor_parallelism: int
    block: int
    workload: str | None
    concurrency: int | None
    failure_class: str
    message: str
    log_tail: str
    exit_code: int | None = None
    time_utc: str
