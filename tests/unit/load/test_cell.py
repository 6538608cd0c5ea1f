"""A whole cell against a real HTTP server: sound, and with each fault of the server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from draftbench.errors import MeasurementError
from draftbench.load import cell as cell_module
from draftbench.load.cell import CellPlan, measure_cell
from draftbench.load.served_instance import ServedInstance
from draftbench.records import CellRecord
from tests.unit.load.builders import CELL, SESSION, RunPlan, dialogue
from tests.unit.load.tiny_server import TinyServer, served_in_thread

MEASURED = [
    dialogue("a", [5, 6, 7, 8], [5, 6, 7, 8, 11, 12, 30, 31], delays=[0, 20]),
    dialogue("b", [9, 6, 7, 8]),
    dialogue("c", [10, 6, 7, 8]),
]


def instance(server: TinyServer, is_alive: Callable[[], bool] = lambda: True) -> ServedInstance:
    """The lease's view of the tiny server."""
    warm: list[bool] = []
    return ServedInstance(
        url=server.url,
        instance_id="instance-1",
        devices=("cpu",),
        neighbours=("other_session",),
        command=("python", "-m", "tiny"),
        ready_seconds=1.5,
        is_alive=is_alive,
        note_progress=lambda: None,
        is_warm=lambda: bool(warm),
        mark_warm=lambda: warm.append(True),
    )


def measured(folder: Path, server: TinyServer, **plan: Any) -> Path:
    """Measure the cell on this server."""
    method = "DFLASH" if server.speculative else "AR"
    run = RunPlan(folder, method=method, measured=MEASURED, **plan).build()
    with served_in_thread(server):
        return measure_cell(CellPlan(run, SESSION, CELL), MEASURED, instance(server))


@pytest.mark.parametrize("cumulative", [False, True], ids=["incremental", "cumulative"])
def test_a_speculative_cell_leaves_rows_and_proof(tmp_path: Path, cumulative: bool) -> None:
    """Four requests of 7 tokens in 3 steps; every check passed; no scores, since the arm speculates."""
    path = measured(tmp_path, TinyServer(cumulative=cumulative))
    record = CellRecord.model_validate_json(path.read_bytes())
    rows = pq.read_table(path.parent / "requests.parquet").to_pylist()

    assert record.valid
    assert (record.planned_requests, record.completed_requests) == (4, 4)
    assert (record.instance_id, record.devices, record.neighbours) == ("instance-1", ("cpu",), ("other_session",))
    assert [row["completion_tokens"] for row in rows] == [7] * 4
    assert [row["verify_steps"] for row in rows] == [3] * 4
    assert [(row["conversation"], row["turn"]) for row in rows] == [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    assert rows[1]["sent_ns"] - rows[0]["done_ns"] >= 20_000_000
    assert not (path.parent / "scores.parquet").exists()


def test_secrets_and_counters_stay_out_of_the_record(tmp_path: Path) -> None:
    """The server's settings are recorded, its API key and running counters are not."""
    resolved = json.loads(measured(tmp_path, TinyServer()).read_text())["resolved"]

    assert resolved == {
        "version": "0.5.17",
        "page_size": 1,
        "api_key": "(redacted)",
        "effective_max_running_requests_per_dp": 48,
    }


def test_an_ar_cell_scores_its_own_output(tmp_path: Path) -> None:
    """Seven scored positions for each of four requests, in the order of the output."""
    path = measured(tmp_path, TinyServer(speculative=False))
    scores = pq.read_table(path.parent / "scores.parquet").to_pylist()

    assert len(scores) == 4 * 7
    assert [row["token"] for row in scores if row["request"] == 2] == [11, 12, 13, 14, 15, 16, 17]
    assert {row["top1_logprob"] - row["top2_logprob"] for row in scores} == {1.25}


def test_a_sampled_ar_cell_is_not_scored(tmp_path: Path) -> None:
    """Scores are the reference of greedy losslessness only."""
    path = measured(tmp_path, TinyServer(speculative=False), temperature=0.7)

    assert not (path.parent / "scores.parquet").exists()


def test_the_cache_is_flushed_before_and_a_refusal_is_waited_out(tmp_path: Path) -> None:
    """A server that still ends a former request refuses twice; the third flush holds."""
    server = TinyServer(flush_refusals=2)
    measured(tmp_path, server)

    assert server.flushes == 3


def test_a_cache_that_cannot_be_flushed_fails_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its patience the cell is refused as cache_state, and nothing was sent."""
    monkeypatch.setattr(cell_module, "FLUSH_PATIENCE_S", 0.0)
    monkeypatch.setattr(cell_module.flush_cache, "__defaults__", (0.0,))
    server = TinyServer(flush_refusals=99)
    with pytest.raises(MeasurementError, match="refused to flush") as caught:
        measured(tmp_path, server)

    assert caught.value.failure_class == "cache_state"
    assert server.calls == 0


@pytest.mark.parametrize(
    ("fault", "failure_class", "message"),
    [
        ("http_500", "incomplete", "HTTP 500"),
        ("html", "incomplete", "content_type"),
        ("cut", "incomplete", "truncated"),
        ("cut_json", "incomplete", "truncated"),
        ("bad_json", "incomplete", "all_requests_done: .*malformed"),
        ("no_done", "incomplete", "all_requests_done: .*truncated"),
        ("hang", "hang", "no token on any stream"),
        ("wrong_prompt_count", "identity", "prompt_tokens_are_the_ids_sent"),
        ("no_speculation", "identity", "speculative_fields_fit_the_arm"),
        ("cached", "cache_state", "cached_tokens_as_predicted"),
    ],
)
def test_each_fault_fails_the_cell_with_its_class(tmp_path: Path, fault: str, failure_class: str, message: str) -> None:
    """One bad answer among four is enough, and no cell.json appears."""
    with pytest.raises(MeasurementError, match=message) as caught:
        measured(tmp_path, TinyServer(fault=fault, faulty_call=3), hang_timeout=1.0)

    assert caught.value.failure_class == failure_class
    assert not list(tmp_path.rglob("cell.json"))
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_late_client_fails_the_cell(tmp_path: Path) -> None:
    """Nobody answers within a millionth of a step."""
    with pytest.raises(MeasurementError, match="client_kept_up") as caught:
        measured(tmp_path, TinyServer(), lag_share=1e-6)

    assert caught.value.failure_class == "client_late"


def test_a_dead_server_is_a_crash(tmp_path: Path) -> None:
    """The process is gone while its port still answers with silence."""
    run = RunPlan(tmp_path, measured=MEASURED).build()
    server = TinyServer(fault="hang")
    with served_in_thread(server):
        gone = instance(server, is_alive=lambda: server.calls == 0)
        with pytest.raises(MeasurementError, match="the server died") as caught:
            measure_cell(CellPlan(run, SESSION, CELL), MEASURED, gone)

    assert caught.value.failure_class == "crash"
