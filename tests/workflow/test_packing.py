"""The eight-GPU matrix against stub servers on a declared node."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.conftest import Workbench, stub_config

pytestmark = pytest.mark.workflow

NUMA = ({0, 1, 2, 3}, {4, 5, 6, 7})


def _sessions(bench: Workbench) -> dict[str, dict[str, Any]]:
    """Each server's GPUs and life, from the stub's own timeline; cells from their records."""
    lives: dict[int, dict[str, Any]] = defaultdict(dict)
    for line in Path(bench.environment["DRAFTBENCH_TIMELINE"]).read_text().splitlines():
        event = json.loads(line)
        life = lives[event["pid"]]
        if event["event"] == "start":
            life |= {"gpus": {int(gpu) for gpu in event["cuda_visible_devices"].split(",")}, "start": event["time"]}
            life["name"] = event["name"]
        if event["event"] == "exit":
            life["end"] = event["time"]
    return {life["name"]: life for life in lives.values()}


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["start"] < other["end"] and other["start"] < one["end"]


def test_tp4_runs_in_pairs_and_tp8_alone(bench: Workbench) -> None:
    """Never more than 8 GPUs held, none twice, TP4 pairs on disjoint NUMA nodes, TP8 alone, one start a session."""
    content = stub_config(tensor_parallelism=[4, 8], blocks=1)
    content["arms"][2]["draft_budgets"] = [8, 16]
    content |= bench.wide_models()
    bench.write_config(content)
    bench.environment["DRAFTBENCH_TIMELINE"] = str(bench.folder / "timeline.jsonl")

    done = bench.run()

    assert done.code == 0, done.output[-5000:]
    lives = list(_sessions(bench).values())
    assert len(lives) == 8
    for life in lives:
        together = [other for other in lives if other["start"] <= life["start"] < other["end"]]
        held = [gpu for other in together for gpu in other["gpus"]]
        assert len(held) == len(set(held)) <= 8
        assert len(life["gpus"]) == 8 or life["gpus"] in NUMA
        if any(len(other["gpus"]) == 8 for other in together):
            assert together == [life]
    fours = [life for life in lives if len(life["gpus"]) == 4]
    assert any(_overlap(one, other) for one in fours for other in fours if one is not other)


def test_cells_of_a_session_come_one_after_the_other(finished: Workbench) -> None:
    """One server, one cell at a time; sessions on other GPUs may run beside."""
    for session in finished.results.glob("sessions/*"):
        records = [json.loads(path.read_text()) for path in session.glob("*/cell.json")]
        spans = sorted((record["start_ns"], record["end_ns"]) for record in records)
        assert len(spans) == 2
        assert spans[0][1] <= spans[1][0]
        assert len({record["instance_id"] for record in records}) == 1
