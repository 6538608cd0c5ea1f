"""A small study written directly as tables, so that figures and reports are tested without the statistics code."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from draftbench.figures.study import REPORT_TABLES, empty_table
from draftbench.layout import Layout
from draftbench.tables import TABLES

ARMS: tuple[tuple[str, str, int | None, int], ...] = (
    ("ar", "AR", None, 1),
    ("dflash", "DFLASH", None, 8),
    ("ddtree-b7", "DDTREE", 7, 8),
    ("ddtree-b15", "DDTREE", 15, 16),
    ("ddtree-b31", "DDTREE", 31, 32),
)
CONDITIONS: tuple[tuple[str, int], ...] = (("agentic", 1), ("code", 1), ("code", 4), ("json", 1))
YIELD = {"ar": 1.0, "dflash": 1.9, "ddtree-b7": 2.1, "ddtree-b15": 2.4, "ddtree-b31": 2.5}
STEP_COST = {"ar": 1.0, "dflash": 1.25, "ddtree-b7": 1.3, "ddtree-b15": 1.45, "ddtree-b31": 2.3}
EASE = {"agentic": 0.92, "code": 1.08, "json": 0.85, "math": 1.0, "chat": 0.8}
LOG_TAIL = "Traceback (most recent call last):\n  CUDA <error> & 100 % of $memory_pool {gone} ~ \\path #1"


@dataclass(frozen=True)
class HandStudy:
    """What to write; `lost` are arms without a single measured cell."""

    arms: tuple[tuple[str, str, int | None, int], ...] = ARMS
    conditions: tuple[tuple[str, int], ...] = CONDITIONS
    tensor_parallelism: tuple[int, ...] = (1,)
    blocks: int = 2
    lost: tuple[str, ...] = ()
    refusals: tuple[dict[str, Any], ...] = ()
    primary_arm: str = "ddtree-b15"
    question: str = "Does speculative decoding pay on this machine?"
    extra_plan: dict[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> list[tuple[str, str, int | None, int]]:
        """Arms with data."""
        return [arm for arm in self.arms if arm[0] not in self.lost]


def speedup_of(arm: str, workload: str, concurrency: int) -> float:
    """True ratio to AR: tokens per step over step cost, less at higher concurrency."""
    return YIELD[arm] / STEP_COST[arm] * EASE[workload] / (1 + 0.12 * (concurrency - 1) ** 0.5)


def write_hand_study(root: Path, study: HandStudy | None = None) -> Layout:
    """plan.json, bench-plan.md and every table under `root`."""
    study = study or HandStudy()
    layout = Layout(root)
    (root / "tables").mkdir(parents=True, exist_ok=True)
    layout.plan_json.parent.mkdir(parents=True, exist_ok=True)
    layout.plan_json.write_text(json.dumps(_plan(study)))
    layout.plan_markdown.write_text("# Plan\n\n| arm | budget |\n|---|---|\n| ddtree-b15 | 15 |\n\n<b>not bold</b>\n")
    for name, rows in _tables(study).items():
        _frame(name, rows).write_parquet(layout.table(name))
    provenance = {
        "git_commit": "0123abcd", "config_sha256": "f" * 64, "seed": 0,
        "versions": {"torch": "2.13.0", "python": "3.11"},
        "hardware": {"cpu": "Xeon & friends_100%", "cores": 2, "gpus": []},
        "command": "snakemake --cores all --resources gpus=8 --configfile config.yaml",
    }  # fmt: skip
    (root / "tables" / "provenance.json").write_text(json.dumps(provenance))
    return layout


def _frame(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    full = [{column.name: row.get(column.name) for column in TABLES[name]} for row in rows]
    return pl.DataFrame(full, schema=empty_table(name).schema)


def _plan(study: HandStudy) -> dict[str, Any]:
    sessions = [
        {"key": f"{arm[0]}_tp{tp}_block{block}-0", "arm": arm[0], "method": arm[1], "draft_budget": arm[2],
         "verify_width": arm[3], "tensor_parallelism": tp, "block": block, "order": 0,
         "cells": [{"key": f"{load}_c{c}-0", "workload": load, "concurrency": c} for load, c in study.conditions]}
        for block in range(1, study.blocks + 1) for tp in study.tensor_parallelism for arm in study.arms
    ]  # fmt: skip
    return {
        "experiment": "by-hand", "question": study.question, "primary_arm": study.primary_arm,
        "statistics": {"margin": 0.03, "confidence": 0.95, "min_decode_tokens": 8},
        "hypotheses": [{"id": "primary-beats-ar", "statement": "DDTree with 15 nodes is faster than AR."}],
        "sessions": sessions, "refusals": list(study.refusals), "plan_sha256": "a" * 64,
        "hardware": {"cpu": "Xeon & friends", "cores": 2, "memory_gib": 24, "gpus": []},
        "duration": {"expected_s": 640, "low_s": 500, "high_s": 900}, "given_up": [], **study.extra_plan,
    }  # fmt: skip


def _conditions(study: HandStudy) -> list[tuple[dict[str, Any], float]]:
    rows = []
    for tp in study.tensor_parallelism:
        for name, method, budget, width in study.measured:
            for workload, concurrency in study.conditions:
                row = {"arm": name, "method": method, "draft_budget": budget, "verify_width": width,
                       "tensor_parallelism": tp, "workload": workload, "concurrency": concurrency}  # fmt: skip
                rows.append((row, speedup_of(name, workload, concurrency)))
    return rows


def _estimate(study: HandStudy, value: float, spread: float) -> dict[str, Any]:
    several = study.blocks > 1
    return {
        "estimate": value, "low": value * (1 - spread) if several else None,
        "high": value * (1 + spread) if several else None,
        "reason": None if several else "one block shows no variation between launches",
        "blocks": study.blocks, "conversations": 4,
    }  # fmt: skip


def _speedup(study: HandStudy, row: dict[str, Any], value: float, baseline: str, measure: str) -> dict[str, Any]:
    estimate = _estimate(study, value, 0.06)
    low = estimate["low"]
    adjusted = (None, None) if low is None else (value * 0.91, value * 1.09)
    verdict = "not_tested" if low is None else "inconclusive"
    if adjusted[0] is not None and adjusted[1] is not None and verdict == "inconclusive":
        verdict = "faster" if adjusted[0] > 1.03 else "slower" if adjusted[1] < 0.97 else "inconclusive"
    return {**row, **estimate, "baseline": baseline, "measure": measure, "primary": True, "low_adjusted": adjusted[0],
            "high_adjusted": adjusted[1], "verdict": verdict, "p_value": 0.01, "degrees_of_freedom": 3.2}  # fmt: skip


def _tables(study: HandStudy) -> dict[str, list[dict[str, Any]]]:
    rows = _conditions(study)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in REPORT_TABLES}
    for row, ratio in rows:
        _add_levels(tables["levels"], study, row, ratio)
        if row["method"] == "AR":
            continue
        measure = "decode_time_per_token" if row["concurrency"] == 1 else "throughput"
        tables["speedups"].append(_speedup(study, row, ratio, "ar", measure))
        if row["method"] == "DDTREE" and "dflash" not in study.lost:
            chain = speedup_of("dflash", row["workload"], row["concurrency"])
            tables["speedups"].append(_speedup(study, row, ratio / chain, "dflash", measure))
        tables["losslessness"].append(_lossless(row))
        if row["concurrency"] == 1:
            tables["decomposition"].append(_decomposed(row, ratio))
            tables["acceptance"] += [
                {**row, "position": j, "marginal": 0.62**j * EASE[row["workload"]], "conditional": 0.62, "steps": 200}
                for j in range(1, 8)
            ]
    tables["cells"] = _cells(study)
    tables["failures"] = [
        {"session": f"{arm}_tp1_block1-0", "stage": "launch", "cell": None, "arm": arm,
         "failure_class": "out_of_memory",
         "message": "CUDA_ERROR: 100% of <memory> & no $wap", "log_tail": LOG_TAIL, "time_utc": "2026-01-01T00:00:00Z"}
        for arm in study.lost
    ]  # fmt: skip
    tables["budgets"] = [
        {"tensor_parallelism": tp, "workload": load, "concurrency": c, "best_arm": study.primary_arm,
         "best_draft_budget": int(study.primary_arm[8:]), "held_out_speedup": speedup_of(study.primary_arm, load, c),
         "low": speedup_of(study.primary_arm, load, c) * 0.9, "high": speedup_of(study.primary_arm, load, c) * 1.1,
         "exploratory": study.blocks == 1}
        for tp in study.tensor_parallelism for load, c in study.conditions
    ]  # fmt: skip
    tables["hypotheses"] = [{"id": "primary-beats-ar", "statement": "DDTree with 15 nodes is faster than AR.",
                             "answer": "supported", "evidence": "faster on 3 of 4 conditions"}]  # fmt: skip
    return tables


def _add_levels(levels: list[dict[str, Any]], study: HandStudy, row: dict[str, Any], ratio: float) -> None:
    ttft = {"agentic": 380.0, "code": 60.0}.get(row["workload"], 140.0)
    values = {
        "ttft_ms": ("ms", ttft), "tpot_ms": ("ms", 9.0 / ratio), "yield": ("tokens/step", YIELD[row["arm"]]),
        "throughput": ("tokens/s", 1000 / 9.0 * ratio * row["concurrency"] ** 0.8),
    }  # fmt: skip
    for metric, (unit, value) in values.items():
        if metric != "yield" or row["method"] != "AR":
            levels.append({**row, "metric": metric, "unit": unit, **_estimate(study, value, 0.05)})


def _lossless(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row, "requests": 8, "identical": 7, "diverged": 1, "first_divergence_p50": 31.0, "margin_max": 0.012,
        "floor_margin_max": 0.02, "diverged_beyond_floor": 0, "ar_ar_identical": 8, "ar_ar_requests": 8,
        "length_ratio": 1.0, "repetitive_share": 0.0, "repetitive_share_ar": 0.0, "verdict": "within_noise",
        "reason": "the one difference lies where the target's two best tokens are 0.012 nats apart, below the floor",
    }  # fmt: skip


def _decomposed(row: dict[str, Any], ratio: float) -> dict[str, Any]:
    steps = 1 / STEP_COST[row["arm"]]
    tokens = ratio / steps
    return {**row, "baseline": "ar", "speedup": ratio, "yield_ratio": tokens, "yield_low": tokens * 0.95,
            "yield_high": tokens * 1.05, "step_time_ratio": steps, "step_time_low": steps * 0.97,
            "step_time_high": steps * 1.03}  # fmt: skip


def _cells(study: HandStudy) -> list[dict[str, Any]]:
    rows = []
    order = 0
    for block in range(1, study.blocks + 1):
        for tp in study.tensor_parallelism:
            for name, method, budget, width in study.arms:
                order += 1
                for workload, concurrency in study.conditions:
                    lost = name in study.lost
                    ratio = speedup_of(name, workload, concurrency)
                    row = {
                        "arm": name, "method": method, "draft_budget": budget, "verify_width": width,
                        "tensor_parallelism": tp, "workload": workload, "concurrency": concurrency,
                        "session": f"{name}_tp{tp}_block{block}-0", "cell": f"{workload}_c{concurrency}-0",
                        "block": block, "session_order": order, "status": "failed" if lost else "measured",
                        "status_reason": "out_of_memory: CUDA_ERROR & more" if lost else None,
                    }  # fmt: skip
                    if not lost:
                        row |= {
                            "instance_id": f"{name}{block}", "requests": 4, "output_tokens": 320, "duration_s": 12.5,
                            "throughput_window": 111.0 * ratio, "ttft_p50_ms": 60.0, "ttft_p99_ms": 90.0,
                            "tpot_p50_ms": 9.0 / ratio, "step_time_ms": 9.0 * STEP_COST[name] * (1 + 0.01 * order),
                            "yield": YIELD[name], "acceptance_length": YIELD[name] * 1.02, "load_average": 1.1,
                        }  # fmt: skip
                    rows.append(row)
    return rows


FULL_STUDY = HandStudy(
    arms=(
        ("ar", "AR", None, 1),
        ("dflash", "DFLASH", None, 16),
        *((f"ddtree-b{budget}", "DDTREE", budget, budget + 1) for budget in (8, 12, 16, 20, 24, 32)),
    ),
    conditions=tuple((load, c) for load in ("agentic", "chat", "code", "json", "math") for c in (1, 4, 16, 32)),
    tensor_parallelism=(4, 8),
    blocks=3,
    primary_arm="ddtree-b16",
)
for _budget, _gain in ((8, 2.1), (12, 2.3), (16, 2.4), (20, 2.45), (24, 2.5), (32, 2.52)):
    YIELD[f"ddtree-b{_budget}"] = _gain
    STEP_COST[f"ddtree-b{_budget}"] = 1.2 + _budget / 40
