"""Other tools' definitions on the same rows."""

from dataclasses import replace

import pytest

from draftbench.statistics.crosscheck import crosscheck
from draftbench.statistics.study_plan import StudyPlan
from draftbench.statistics.table_writing import table_from_rows
from tests.unit.statistics.conftest import Finished


def _one_request(plan: StudyPlan) -> dict[tuple[str, str], float]:
    """13 tokens in chunks of 1, 3, 3, 3, 3 in 120 ms after a TTFT of 90 ms; 9 accepted in 4 steps."""
    cell = next(cell for cell in plan.cells if cell.arm == "ddtree-b15")
    request = {
        **cell.condition,
        "completion_tokens": 13,
        "first_chunk_tokens": 1,
        "chunks": 5,
        "decode_tokens": 12,
        "steps": 4,
        "accepted_drafts": 9,
        "acceptance_length": 3.25,
        "ttft_ms": 90.0,
        "decode_time_s": 0.12,
        "decode_time_per_token_ms": 10.0,
        "e2e_ms": 210.0,
    }
    cells = [{**cell.condition, "status": "measured", "duration_s": 0.26, "output_tokens": 13}]
    table = crosscheck(
        replace(plan, cells=(cell,)), table_from_rows("requests", [request]), table_from_rows("cells", cells)
    )
    return {(row["definition"], row["metric"].split(":")[0]): row["value"] for row in table.iter_rows(named=True)}


def test_definitions_by_hand(finished: Finished) -> None:
    """The same request in each tool's words."""
    values = _one_request(finished[1])
    expected = {
        ("draftbench", "TPOT p50"): 10.0,
        ("draftbench", "yield"): 3.0,
        ("draftbench", "acceptance length"): 3.25,
        ("vLLM", "mean_tpot_ms"): 120 / 12,
        ("vLLM", "mean_itl_ms"): 120 / 4,
        ("vLLM", "output throughput"): 13 / 0.26,
        ("SGLang", "mean_itl_ms"): 120 / 12,
        ("SGLang", "spec_accept_length"): 13 / 4,
        ("AIPerf", "inter_chunk_latency avg"): 30.0,
        ("AIPerf", "acceptance length, mean over requests"): 3.25,
    }
    assert {key: values[key] for key in expected} == pytest.approx(expected)


def test_undefined_metrics_are_left_out(finished: Finished) -> None:
    """AR accepts nothing, so no tool's acceptance length stands there."""
    rows = finished[2]["crosscheck"]
    metrics = {row["metric"] for row in rows.iter_rows(named=True) if row["arm"] == "ar"}
    assert metrics
    assert not any("accept" in metric for metric in metrics)
