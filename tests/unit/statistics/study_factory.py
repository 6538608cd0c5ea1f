"""A synthetic results folder with known effects: physically coherent rows, written the way a measurement writes them.

Run as `python -m tests.unit.statistics.study_factory OUT --blocks 3` for a folder with all tables in OUT/tables.
Tokens, margins and acceptance are drawn from the seed; times follow from steps x step time, never the other way round.
"""

import argparse
import json
import math
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from draftbench.layout import Layout
from draftbench.records import CHUNK_COLUMNS, REQUEST_COLUMNS, SCORE_COLUMNS, CellRecord, Check, FailureRecord

_ARROW_TO_POLARS: dict[str, Any] = {
    "string": pl.String,
    "int32": pl.Int32,
    "int64": pl.Int64,
    "float64": pl.Float64,
    "bool": pl.Boolean,
    "list<int32>": pl.List(pl.Int32),
}
VOCABULARY = 49_152
PREFILL_TOKENS_PER_MS = 4.0


@dataclass(frozen=True)
class FactoryArm:
    """An arm with its true effects: chance that a further draft is accepted, and the cost of a step against AR's."""

    name: str
    method: str
    draft_budget: int | None = None
    verify_width: int | None = 1
    acceptance: float = 0.0
    step_cost: float = 1.0
    depth: int = 7
    leaks: float = 0.0
    """Chance a request that the output leaves AR's at a position where the target is sure."""
    loops: bool = False
    """Whether every output repeats itself."""


@dataclass(frozen=True)
class FactoryWorkload:
    """A workload: how many conversations, turns, tokens, and how easy its text is to draft."""

    name: str
    conversations: int = 4
    turns: int = 1
    prompt_tokens: int = 300
    output_tokens: int = 60
    ease: float = 1.0
    concurrency: tuple[int, ...] = (1,)


DEFAULT_ARMS = (
    FactoryArm("ar", "AR"),
    FactoryArm("dflash", "DFLASH", verify_width=8, acceptance=0.50, step_cost=1.18),
    FactoryArm("ddtree-b7", "DDTREE", 7, 8, acceptance=0.58, step_cost=1.22),
    FactoryArm("ddtree-b15", "DDTREE", 15, 16, acceptance=0.64, step_cost=1.30),
    FactoryArm("ddtree-b31", "DDTREE", 31, 32, acceptance=0.67, step_cost=1.62),
)
DEFAULT_WORKLOADS = (
    FactoryWorkload("agentic", conversations=3, turns=4, prompt_tokens=1400, output_tokens=34, ease=0.95),
    FactoryWorkload("code", conversations=6, output_tokens=80, ease=1.08, concurrency=(1, 4)),
    FactoryWorkload("json", conversations=5, output_tokens=90, ease=1.0),
)
DEFAULT_HYPOTHESES: tuple[dict[str, Any], ...] = (
    {"id": "trees-beat-chains", "kind": "arm_faster_than", "arm": "ddtree-b15", "baseline": "dflash",
     "statement": "A draft tree of 15 nodes is faster than the chain of the same drafter."},
    {"id": "primary-beats-ar", "kind": "arm_faster_than", "arm": "ddtree-b15", "baseline": "ar",
     "statement": "DDTree with 15 nodes is faster than plain autoregressive decoding."},
    {"id": "best-budget-inside", "kind": "best_budget_inside_sweep", "arm": None, "baseline": None,
     "statement": "The best draft budget lies inside the sweep, not at its ends."},
    {"id": "lossless", "kind": "lossless", "arm": None, "baseline": None,
     "statement": "Every arm's output stays the target's own within numerical noise."},
)  # fmt: skip


