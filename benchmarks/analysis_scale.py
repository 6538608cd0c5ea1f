"""Time and memory of the whole analysis as studies grow to 10^8 chunk rows.

`python benchmarks/analysis_scale.py [--chunks 1e5 1e6 1e7 1e8] [--work DIR]` generates each study (960 cells: seven
arms and AR, two tp, five workloads, four concurrencies, three blocks), runs aggregate, losslessness and statistics in
processes of their own and prints seconds and peak memory of each.
The generator writes the files of a measurement, but draws them whole columns at a time.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from draftbench.layout import Layout
from draftbench.records import CellRecord, Check

ROOT = Path(__file__).resolve().parents[1]

ARMS = [("ar", "AR", None, 1.0, 1.0), ("dflash", "DFLASH", None, 2.1, 1.2)] + [
    (f"ddtree-b{budget}", "DDTREE", budget, 2.2 + budget / 40, 1.2 + budget / 60) for budget in (8, 12, 16, 20, 24, 32)
]
"""Name, method, budget, yield, cost of a step against AR's."""
WORKLOADS = ("agentic", "code", "json", "math", "chat")
CONCURRENCY, DEGREES, BLOCKS = (1, 4, 16, 32), (4, 8), 3
TOKENS, TURNS = 160, 4
CELLS = len(ARMS) * len(WORKLOADS) * len(CONCURRENCY) * len(DEGREES) * BLOCKS


def generate(root: Path, chunks: float) -> int:
    """Writes a study of about `chunks` chunk rows; returns how many."""
    layout = Layout(root)
    per_cell = chunks / CELLS
    mean_chunks = float(np.mean([TOKENS / arm[3] for arm in ARMS]))
    conversations = max(2, round(per_cell / mean_chunks / TURNS))
    plan, rows = _plan(), 0
    layout.plan_json.parent.mkdir(parents=True)
    layout.plan_json.write_text(json.dumps(plan))
    outputs = {name: _outputs(name, conversations * TURNS) for name in WORKLOADS}
    for session in plan["sessions"]:
        for cell in session["cells"]:
            rows += _write_cell(layout, session, cell, conversations, outputs[cell["workload"]])
    return rows


def _plan() -> dict[str, Any]:
    sessions = [
        {
            "key": f"{name}_tp{tp}_block{block}-00000000", "arm": name, "method": method, "draft_budget": budget,
            "verify_width": (budget or 0) + 1, "tensor_parallelism": tp, "block": block, "order": 0,
            "cells": [
                {"key": f"{w}_c{c}-000000", "workload": w, "workload_key": w, "concurrency": c}
                for w in WORKLOADS for c in CONCURRENCY
            ],
        }
        for block in range(1, BLOCKS + 1) for tp in DEGREES for name, method, budget, _, _ in ARMS
    ]  # fmt: skip
    statistics = {"margin": 0.03, "confidence": 0.95, "min_decode_tokens": 8}
    return {"experiment": "scale", "primary_arm": "ddtree-b16", "statistics": statistics, "sessions": sessions}


def _outputs(workload: str, requests: int) -> "np.ndarray[Any, Any]":
    return np.random.default_rng(WORKLOADS.index(workload)).integers(0, 150_000, (requests, TOKENS), dtype=np.int32)


def _write_cell(
    layout: Layout, session: dict[str, Any], cell: dict[str, Any], conversations: int, outputs: "np.ndarray[Any, Any]"
) -> int:
    name, _, _, tokens_a_step, cost = next(arm for arm in ARMS if arm[0] == session["arm"])
    random = np.random.default_rng(abs(hash((session["key"], cell["key"]))) % 2**32)
    count = conversations * TURNS
    steps = np.full(count, TOKENS - 1) if name == "ar" else random.poisson((TOKENS - 1) / tokens_a_step, count) + 1
    steps = np.minimum(steps, TOKENS - 1)
    step_ns = 9e6 * cost * np.exp(0.01 * random.standard_normal(count))
    first = np.arange(count, dtype=np.int64) * 2_000_000_000 // cell["concurrency"] + 50_000_000
    folder = layout.cell(session["key"], cell["key"])
    folder.mkdir(parents=True)
    last = first + (step_ns * steps).astype(np.int64)
    _requests(f"{session['key']}/{cell['key']}", first, last, steps, outputs, name == "ar").write_parquet(
        folder / "requests.parquet"
    )
    rows = _chunks(folder, cell["key"], first, step_ns, steps)
    if name == "ar":
        _scores(cell["key"], outputs, random).write_parquet(folder / "scores.parquet")
    (folder / "cell.json").write_text(_record(session, cell, count, int(first[0]), int(last[-1])).model_dump_json())
    return rows


