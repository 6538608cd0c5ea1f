"""The data dictionary: every table that analysis writes and figures and reports read.

Intervals are `low` to `high` at the config's confidence; a number without an interval has `reason` saying why.
Ratios above 1 mean the arm is better than its baseline.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column's polars type name, unit and meaning."""

    name: str
    type: str
    unit: str
    meaning: str


_CONDITION = (
    Column("arm", "String", "", "name of the arm"),
    Column("method", "String", "", "AR, DFLASH, DDTREE, ..."),
    Column(
        "draft_budget", "Int64", "nodes", "tree nodes verified per step, the root not counted; null for chains and AR"
    ),
    Column("verify_width", "Int64", "tokens", "tokens through the target per step"),
    Column("tensor_parallelism", "Int64", "GPUs", "GPUs a server"),
    Column("workload", "String", "", "workload name"),
    Column("concurrency", "Int64", "conversations", "conversations at once"),
)
_ESTIMATE = (
    Column("estimate", "Float64", "", "point estimate; null with a reason where it is undefined"),
    Column("low", "Float64", "", "lower end of the interval"),
    Column("high", "Float64", "", "upper end of the interval"),
    Column("reason", "String", "", "why estimate or interval is missing; null otherwise"),
    Column("blocks", "Int64", "blocks", "blocks that entered"),
    Column("conversations", "Int64", "conversations", "conversations that entered"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    # One row a cell of the plan, measured or not.
    "cells": (
        *_CONDITION,
        Column("session", "String", "", "session key"),
        Column("cell", "String", "", "cell key within the session"),
        Column("block", "Int64", "", "block number"),
        Column("session_order", "Int64", "", "place in the running order"),
        Column("status", "String", "", "measured, failed, missing or refused"),
        Column("status_reason", "String", "", "failure class and message, or the reason of the refusal"),
        Column("instance_id", "String", "", "server launch that answered"),
        Column("requests", "Int64", "requests", "completed requests"),
        Column("output_tokens", "Int64", "tokens", "tokens generated"),
        Column("duration_s", "Float64", "s", "first send to last token"),
        Column("throughput_window", "Float64", "tokens/s", "output tokens per second in the fixed-occupancy window"),
        Column("throughput_makespan", "Float64", "tokens/s", "output tokens per second over the whole cell"),
        Column("ttft_p50_ms", "Float64", "ms", "median time to first token"),
        Column("ttft_p99_ms", "Float64", "ms", "99th percentile of time to first token"),
        Column("tpot_p50_ms", "Float64", "ms", "median of (last - first)/(N - tokens of the first chunk)"),
        Column("inter_chunk_p50_ms", "Float64", "ms", "median gap between streamed chunks"),
        Column("inter_chunk_p99_ms", "Float64", "ms", "99th percentile of the gap between streamed chunks"),
        Column("step_time_ms", "Float64", "ms", "decode time per verify step (AR: per token), pooled"),
        Column("yield", "Float64", "tokens/step", "(N - tokens of the first chunk) / steps, pooled"),
        Column("acceptance_length", "Float64", "tokens/step", "1 + accepted drafts / steps, pooled"),
        Column("cached_share", "Float64", "", "cached prompt tokens / prompt tokens"),
        Column("capped_share", "Float64", "", "requests that ended at the cap"),
        Column("repetitive_share", "Float64", "", "requests whose output the repetition detector marked"),
        Column("loop_lag_p99_ms", "Float64", "ms", "99th percentile of the client's loop lag"),
        Column("load_average", "Float64", "", "one-minute load average when the cell began"),
        Column("temperature", "Float64", "", "sampling temperature; 0 = greedy"),
    ),
    # One row a completed request of a measured cell; output ids stay in the cells' folders.
    "requests": (
        *_CONDITION,
        Column("session", "String", "", "session key"),
        Column("cell", "String", "", "cell key within the session"),
        Column("block", "Int64", "", "block number"),
        Column("session_order", "Int64", "", "place in the running order"),
        Column("instance_id", "String", "", "server launch that answered"),
        Column("request", "Int64", "", "number within the cell"),
        Column("conversation", "String", "", "workload item"),
        Column("turn", "Int64", "", "turn of the conversation, from 0"),
        Column("lane", "Int64", "", "which of the concurrent conversations"),
        Column("prompt_tokens", "Int64", "tokens", "prompt length"),
        Column("cached_tokens", "Int64", "tokens", "prompt tokens answered from the prefix cache"),
        Column("completion_tokens", "Int64", "tokens", "output length N"),
        Column("first_chunk_tokens", "Int64", "tokens", "tokens of the first chunk"),
        Column("chunks", "Int64", "chunks", "streamed chunks"),
        Column("decode_tokens", "Int64", "tokens", "N - tokens of the first chunk"),
        Column("steps", "Int64", "steps", "verify steps; AR: decode tokens"),
        Column("accepted_drafts", "Int64", "tokens", "drafts accepted; null for AR"),
        Column("accept_histogram", "List(Int32)", "steps", "index j: steps that accepted exactly j drafts"),
        Column("merged_chunks", "Boolean", "", "chunks do not match steps: per-step times are not readable"),
        Column("ttft_ms", "Float64", "ms", "first token - sent"),
        Column("queue_ms", "Float64", "ms", "sent - due: the client's own delay"),
        Column("decode_time_s", "Float64", "s", "last token - first token"),
        Column("decode_time_per_token_ms", "Float64", "ms", "decode time / decode tokens (TPOT)"),
        Column("step_time_ms", "Float64", "ms", "decode time / steps"),
        Column("yield", "Float64", "tokens/step", "decode tokens / steps"),
        Column("acceptance_length", "Float64", "tokens/step", "1 + accepted drafts / steps"),
        Column("e2e_ms", "Float64", "ms", "last token - sent"),
        Column("turn_time_s", "Float64", "s", "last token - due: the turn as the user waits for it"),
        Column("capped", "Boolean", "", "ended at the cap"),
        Column("repetitive", "Boolean", "", "marked by the repetition detector"),
        Column("sent_ns", "Int64", "ns", "client's monotonic clock"),
        Column("last_token_ns", "Int64", "ns", "client's monotonic clock"),
    ),
    # Ratios with verdicts: arm against baseline (AR, or DFlash for trees) within blocks.
    "speedups": (
        *_CONDITION,
        Column("baseline", "String", "", "arm in the denominator"),
        Column(
            "measure", "String", "", "decode_time_per_token (concurrency 1), throughput (above), session_time, ttft"
        ),
        Column("primary", "Boolean", "", "whether the comparison is in the Holm family"),
        *_ESTIMATE,
        Column("low_these_prompts", "Float64", "", "lower end, prompts taken as fixed"),
        Column("high_these_prompts", "Float64", "", "upper end, prompts taken as fixed"),
        Column("low_adjusted", "Float64", "", "lower end at the Holm-adjusted level, the one of the verdict"),
        Column("high_adjusted", "Float64", "", "upper end at the Holm-adjusted level"),
        Column("low_adjusted_these_prompts", "Float64", "", "lower end at the Holm-adjusted level, prompts as fixed"),
        Column("high_adjusted_these_prompts", "Float64", "", "upper end at the Holm-adjusted level, prompts as fixed"),
        Column("low_bootstrap", "Float64", "", "lower end of the crossed bootstrap, a cross-check"),
        Column("high_bootstrap", "Float64", "", "upper end of the crossed bootstrap"),
        Column("p_value", "Float64", "", "two-sided, of no difference, unadjusted"),
        Column("p_value_margin", "Float64", "", "of a difference within the margin; what Holm puts in order"),
        Column("degrees_of_freedom", "Float64", "", "Satterthwaite"),
        Column("turns", "Int64", "turns", "paired turns a block; null for throughput"),
        Column("verdict", "String", "", "faster, slower, inconclusive or not_tested, for prompts like these"),
        Column("verdict_these_prompts", "String", "", "the same with the prompts taken as fixed"),
    ),
    # speed-up = yield ratio x step-time ratio, exactly, at concurrency 1.
    "decomposition": (
        *_CONDITION,
        Column("baseline", "String", "", "arm in the denominator"),
        Column("speedup", "Float64", "", "geometric mean over paired turns"),
        Column("yield_ratio", "Float64", "", "tokens per step, arm / baseline"),
        Column("yield_low", "Float64", "", "lower end"),
        Column("yield_high", "Float64", "", "upper end"),
        Column("step_time_ratio", "Float64", "", "baseline's step time / arm's step time (below 1: steps cost more)"),
        Column("step_time_low", "Float64", "", "lower end"),
        Column("step_time_high", "Float64", "", "upper end"),
        Column("reason", "String", "", "why an interval is missing"),
    ),
    # Absolute levels with intervals: one row a (condition, metric).
    "levels": (
        *_CONDITION,
        Column(
            "metric",
            "String",
            "",
            "ttft_ms, tpot_ms, throughput, yield, acceptance_length, step_time_ms, session_time_s",
        ),
        Column("unit", "String", "", "unit of the metric"),
        *_ESTIMATE,
    ),
    # Share of steps that accept at least j drafts.
    "acceptance": (
        *_CONDITION,
        Column("position", "Int64", "", "draft depth j, from 1"),
        Column("marginal", "Float64", "", "steps that accepted at least j drafts / steps"),
        Column("conditional", "Float64", "", "accepted at least j / accepted at least j - 1"),
        Column("steps", "Int64", "steps", "steps that entered"),
    ),
    "losslessness": (
        *_CONDITION,
        Column("requests", "Int64", "requests", "requests compared with AR's of the same block"),
        Column("identical", "Int64", "requests", "requests with AR's tokens exactly"),
        Column("diverged", "Int64", "requests", "requests that differ somewhere"),
        Column("first_divergence_p50", "Float64", "tokens", "median position of the first difference"),
        Column("diverged_unscored", "Int64", "requests", "first differences where AR has no score"),
        Column("margin_max", "Float64", "nats", "largest top-1/top-2 margin of the target at a first difference"),
        Column("floor_margin_max", "Float64", "nats", "the same for AR scored again by prefill, the noise floor"),
        Column("floor_tokens", "Int64", "tokens", "AR tokens scored by prefill at this concurrency"),
        Column("floor_disagreements", "Int64", "tokens", "of those, tokens that are not the prefill's best"),
        Column("floor_limit", "Float64", "nats", "margin above which a difference is not taken for noise"),
        Column("diverged_beyond_floor", "Int64", "requests", "first differences with a margin above floor_limit"),
        Column("ar_ar_identical", "Int64", "requests", "AR against AR of another block: identical"),
        Column("ar_ar_requests", "Int64", "requests", "AR against AR of another block: compared"),
        Column("length_ratio", "Float64", "", "mean output tokens, arm / AR"),
        Column("length_p_value", "Float64", "", "greedy: Wilcoxon on paired lengths; sampled: Kolmogorov-Smirnov"),
        Column("repetitive_share", "Float64", "", "marked by the repetition detector"),
        Column("repetitive_share_ar", "Float64", "", "the same for AR"),
        Column("leakage_suspected", "Boolean", "", "divergence grows with budget or concurrency beyond the floor"),
        Column("verdict", "String", "", "identical, within_noise, different or not_shown"),
        Column("reason", "String", "", "the sentence behind the verdict"),
    ),
    "budgets": (
        Column("tensor_parallelism", "Int64", "GPUs", "GPUs a server"),
        Column("workload", "String", "", "workload name"),
        Column("concurrency", "Int64", "conversations", "conversations at once"),
        Column("best_arm", "String", "", "arm with the highest speed-up on the selection data"),
        Column("best_draft_budget", "Int64", "nodes", "its budget"),
        Column("held_out_speedup", "Float64", "", "its speed-up on the data not used to select it (cross-fitted)"),
        Column("low", "Float64", "", "lower end"),
        Column("high", "Float64", "", "upper end"),
        Column("exploratory", "Boolean", "", "true where one block allows no held-out data"),
        Column("reason", "String", "", "why a number is missing"),
    ),
    "hypotheses": (
        Column("id", "String", "", "short name"),
        Column("statement", "String", "", "the claim"),
        Column("answer", "String", "", "supported, refuted or undecided"),
        Column("evidence", "String", "", "the numbers behind the answer, in words"),
    ),
    "failures": (
        Column("session", "String", "", "session key"),
        Column("stage", "String", "", "launch, warmup or measure"),
        Column("cell", "String", "", "cell key; null for launch and warm-up"),
        Column("arm", "String", "", "name of the arm"),
        Column("workload", "String", "", "workload name"),
        Column("concurrency", "Int64", "conversations", "conversations at once"),
        Column("failure_class", "String", "", "kind of failure"),
        Column("message", "String", "", "one line"),
        Column("log_tail", "String", "", "last lines of the log"),
        Column("time_utc", "String", "", "when"),
    ),
    "deviations": (
        Column("what", "String", "", "the planned thing"),
        Column("planned", "String", "", "as planned"),
        Column("happened", "String", "", "as it was"),
    ),
    "crosscheck": (
        *_CONDITION,
        Column("definition", "String", "", "whose definition: draftbench, vLLM, SGLang, AIPerf"),
        Column("metric", "String", "", "the metric as that tool names it"),
        Column("unit", "String", "", "unit"),
        Column("value", "Float64", "", "recomputed from the same rows"),
    ),
}


def data_dictionary() -> str:
    """Every table and column as Markdown; `docs/results-format.md` holds this text."""
    lines = [
        "# Results format",
        "",
        "Generated by `make docs` from draftbench/tables.py.",
        "Every table lies in `results/<experiment>/tables/` as Parquet and as CSV.",
        "",
    ]
    for table, columns in TABLES.items():
        lines += [f"## {table}", "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        lines += [f"| `{c.name}` | {c.type} | {c.unit} | {c.meaning} |" for c in columns]
        lines.append("")
    return "\n".join(lines)