@dataclass(frozen=True)
class Study:
    """What the factory builds; spreads are standard deviations of logs."""

    arms: tuple[FactoryArm, ...] = DEFAULT_ARMS
    workloads: tuple[FactoryWorkload, ...] = DEFAULT_WORKLOADS
    blocks: int = 3
    tensor_parallelism: tuple[int, ...] = (1,)
    ar_step_ms: float = 9.0
    launch_spread: float = 0.006
    drift_spread: float = 0.01
    turn_spread: float = 0.004
    conversation_spread: float = 0.05
    noise_margin: float = 0.05
    """Nats below which rounding may flip the target's choice; 0 = exact arithmetic."""
    temperature: float = 0.0
    seed: int = 0
    primary_arm: str = "ddtree-b15"
    statistics: Mapping[str, float] = field(
        default_factory=lambda: {"margin": 0.03, "confidence": 0.95, "min_decode_tokens": 8}
    )
    hypotheses: tuple[dict[str, Any], ...] = DEFAULT_HYPOTHESES
    refusals: tuple[dict[str, Any], ...] = ()
    failed: tuple[tuple[str, int, str, int], ...] = ()
    """(arm, block, workload, concurrency) of cells that leave a failure record instead of rows."""


def build_plan(study: Study) -> dict[str, Any]:
    """plan.json of the study, with sessions in a seeded random order inside each block."""
    sessions: list[dict[str, Any]] = []
    for block in range(1, study.blocks + 1):
        pairs = [(arm, tp) for tp in study.tensor_parallelism for arm in study.arms]
        for place in np.random.default_rng([study.seed, block]).permutation(len(pairs)):
            sessions.append(_plan_session(study, *pairs[place], block, len(sessions)))
    return {
        "experiment": "synthetic",
        "question": "Does speculative decoding pay in this synthetic study?",
        "primary_arm": study.primary_arm,
        "statistics": dict(study.statistics),
        "hypotheses": [dict(hypothesis) for hypothesis in study.hypotheses],
        "refusals": [dict(refusal) for refusal in study.refusals],
        "sessions": sessions,
    }


def _plan_session(study: Study, arm: FactoryArm, tp: int, block: int, order: int) -> dict[str, Any]:
    return {
        "key": f"{arm.name}_tp{tp}_block{block}-{_hash(arm, tp) % 16**8:08x}",
        "arm": arm.name,
        "method": arm.method,
        "draft_budget": arm.draft_budget,
        "verify_width": arm.verify_width,
        "tensor_parallelism": tp,
        "block": block,
        "order": order,
        "cells": [
            {
                "key": f"{load.name}_c{concurrency}-{_hash(load, concurrency) % 16**6:06x}",
                "workload": load.name,
                "workload_key": f"{load.name}-{_hash(load) % 16**6:06x}",
                "concurrency": concurrency,
            }
            for load in study.workloads
            for concurrency in load.concurrency
        ],
    }


def write_study(root: Path, study: Study) -> Layout:
    """plan.json, every cell's folder and the failure records under `root`."""
    layout = Layout(root)
    for stale in ("sessions", "failures", "tables"):
        shutil.rmtree(root / stale, ignore_errors=True)
    plan = build_plan(study)
    layout.plan_json.parent.mkdir(parents=True, exist_ok=True)
    layout.plan_json.write_text(json.dumps(plan, indent=1))
    arms = {arm.name: arm for arm in study.arms}
    loads = {load.name: load for load in study.workloads}
    for session in plan["sessions"]:
        for cell in session["cells"]:
            planted = (session["arm"], session["block"], cell["workload"], cell["concurrency"])
            if planted in study.failed:
                _write_failure(layout, session, cell)
            else:
                _CellWriter(study, arms[session["arm"]], loads[cell["workload"]], session, cell).write(layout)
    return layout