def _requests(
    cell: str, first: "np.ndarray[Any, Any]", last: "np.ndarray[Any, Any]", steps: "np.ndarray[Any, Any]",
    outputs: "np.ndarray[Any, Any]", is_ar: bool,
) -> pl.DataFrame:  # fmt: skip
    count = len(first)
    number = np.arange(count, dtype=np.int32)
    accepted = (TOKENS - 1 - steps).astype(np.int32)
    return pl.DataFrame(
        {
            "cell": [cell] * count, "request": number, "conversation": [f"c{n // TURNS}" for n in number],
            "item": [f"c{n // TURNS}" for n in number], "turn": number % TURNS, "lane": number % 4,
            "instance_id": ["i"] * count, "sent_tokens": np.full(count, 900, dtype=np.int32),
            "prompt_tokens": np.full(count, 900, dtype=np.int32), "cached_tokens": np.full(count, 640, dtype=np.int32),
            "max_new_tokens": np.full(count, 512, dtype=np.int32),
            "completion_tokens": np.full(count, TOKENS, dtype=np.int32),
            "first_chunk_tokens": np.ones(count, dtype=np.int32), "chunks": (steps + 1).astype(np.int32),
            "verify_steps": [None] * count if is_ar else steps.astype(np.int32),
            "accepted_drafts": [None] * count if is_ar else accepted,
            "proposed_drafts": [None] * count if is_ar else (7 * steps).astype(np.int32),
            "accept_histogram": [None] * count if is_ar else np.stack([steps, 0 * steps, accepted], axis=1).tolist(),
            "merged_chunks": [False] * count, "output_ids": outputs.tolist(), "finish_reason": ["stop"] * count,
            "due_ns": first - 51_000_000, "sent_ns": first - 50_000_000, "first_token_ns": first,
            "last_token_ns": last, "done_ns": last, "server_latency_s": np.ones(count), "queue_time_s": np.zeros(count),
            "error": [None] * count,
        },
        schema_overrides={
            "verify_steps": pl.Int32, "accepted_drafts": pl.Int32, "proposed_drafts": pl.Int32,
            "accept_histogram": pl.List(pl.Int32), "output_ids": pl.List(pl.Int32), "error": pl.String,
        },
    )  # fmt: skip


def _chunks(
    folder: Path,
    cell: str,
    first: "np.ndarray[Any, Any]",
    step_ns: "np.ndarray[Any, Any]",
    steps: "np.ndarray[Any, Any]",
) -> int:
    sizes = steps + 1
    starts = np.cumsum(sizes) - sizes
    request = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    chunk = (np.arange(int(sizes.sum())) - starts[request]).astype(np.int32)
    times = first[request] + (step_ns[request] * chunk).astype(np.int64)
    tokens = np.maximum(1, np.diff(np.minimum(TOKENS, (chunk * TOKENS / sizes[request]).astype(int)), prepend=0))
    pl.DataFrame(
        {"request": request, "chunk": chunk, "time_ns": times, "new_tokens": tokens.astype(np.int32)}
    ).with_columns(cell=pl.lit(cell)).write_parquet(folder / "chunks.parquet")
    return len(request)


def _scores(cell: str, outputs: "np.ndarray[Any, Any]", random: np.random.Generator) -> pl.DataFrame:
    count, length = outputs.shape
    token = outputs.ravel()
    return pl.DataFrame(
        {
            "request": np.repeat(np.arange(count, dtype=np.int32), length),
            "position": np.tile(np.arange(length, dtype=np.int32), count),
            "token": token,
            "top1_token": token + (random.random(token.size) < 0.001).astype(np.int32),
            "top1_logprob": np.full(token.size, -0.1),
            "top2_token": token + 2,
            "top2_logprob": -0.1 - random.gamma(1.4, 2.0, token.size),
        }
    ).with_columns(cell=pl.lit(cell))


def _record(session: dict[str, Any], cell: dict[str, Any], count: int, start: int, end: int) -> CellRecord:
    keys = ("arm", "method", "draft_budget", "verify_width", "tensor_parallelism", "block")
    return CellRecord(
        experiment="scale", session=session["key"], cell=cell["key"], session_order=0, workload=cell["workload"],
        workload_key=cell["workload"], workload_kind="synthetic", concurrency=cell["concurrency"], temperature=0.0,
        top_p=1.0, max_new_tokens=512, instance_id="i", devices=(), neighbours=(), engine="x", engine_version="0",
        resolved={}, plan_sha256="", started_utc="", start_ns=start, end_ns=end, window_start_ns=start,
        window_end_ns=end, planned_requests=count, completed_requests=count, loop_lag_p50_ms=0.1, loop_lag_p99_ms=0.2,
        loop_lag_max_ms=0.3, load_average=1.0, checks=(Check(name="synthetic", passed=True),), provenance={},
        **{key: session[key] for key in keys},
    )  # fmt: skip


def _timed(script: str, plan: Path) -> tuple[float, float]:
    """Seconds and peak GiB of one script, run in a child so that its own peak is seen."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, sys.executable, str(ROOT / "workflow_scripts" / script), "--plan", str(plan)]
    began = time.monotonic()
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.monotonic() - began, int(run.stdout.split()[-1]) / 2**20


def main() -> None:
    """Grows the study and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=float, nargs="+", default=[1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--work", type=Path, default=Path("/tmp/draftbench-scale"))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("chunk rows | step | seconds | peak GiB", flush=True)
    for wanted in arguments.chunks:
        shutil.rmtree(arguments.work, ignore_errors=True)
        began = time.monotonic()
        rows = generate(arguments.work, wanted)
        print(f"{rows:.2e} | generate | {time.monotonic() - began:.1f} | ", flush=True)
        for script in ("aggregate.py", "losslessness.py", "statistics.py"):
            seconds, peak = _timed(script, Layout(arguments.work).plan_json)
            print(f"{rows:.2e} | {script.removesuffix('.py')} | {seconds:.1f} | {peak:.2f}", flush=True)
    shutil.rmtree(arguments.work, ignore_errors=True)


if __name__ == "__main__":
    main()
