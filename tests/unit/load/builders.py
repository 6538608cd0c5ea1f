"""Rows, streams and plans that tests of the load generator start from."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftbench.load.run_file import PlannedCell, PlannedSession, RunFile, Sampling, WorkloadFiles
from draftbench.load.stream import RawStream, Read
from draftbench.records import ChunkRecord, RequestRecord

MS = 1_000_000
SESSION = "dflash_tp1_block1-0123abcd"
CELL = "code_c2-abc123"


@dataclass(frozen=True)
class PromptTurn:
    """One request, as a rendered workload holds it."""

    turn: int
    input_ids: tuple[int, ...]
    max_new_tokens: int = 8
    delay_ms: int = 0


@dataclass(frozen=True)
class Dialogue:
    """A conversation, as a rendered workload holds it."""

    session_id: str
    item_id: str
    turns: tuple[PromptTurn, ...]


def dialogue(name: str, *prompts: Sequence[int], delays: Sequence[int] = (), cap: int = 8) -> Dialogue:
    """A conversation of these prompts; delays in milliseconds, by turn; `cap` in tokens."""
    pauses = [*delays, *[0] * len(prompts)]
    turns = tuple(PromptTurn(number, tuple(ids), cap, pauses[number]) for number, ids in enumerate(prompts))
    return Dialogue(name, f"item-{name}", turns)


def speculative_record(**changes: Any) -> RequestRecord:
    """A sound speculative request: 1 token by prefill, then 3 steps of 2, 1 and 3 tokens.

    Sent at 0 ms; chunks at 10, 20, 30 and 40 ms; 0 + 1 + 2 accepted drafts of 3 x 7 proposed.
    """
    record = RequestRecord(
        request=0,
        conversation="a",
        item="item-a",
        turn=0,
        lane=0,
        instance_id="instance",
        sent_tokens=4,
        max_new_tokens=8,
        due_ns=0,
        sent_ns=0,
        prompt_tokens=4,
        cached_tokens=0,
        completion_tokens=7,
        verify_steps=3,
        accepted_drafts=3,
        proposed_drafts=21,
        accept_histogram=[1, 1, 1],
        output_ids=[11, 12, 13, 14, 15, 16, 17],
        finish_reason="stop",
        done_ns=41 * MS,
        chunks=[
            ChunkRecord(10 * MS, 1),
            ChunkRecord(20 * MS, 2),
            ChunkRecord(30 * MS, 1),
            ChunkRecord(40 * MS, 3),
        ],
    )
    for name, value in changes.items():
        assert hasattr(record, name)
        setattr(record, name, value)
    return record


def autoregressive_record(**changes: Any) -> RequestRecord:
    """A sound AR request: sent at 0 ms, one token each at 10, 15, 20 and 25 ms."""
    plain = {
        "completion_tokens": 4,
        "verify_steps": None,
        "accepted_drafts": None,
        "proposed_drafts": None,
        "accept_histogram": None,
        "output_ids": [11, 12, 13, 14],
        "done_ns": 26 * MS,
        "chunks": [ChunkRecord(time * MS, 1) for time in (10, 15, 20, 25)],
    }
    return speculative_record(**(plain | changes))


def chunk_body(ids: Sequence[int], total: int, finish: str | None = None, **meta: Any) -> dict[str, Any]:
    """A streamed chunk in SGLang's form."""
    reason = {"type": finish, "length": total} if finish else None
    facts = {"finish_reason": reason, "prompt_tokens": 4, "cached_tokens": 0, "completion_tokens": total}
    return {"text": "", "output_ids": list(ids), "meta_info": facts | meta}


def event(body: dict[str, Any] | str) -> bytes:
    """One server-sent event."""
    text = body if isinstance(body, str) else json.dumps(body)
    return f"data: {text}\n\n".encode()


DONE = event("[DONE]")


def raw_stream(*reads: bytes, first_ms: int = 10, step_ms: int = 10) -> RawStream:
    """Reads at 10, 20, 30 ... ms of a request sent at 0."""
    stamped = [Read((first_ms + step_ms * number) * MS, data) for number, data in enumerate(reads)]
    return RawStream(0, stamped, stamped[-1].time_ns + MS if stamped else MS)


@dataclass
class RunPlan:
    """A run file for one session, its workload files written under `folder`."""

    folder: Path
    method: str = "DFLASH"
    concurrency: int = 2
    hang_timeout: float = 30.0
    cell_timeout: float = 60.0
    temperature: float = 0.0
    lag_share: float = 1000.0  # server and client share one interpreter in tests
    measured: Sequence[Dialogue] = field(default_factory=list)
    calibration: Sequence[Dialogue] = field(default_factory=list)

    def build(self) -> RunFile:
        """Write the workload and return the run file."""
        cell = PlannedCell(
            workload="code",
            workload_key="code-abcdef",
            workload_kind="code",
            concurrency=self.concurrency,
            max_new_tokens=8,
        )
        session = PlannedSession(
            arm=self.method.lower(),
            method=self.method,
            draft_budget=None,
            verify_width=1 if self.method == "AR" else 8,
            tensor_parallelism=1,
            block=1,
            order=0,
            server_spec={"log_path": str(self.folder / "server.log")},
            cells={CELL: cell},
        )
        files = WorkloadFiles(
            rendered=write_rendered(self.folder / "code.jsonl", self.measured),
            calibration=write_rendered(self.folder / "calibration.jsonl", self.calibration),
        )
        return RunFile(
            experiment="tiny",
            plan_sha256="0" * 64,
            results=self.folder / "results",
            workdir=self.folder / "work",
            engine="stub",
            engine_version="0",
            startup_timeout=10,
            hang_timeout=self.hang_timeout,
            stop_grace=1,
            cell_timeout=self.cell_timeout,
            sampling=Sampling(temperature=self.temperature),
            max_client_lag_share=self.lag_share,
            packing="pairs",
            workloads={"code-abcdef": files},
            sessions={SESSION: session},
        )


def write_rendered(path: Path, dialogues: Sequence[Dialogue]) -> Path:
    """A rendered workload as the builder writes it, one request a line."""
    lines = [
        json.dumps(
            {
                "session_id": conversation.session_id,
                "item_id": conversation.item_id,
                "turn": turn.turn,
                "input_ids": list(turn.input_ids),
                "max_new_tokens": turn.max_new_tokens,
                "delay_ms": turn.delay_ms,
            }
        )
        for conversation in dialogues
        for turn in conversation.turns
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