class _CellWriter:
    """One cell: schedules lanes, draws tokens and steps, and writes the four files."""

    def __init__(
        self, study: Study, arm: FactoryArm, load: FactoryWorkload, session: dict[str, Any], cell: dict[str, Any]
    ) -> None:
        self.study, self.arm, self.load, self.session, self.cell = study, arm, load, session, cell
        self.tp, self.block, self.concurrency = session["tensor_parallelism"], session["block"], cell["concurrency"]
        self.name = f"{session['key']}/{cell['key']}"
        self.random = _generator(study.seed, "cell", arm.name, self.tp, self.block, load.name, self.concurrency)
        self.step_ms = self._step_ms()
        self.requests: list[dict[str, Any]] = []
        self.chunks: list[tuple[int, int, int, int]] = []
        self.scores: list[dict[str, Any]] = []

    def _step_ms(self) -> float:
        """AR step x cost of the width x batch x drift of the block x this launch."""
        study = self.study
        drift = study.drift_spread * _generator(study.seed, "drift", self.block, self.tp).standard_normal()
        launch = _generator(study.seed, "launch", self.arm.name, self.tp, self.block).standard_normal()
        crowding = 1 + 0.10 * (self.concurrency - 1) * (0.3 + 0.7 * (self.arm.verify_width or 1) / 32)
        scaling = self.tp**-0.8
        spread = math.exp(drift + study.launch_spread * launch)
        return study.ar_step_ms * self.arm.step_cost * crowding * scaling * spread

    def write(self, layout: Layout) -> None:
        origin = 1_000_000_000_000 + 60_000_000_000 * self.session["order"]
        clocks = [origin] * self.concurrency
        for number in range(self.load.conversations):
            lane = min(range(self.concurrency), key=lambda index: clocks[index])
            for turn in range(self.load.turns):
                clocks[lane] = self._turn(number, turn, lane, clocks[lane])
        folder = layout.cell(self.session["key"], self.cell["key"])
        folder.mkdir(parents=True, exist_ok=True)
        _frame(self.requests, REQUEST_COLUMNS).write_parquet(folder / "requests.parquet")
        chunk_rows = [dict(zip(CHUNK_COLUMNS, (self.name, *chunk), strict=True)) for chunk in self.chunks]
        _frame(chunk_rows, CHUNK_COLUMNS).write_parquet(folder / "chunks.parquet")
        if self.arm.method == "AR":
            _frame(self.scores, SCORE_COLUMNS).write_parquet(folder / "scores.parquet")
        (folder / "cell.json").write_text(self._record(origin, clocks).model_dump_json(indent=1))

    def _turn(self, number: int, turn: int, lane: int, due: int) -> int:
        """Records one request; returns when the lane is free again."""
        item = f"{self.load.name}-{number:03d}"
        text = _Text(self.study, self.load, item, turn)
        output = text.output_of(self.arm, self.block)
        steps = self._accepted(len(output), number)
        cached = 0 if turn == 0 else (self.load.prompt_tokens + 60 * (turn - 1)) // 16 * 16
        prompt = self.load.prompt_tokens + 60 * turn
        sent = due + int(self.random.uniform(20_000, 90_000))
        prefill_ms = 3.0 + (prompt - cached) / PREFILL_TOKENS_PER_MS * self.tp**-0.8
        first = sent + int(1e6 * prefill_ms * math.exp(0.02 * self.random.standard_normal()))
        pace = self.step_ms * math.exp(
            self.study.conversation_spread * _generator(self.study.seed, "pace", item).standard_normal()
            + self.study.turn_spread * self.random.standard_normal()
        )
        request = len(self.requests)
        arrivals = first + np.cumsum(1e6 * pace * np.exp(0.03 * self.random.standard_normal(len(steps)))).astype(int)
        self.chunks.append((request, 0, first, 1))
        self.chunks += [
            (request, place + 1, int(time), int(new))
            for place, (time, new) in enumerate(zip(arrivals, _emitted(steps, len(output) - 1), strict=True))
        ]
        last = int(arrivals[-1]) if len(arrivals) else first
        timed = {
            "turn": turn, "prompt_tokens": prompt, "cached_tokens": cached, "due_ns": due, "sent_ns": sent,
            "first_token_ns": first, "last_token_ns": last,
        }  # fmt: skip
        self.requests.append(self._row(request, item, lane, output, steps, timed))
        if self.arm.method == "AR":
            self.scores += text.scores(self.name, request, output)
        return last + 150_000

    def _accepted(self, length: int, number: int) -> "np.ndarray[Any, Any]":
        """Drafts accepted in each step until `length` tokens are out; AR accepts none."""
        if self.arm.method == "AR":
            return np.zeros(length - 1, dtype=int)
        chance = min(0.95, self.arm.acceptance * self.load.ease * (1.25 if self.arm.loops else 1.0))
        random = _generator(self.study.seed, "accept", self.arm.name, self.load.name, number, length)
        drawn = np.minimum(random.geometric(1 - chance, size=length) - 1, self.arm.depth)
        count = int(np.searchsorted(np.cumsum(drawn + 1), length - 1)) + 1
        return drawn[:count]

    def _row(
        self, request: int, item: str, lane: int, output: list[int], steps: "np.ndarray[Any, Any]",
        timed: dict[str, int],
    ) -> dict[str, Any]:  # fmt: skip
        speculative = self.arm.method != "AR"
        width = self.arm.verify_width or 1
        return {
            "cell": self.name, "request": request, "conversation": item, "item": item, "lane": lane, **timed,
            "instance_id": f"instance-{_hash(self.session['key']) % 16**8:08x}",
            "sent_tokens": timed["prompt_tokens"], "max_new_tokens": 4 * self.load.output_tokens,
            "completion_tokens": len(output), "first_chunk_tokens": 1, "chunks": 1 + len(steps),
            "verify_steps": len(steps) if speculative else None,
            "accepted_drafts": int(steps.sum()) if speculative else None,
            "proposed_drafts": len(steps) * (width - 1) if speculative else None,
            "accept_histogram": np.bincount(steps, minlength=self.arm.depth + 1).tolist() if speculative else None,
            "merged_chunks": False, "output_ids": output,
            "finish_reason": "length" if len(output) >= 4 * self.load.output_tokens else "stop",
            "done_ns": timed["last_token_ns"] + 100_000,
            "server_latency_s": (timed["last_token_ns"] - timed["sent_ns"]) / 1e9, "queue_time_s": 0.0, "error": None,
        }  # fmt: skip

    def _record(self, origin: int, clocks: list[int]) -> CellRecord:
        rows = self.requests
        starts = [min(row["first_token_ns"] for row in rows if row["lane"] == lane) for lane in _lanes(rows)]
        ends = [max(row["last_token_ns"] for row in rows if row["lane"] == lane) for lane in _lanes(rows)]
        full = len(starts) == self.concurrency and min(ends) > max(starts)
        return CellRecord(
            experiment="synthetic", session=self.session["key"], cell=self.cell["key"], arm=self.arm.name,
            method=self.arm.method, draft_budget=self.arm.draft_budget, verify_width=self.arm.verify_width,
            tensor_parallelism=self.tp, block=self.block, session_order=self.session["order"],
            workload=self.load.name, workload_key=self.cell["workload_key"], workload_kind="synthetic",
            concurrency=self.concurrency, temperature=self.study.temperature, top_p=1.0,
            max_new_tokens=4 * self.load.output_tokens, instance_id=rows[0]["instance_id"], devices=("synthetic",),
            neighbours=(), engine="embedded", engine_version="0", resolved={}, plan_sha256="0" * 64,
            started_utc="2026-01-01T00:00:00Z", start_ns=origin, end_ns=max(clocks),
            window_start_ns=max(starts) if full else None, window_end_ns=min(ends) if full else None,
            window_reason="" if full else "fewer conversations than the concurrency",
            planned_requests=len(rows), completed_requests=len(rows), loop_lag_p50_ms=0.1, loop_lag_p99_ms=0.3,
            loop_lag_max_ms=0.9, load_average=1.0, checks=(Check(name="all_requests_done", passed=True),),
            telemetry_reason="synthetic", provenance={},
        )  # fmt: skip


