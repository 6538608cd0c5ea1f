"""Durations: rates, cells, packing on the node, and correction by what finished."""

from dataclasses import replace

import pytest

from draftbench.config import Arm
from draftbench.matrix import Cell, Session
from draftbench.plan.assumptions import JOB_SECONDS, Rates, Span, gpu_bandwidth, rates_of
from draftbench.plan.budget import skeleton
from draftbench.plan.duration import (
    WorkSize,
    expected_seconds,
    timeline,
    work_seconds,
    work_size,
)

from .conftest import MakeInputs, node

AR = Arm("ar", "AR")
TREE = Arm("ddtree-b16", "DDTREE", draft_budget=16, tree_top_k=8)
ONE_SECOND = Span(1, 1, 1)


def session(name: str, tp: int, cells: int = 1) -> Session:
    """A session of `cells` cells."""
    made = tuple(Cell(f"code_c1-{i}", name, "code", "code", 1) for i in range(cells))
    return Session(name, AR, tp, 1, 0, {}, made)


def flat_rates(step: float = 0.1, cost: tuple[tuple[int, float], ...] = ((1, 1.0), (64, 1.0))) -> Rates:
    """No prefill cost and steps of one length."""
    return Rates(Span(0, 0, 0), Span(step, step, step), Span(0, 0, 0), cost)


def test_step_cost_is_interpolated_and_extrapolated() -> None:
    """Between 1 row (1.0) and 11 rows (2.0) six rows cost 1.5; at the same slope 21 rows cost 3.0."""
    rates = flat_rates(cost=((1, 1.0), (11, 2.0)))
    assert [rates.cost(rows) for rows in (1, 6, 11, 21)] == [1.0, 1.5, 2.0, 3.0]


def test_ar_at_one_stream_takes_a_step_a_token(make_inputs: MakeInputs) -> None:
    """100 tokens at 0.1 s: expected 0.7 of the cap, at most all, at least 0.4."""
    seconds = work_seconds(make_inputs(), flat_rates(), AR, WorkSize(1, 0, 100), 1)
    assert seconds.expected == pytest.approx(7.0)
    assert (seconds.low, seconds.high) == (pytest.approx(4.0), pytest.approx(10.0))


def test_streams_share_steps(make_inputs: MakeInputs) -> None:
    """Four requests at once need a quarter of the steps; a fifth stream has no request and changes nothing."""
    size = WorkSize(4, 0, 400)
    alone = work_seconds(make_inputs(), flat_rates(), AR, size, 1).expected
    assert work_seconds(make_inputs(), flat_rates(), AR, size, 4).expected == pytest.approx(alone / 4)
    assert work_seconds(make_inputs(), flat_rates(), AR, size, 5).expected == pytest.approx(alone / 4)


def test_a_drafting_arm_pays_for_the_draft_and_needs_fewer_steps(make_inputs: MakeInputs) -> None:
    """70 tokens / 2.2 a step x 0.1 s x (1 + 0.25)."""
    seconds = work_seconds(make_inputs(), flat_rates(), TREE, WorkSize(1, 0, 100), 1)
    assert seconds.expected == pytest.approx(70 / 2.2 * 0.125)


def test_work_size_before_a_workload_is_built(make_inputs: MakeInputs) -> None:
    """Four conversations of one turn; with max_turns 3 twelve requests, whose history is read once."""
    code = make_inputs().config.workloads["code"]
    assert work_size(code, 4) == WorkSize(4, 800, 400)
    assert work_size(code.model_copy(update={"max_turns": 3, "max_prompt_tokens": 50}), 4) == WorkSize(12, 200, 1200)


def test_gpu_decode_is_bound_by_bandwidth(make_inputs: MakeInputs) -> None:
    """16 GiB at 1,000 GB/s x 0.55 take 31.2 ms and 1.5 ms of launches; two GPUs halve the first part."""
    one, two = rates_of(make_inputs(), 1).step.expected, rates_of(make_inputs(), 2).step.expected
    bound = 16 * 2**30 / (1e12 * 0.55)
    assert one == pytest.approx(bound + 0.0015)
    assert two == pytest.approx(bound / 2 + 0.0015)


