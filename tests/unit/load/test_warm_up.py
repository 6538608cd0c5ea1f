"""Warm-up: who is sent, how often, and never a measured prompt."""

from pathlib import Path

import pytest

from draftbench.errors import MeasurementError
from draftbench.load.warm_up import (
    Calibration,
    fill_lanes,
    half_medians_ms,
    highest_concurrencies,
    is_steady,
    require_disjoint,
    warm_up,
)
from draftbench.records import ChunkRecord
from tests.unit.load.builders import MS, SESSION, RunPlan, autoregressive_record, dialogue
from tests.unit.load.test_cell import instance
from tests.unit.load.tiny_server import TinyServer, served_in_thread

WARM = [dialogue("w", [1, 2, 3], [1, 2, 3, 4])]


def test_the_highest_concurrency_of_a_workload_warms_up(tmp_path: Path) -> None:
    """Cells at 1, 4 and 2 of one workload are warmed up at 4, once."""
    session = RunPlan(tmp_path).build().sessions[SESSION]
    (cell,) = session.cells.values()
    cells = {str(level): cell.model_copy(update={"concurrency": level}) for level in (1, 4, 2)}

    assert highest_concurrencies(session.model_copy(update={"cells": cells})) == {"code-abcdef": ("code", 4)}


def test_one_conversation_fills_four_lanes_under_four_names() -> None:
    """The batch that will be measured is warmed up, although there is one calibration conversation."""
    filled = fill_lanes(WARM, 4)

    assert [conversation.session_id for conversation in filled] == ["w#0", "w#1", "w#2", "w#3"]
    assert {conversation.item_id for conversation in filled} == {"item-w"}


def test_a_measured_item_or_prompt_cannot_warm_up() -> None:
    """Neither the same item nor the same ids under another name."""
    require_disjoint("code", WARM, [dialogue("m", [9, 9])])
    with pytest.raises(MeasurementError, match="item item-w is measured"):
        require_disjoint("code", WARM, [dialogue("w", [9, 9])])
    with pytest.raises(MeasurementError, match="a prompt of warm-up item item-w is measured too"):
        require_disjoint("code", WARM, [dialogue("m", [1, 2, 3, 4])])


def timed(*gaps_ms: float) -> list[object]:
    """Chunks with these gaps."""
    times = [sum(gaps_ms[:count]) for count in range(len(gaps_ms) + 1)]
    return [ChunkRecord(round(time * MS), 1) for time in times]


def test_a_pass_is_steady_when_its_halves_agree() -> None:
    """Halves 10/10 ms and 10/11 ms are steady, 20/10 ms is not; 7 gaps say nothing."""
    first_slow = autoregressive_record(chunks=timed(*[20] * 4, *[10] * 4))
    even = autoregressive_record(chunks=timed(*[10] * 4, *[11] * 4))

    assert half_medians_ms([first_slow]) == (20.0, 10.0)
    assert not is_steady((20.0, 10.0), None)
    assert half_medians_ms([even]) == (10.0, 11.0)
    assert is_steady((10.0, 11.0), None)
    assert half_medians_ms([autoregressive_record(chunks=timed(*[10] * 7))]) is None
    assert not is_steady(None, (10.0, 10.0))


def test_a_growing_context_is_steady_when_two_passes_agree() -> None:
    """10 then 20 ms in both passes is steady in the second one; 15 then 20 ms before it is not."""
    assert is_steady((10.0, 20.0), (10.5, 19.5))
    assert not is_steady((10.0, 20.0), (15.0, 20.0))


def test_warm_up_says_what_it_did_and_marks_the_instance(tmp_path: Path) -> None:
    """Two turns on two lanes, one to three passes; the record names items and passes."""
    run = RunPlan(tmp_path).build()
    server = TinyServer()
    with served_in_thread(server):
        served = instance(server)
        record = warm_up(run, SESSION, [Calibration("code", 2, WARM)], served)

    (workload,) = record["workloads"]
    assert served.is_warm()
    assert 1 <= len(workload["passes"]) <= 3
    assert server.calls == 4 * len(workload["passes"])
    assert all(step["requests"] == 4 and step["output_tokens"] == 28 for step in workload["passes"])
    assert (workload["items"], record["instance_id"], record["reason"]) == (["item-w"], "instance-1", "")


def test_a_server_that_never_steadies_is_given_three_passes(tmp_path: Path) -> None:
    """One short conversation has too few gaps to judge: three passes, and the record says not steady."""
    run = RunPlan(tmp_path).build()
    with served_in_thread(TinyServer()) as server:
        record = warm_up(run, SESSION, [Calibration("code", 1, [dialogue("w", [1, 2, 3])])], instance(server))

    assert record["workloads"][0]["steady"] is False
    assert len(record["workloads"][0]["passes"]) == 3


def test_a_failed_warm_up_leaves_the_instance_cold(tmp_path: Path) -> None:
    """A broken answer is an error and no mark is set."""
    run = RunPlan(tmp_path).build()
    with served_in_thread(TinyServer(fault="bad_json")) as server:
        served = instance(server)
        with pytest.raises(MeasurementError, match="warm-up conversation w#0 failed"):
            warm_up(run, SESSION, [Calibration("code", 1, WARM)], served)

    assert not served.is_warm()


def test_no_calibration_is_said(tmp_path: Path) -> None:
    """The record has the reason."""
    with served_in_thread(TinyServer()) as server:
        record = warm_up(RunPlan(tmp_path).build(), SESSION, [], instance(server))

    assert record["reason"].startswith("no workload of this session has calibration_ranks")