class _Text:
    """The target's own continuation of one prompt: tokens, and how sure the target is of each."""

    def __init__(self, study: Study, load: FactoryWorkload, item: str, turn: int) -> None:
        self.study = study
        self.random_key = (load.name, item, turn)
        random = _generator(study.seed, "text", *self.random_key)
        length = max(12, int(load.output_tokens * math.exp(0.25 * random.standard_normal())))
        self.tokens = random.integers(10, VOCABULARY, size=length)
        self.margins = random.gamma(1.4, 2.0, size=length)
        self.close = self.margins < study.noise_margin

    def output_of(self, arm: FactoryArm, block: int) -> list[int]:
        """AR's tokens, except where rounding flips a close call, and where the arm has a planted fault."""
        random = _generator(self.study.seed, "output", arm.name, block, *self.random_key)
        if arm.loops:
            return [int(token) for token in np.resize(self.tokens[:3], 2 * len(self.tokens))]
        if self.study.temperature > 0:
            return [int(token) for token in random.integers(10, VOCABULARY, size=len(self.tokens))]
        flips = [int(place) for place in np.flatnonzero(self.close) if arm.method != "AR" and random.random() < 0.3]
        if random.random() < arm.leaks:
            sure = np.flatnonzero(self.margins > 2.0)
            flips.append(int(sure[random.integers(len(sure))]))
        tokens = self.tokens.copy()
        if flips:
            tokens[min(flips) :] = random.integers(10, VOCABULARY, size=len(tokens) - min(flips))
        return [int(token) for token in tokens]

    def scores(self, cell: str, request: int, output: list[int]) -> list[dict[str, Any]]:
        """A prefill of AR's own output: the best token is AR's except at some close calls."""
        random = _generator(self.study.seed, "scores", cell, *self.random_key)
        rows = []
        for position, (token, margin) in enumerate(zip(output, self.margins, strict=True)):
            flipped = bool(self.close[position]) and random.random() < 0.3
            other = (token + 1) % VOCABULARY
            best, second = (other, token) if flipped else (token, other)
            rows.append(
                {
                    "cell": cell, "request": request, "position": position, "token": token, "top1_token": best,
                    "top1_logprob": -0.1, "top2_token": second, "top2_logprob": -0.1 - float(margin),
                }
            )  # fmt: skip
        return rows


