"""Metrics of a single request and of a cell's chunks."""

import polars as pl
import pytest

from draftbench.records import REQUEST_COLUMNS
from draftbench.statistics.cell_files import chunk_summary, derive_metrics

MS = 1_000_000


def _request(**changes: object) -> pl.DataFrame:
    """13 tokens: 1 in the first chunk at 100 ms, then 12 in 4 steps until 220 ms; 9 drafts accepted."""
    row: dict[str, object] = dict.fromkeys(REQUEST_COLUMNS) | {
        "completion_tokens": 13,
        "first_chunk_tokens": 1,
        "verify_steps": 4,
        "accepted_drafts": 9,
        "output_ids": list(range(13)),
        "finish_reason": "stop",
        "due_ns": 0,
        "sent_ns": 10 * MS,
        "first_token_ns": 100 * MS,
        "last_token_ns": 220 * MS,
    }
    return pl.DataFrame([row | changes], schema_overrides={"error": pl.String, "verify_steps": pl.Int32})


def test_metrics_of_a_request_by_hand() -> None:
    """120 ms over 12 tokens and 4 steps, the first token not counted."""
    row = derive_metrics(_request(), "DDTREE").row(0, named=True)
    expected = {
        "ttft_ms": 90.0,
        "queue_ms": 10.0,
        "decode_time_s": 0.12,
        "decode_tokens": 12,
        "decode_time_per_token_ms": 10.0,
        "steps": 4,
        "step_time_ms": 30.0,
        "yield": 3.0,
        "acceptance_length": 3.25,
        "e2e_ms": 210.0,
        "turn_time_s": 0.22,
        "capped": False,
        "repetitive": False,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_a_step_of_ar_is_a_token() -> None:
    """AR has no verify steps of its own, so that its yield is 1 and its step time its time per token."""
    changes = {"verify_steps": None, "accepted_drafts": None}
    row = derive_metrics(_request(**changes), "AR").row(0, named=True)
    assert (row["steps"], row["yield"], row["step_time_ms"]) == (12, 1.0, pytest.approx(10.0))
    assert row["acceptance_length"] is None


def test_undefined_metrics_are_null_not_zero() -> None:
    """One token leaves nothing to decode: no time per token, no yield, no division by zero."""
    one = _request(completion_tokens=1, verify_steps=0, accepted_drafts=0, last_token_ns=100 * MS)
    row = derive_metrics(one, "DFLASH").row(0, named=True)
    names = ("decode_time_per_token_ms", "step_time_ms", "yield", "acceptance_length")
    assert [row[name] for name in names] == [None] * 4
    assert row["decode_tokens"] == 0


def test_failed_requests_enter_no_metric_and_the_cap_is_seen() -> None:
    """A row with an error is dropped; `length` is the cap."""
    rows = pl.concat([_request(), _request(error="timeout"), _request(finish_reason="length")], how="vertical_relaxed")
    assert derive_metrics(rows, "DFLASH")["capped"].to_list() == [False, True]


def test_gaps_and_window_by_hand() -> None:
    """Gaps 10, 20, 40 and 30 ms; the window (100, 150] holds the chunks at 110, 130 and 140, of 2, 3 and 5 tokens."""
    rows = [(0, 0, 100, 1), (0, 1, 110, 2), (0, 2, 130, 3), (0, 3, 170, 4), (1, 0, 140, 5), (1, 1, 170, 6)]
    schema = {"request": pl.Int32, "chunk": pl.Int32, "time_ns": pl.Int64, "new_tokens": pl.Int32}
    frame = pl.DataFrame([(r, c, t * MS, n) for r, c, t, n in rows], schema=schema, orient="row")
    summary = chunk_summary(frame.lazy(), (100 * MS, 150 * MS))
    assert summary["inter_chunk_p50_ms"] == pytest.approx(25.0)
    assert summary["window_tokens"] == 10