def test_bandwidth_by_name_where_it_is_not_declared(make_inputs: MakeInputs) -> None:
    """An H200 is known from its data sheet, another GPU counts as 1,000 GB/s."""
    other = node(memory_bandwidth_gb_s=None)
    h200 = replace(other, gpus=tuple(replace(gpu, name="NVIDIA H200") for gpu in other.gpus))
    assert gpu_bandwidth(make_inputs(inventory=h200)) == 4800.0
    assert gpu_bandwidth(make_inputs(inventory=other)) == 1000.0
    assert gpu_bandwidth(make_inputs(inventory=node(memory_bandwidth_gb_s=1792.0))) == 1792.0


def test_packing_puts_two_tp4_side_by_side_and_tp8_alone(make_inputs: MakeInputs) -> None:
    """In order A(4) B(4) C(8) D(4), each 10 s: A and B at 0, C at 10, D at 20."""
    inputs = make_inputs()
    sessions = [session("a", 4), session("b", 4), session("c", 8), session("d", 4)]
    line = timeline(inputs, sessions, {one.key: ONE_SECOND.scaled(10) for one in sessions})
    assert line.sessions == (
        ("a", 0.0, 10.0, (0, 1, 2, 3)),
        ("b", 0.0, 10.0, (4, 5, 6, 7)),
        ("c", 10.0, 20.0, (0, 1, 2, 3, 4, 5, 6, 7)),
        ("d", 20.0, 30.0, (0, 1, 2, 3)),
    )
    assert line.total == Span(30, 30, 30)


def test_no_gpu_is_ever_held_twice(make_inputs: MakeInputs) -> None:
    """Over a mix of tp 1, 2, 4 and 8 no two sessions overlap on a GPU, and TP4 stays inside a NUMA node."""
    inputs = make_inputs()
    sessions = [session(f"s{i}", tp) for i, tp in enumerate([1, 4, 2, 8, 1, 1, 4, 2, 8, 2, 4])]
    seconds = {one.key: ONE_SECOND.scaled(3 + i % 4) for i, one in enumerate(sessions)}
    placed = timeline(inputs, sessions, seconds).sessions
    for key, start, end, gpus in placed:
        for other, other_start, other_end, other_gpus in placed:
            if key != other and start < other_end and other_start < end:
                assert not set(gpus) & set(other_gpus)
        if len(gpus) == 4:
            assert {gpu // 4 for gpu in gpus} in ({0}, {1})


@pytest.mark.parametrize(
    ("packing", "gpus"),
    [("exclusive", 8), ("pairs", 0)],
)
def test_exclusive_and_cpu_sessions_run_one_after_the_other(make_inputs: MakeInputs, packing: str, gpus: int) -> None:
    """Three sessions of 10 s take 30 s."""
    inputs = make_inputs({"packing": packing}, inventory=node(gpus=gpus))
    sessions = [session(name, 1) for name in "abc"]
    assert timeline(inputs, sessions, dict.fromkeys("abc", Span(10, 10, 10))).total.expected == 30


def test_session_seconds_grow_with_its_cells(make_inputs: MakeInputs) -> None:
    """Every block repeats the same estimate, and a range encloses it."""
    inputs = make_inputs()
    matrix = skeleton(inputs, {})
    seconds = expected_seconds(inputs, matrix.sessions)
    by_arm: dict[str, set[float]] = {}
    for one in matrix.sessions:
        by_arm.setdefault(one.arm.name, set()).add(seconds[one.key].expected)
        assert seconds[one.key].low < seconds[one.key].expected < seconds[one.key].high
        assert seconds[one.key].low > 2 * JOB_SECONDS.low
    assert {name: len(values) for name, values in by_arm.items()} == {"ar": 1, "dflash": 1, "ddtree-b16": 1}