def _emitted(steps: "np.ndarray[Any, Any]", tokens: int) -> list[int]:
    """New tokens of each step; the last step is cut where the output ends."""
    ends = np.minimum(np.cumsum(steps + 1), tokens)
    return [int(value) for value in np.diff(ends, prepend=0)]


def _lanes(rows: list[dict[str, Any]]) -> list[int]:
    return sorted({row["lane"] for row in rows})


def _write_failure(layout: Layout, session: dict[str, Any], cell: dict[str, Any]) -> None:
    record = FailureRecord(
        experiment="synthetic", session=session["key"], stage="measure", cell=cell["key"], arm=session["arm"],
        tensor_parallelism=session["tensor_parallelism"], block=session["block"], workload=cell["workload"],
        concurrency=cell["concurrency"], failure_class="crash", message="the server died with signal 9",
        log_tail="...\nKilled", exit_code=137, time_utc="2026-01-01T00:00:00Z",
    )  # fmt: skip
    path = layout.failure(session["key"], cell["key"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.model_dump_json(indent=1))


def _frame(rows: list[dict[str, Any]], columns: Mapping[str, str]) -> pl.DataFrame:
    schema = {name: _ARROW_TO_POLARS[kind] for name, kind in columns.items()}
    return pl.DataFrame({name: [row[name] for row in rows] for name in columns}, schema=schema)


def _generator(*parts: Any) -> np.random.Generator:
    return np.random.default_rng(_hash(*parts))


def _hash(*parts: Any) -> int:
    text = repr([asdict(part) if hasattr(part, "__dataclass_fields__") else part for part in parts])
    return zlib.crc32(text.encode())


def with_arm(study: Study, name: str, **changes: Any) -> Study:
    """The study with one arm's true effects changed."""
    arms = tuple(replace(arm, **changes) if arm.name == name else arm for arm in study.arms)
    return replace(study, arms=arms)


def main() -> None:
    """Writes a study and all its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tensor-parallelism", type=int, nargs="+", default=[1])
    parser.add_argument("--fail", action="store_true", help="leave one failed cell, as an interim report shows it")
    arguments = parser.parse_args()
    failed = (("ddtree-b31", 1, "json", 1),) if arguments.fail else ()
    study = Study(
        blocks=arguments.blocks,
        seed=arguments.seed,
        tensor_parallelism=tuple(arguments.tensor_parallelism),
        failed=failed,
    )
    layout = write_study(arguments.out, study)
    write_all_tables(layout, interim=arguments.fail)
    print(f"{arguments.out}: {len(list((arguments.out / 'tables').glob('*.parquet')))} tables")


def write_all_tables(layout: Layout, interim: bool = False) -> None:
    """Everything that the rules aggregate, losslessness and statistics write."""
    from draftbench.statistics.pipeline import aggregate_results, judge_losslessness, judge_statistics

    aggregate_results(layout, interim=interim)
    judge_losslessness(layout)
    judge_statistics(layout)


if __name__ == "__main__":
    main()
