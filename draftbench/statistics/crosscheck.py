"""Other tools' definitions recomputed from the same rows, so that a reader can compare with what they know.

vLLM: `vllm bench serve`; SGLang: `sglang.bench_serving`; AIPerf 0.13 without per-chunk usage.
The tools differ in what they divide by once a chunk holds several tokens, and in which step counts towards acceptance.
"""

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from draftbench.statistics.study_plan import StudyPlan
from draftbench.statistics.table_writing import table_from_rows

_DECODE_MS = 1e3 * pl.col("decode_time_s")
_TPOT_N_MINUS_1 = pl.when(pl.col("completion_tokens") > 1).then(_DECODE_MS / (pl.col("completion_tokens") - 1))
_PER_CHUNK_GAP = 1e3 * pl.col("decode_time_s").sum() / (pl.col("chunks") - 1).sum()
_PER_TOKEN_GAP = 1e3 * pl.col("decode_time_s").sum() / pl.col("decode_tokens").sum()
_DRAFTING = pl.col("accepted_drafts").is_not_null() & (pl.col("steps") > 0)
_STEPS = pl.col("steps").filter(_DRAFTING)


@dataclass(frozen=True)
class Definition:
    """A metric as a tool defines it, over the pooled requests of a condition."""

    tool: str
    metric: str
    unit: str
    value: pl.Expr


_TTFT, _TPOT = pl.col("ttft_ms"), pl.col("decode_time_per_token_ms")
_YIELD = pl.col("decode_tokens").filter(_DRAFTING).sum() / _STEPS.sum()
_ACCEPTANCE_POOLED = 1 + pl.col("accepted_drafts").sum() / _STEPS.sum()
_ACCEPTANCE_A_REQUEST = pl.col("acceptance_length").filter(_DRAFTING).mean()
_TOKENS_A_STEP = (pl.col("completion_tokens").filter(_DRAFTING) / _STEPS).mean()

DEFINITIONS = (
    Definition("draftbench", "TTFT p50", "ms", _TTFT.median()),
    Definition("draftbench", "TPOT p50: (last - first)/(N - first chunk)", "ms", _TPOT.median()),
    Definition("draftbench", "yield: decode tokens/steps, pooled", "tokens/step", _YIELD),
    Definition("draftbench", "acceptance length: 1 + accepted/steps, pooled", "tokens/step", _ACCEPTANCE_POOLED),
    Definition("vLLM", "mean_ttft_ms", "ms", _TTFT.mean()),
    Definition("vLLM", "mean_tpot_ms: (latency - TTFT)/(N - 1)", "ms", _TPOT_N_MINUS_1.mean()),
    Definition("vLLM", "median_tpot_ms", "ms", _TPOT_N_MINUS_1.median()),
    Definition("vLLM", "mean_itl_ms: gap between chunks", "ms", _PER_CHUNK_GAP),
    Definition("vLLM", "mean_e2el_ms", "ms", pl.col("e2e_ms").mean()),
    Definition("SGLang", "mean_tpot_ms: (latency - TTFT)/(N - 1)", "ms", _TPOT_N_MINUS_1.mean()),
    Definition("SGLang", "mean_itl_ms: gap shared among a chunk's tokens", "ms", _PER_TOKEN_GAP),
    Definition("SGLang", "spec_accept_length: N/steps, mean over requests", "tokens/step", _TOKENS_A_STEP),
    Definition("AIPerf", "time_to_first_token avg", "ms", _TTFT.mean()),
    Definition("AIPerf", "inter_token_latency avg: (latency - TTFT)/(N - 1)", "ms", _TPOT_N_MINUS_1.mean()),
    Definition("AIPerf", "inter_chunk_latency avg", "ms", _PER_CHUNK_GAP),
    Definition("AIPerf", "acceptance length, mean over requests", "tokens/step", _ACCEPTANCE_A_REQUEST),
)
THROUGHPUT_METRIC = "output throughput: all tokens/whole duration"
TOOLS = ("draftbench", "vLLM", "SGLang", "AIPerf")


def crosscheck(plan: StudyPlan, requests: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Table crosscheck: every definition at every condition; rows whose value is undefined are left out."""
    keys = ["arm", "tensor_parallelism", "workload", "concurrency"]
    values = [definition.value.alias(str(index)) for index, definition in enumerate(DEFINITIONS)]
    by_key = {row[:4]: row[4:] for row in requests.group_by(keys).agg(values).iter_rows()}
    throughput = _throughput(cells, keys)
    rows: list[dict[str, Any]] = []
    for condition in plan.conditions:
        key = tuple(condition.condition[name] for name in keys)
        if key not in by_key:
            continue
        found = [(d.tool, d.metric, d.unit, value) for d, value in zip(DEFINITIONS, by_key[key], strict=True)]
        found += [(tool, THROUGHPUT_METRIC, "tokens/s", throughput.get(key)) for tool in TOOLS[1:]]
        rows += [
            {**condition.condition, "definition": tool, "metric": metric, "unit": unit, "value": float(value)}
            for tool, metric, unit, value in sorted(found, key=lambda row: TOOLS.index(row[0]))
            if value is not None and not math.isnan(value)
        ]
    return table_from_rows("crosscheck", rows)


def _throughput(cells: pl.DataFrame, keys: list[str]) -> dict[tuple[Any, ...], float]:
    measured = cells.filter((pl.col("status") == "measured") & (pl.col("duration_s") > 0))
    pooled = measured.group_by(keys).agg(pl.col("output_tokens").sum() / pl.col("duration_s").sum())
    return {row[:4]: row[4] for row in pooled.iter_rows()}
