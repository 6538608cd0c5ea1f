"""The time budget: what is given up, in which order, and that it is decided without measurements."""

import pytest

from draftbench.errors import PlanError
from draftbench.plan.budget import fit_budget, minutes, reductions, skeleton
from draftbench.plan.comparisons import primary_comparisons
from draftbench.plan.duration import expected_seconds, timeline

from .conftest import MakeInputs

TWO_WORKLOADS = {
    "blocks": 3,
    "serving": {"max_running_requests": 16, "cuda_graph_max_batch": 16},
    "workloads": {
        "code": {"concurrency": [1, 4, 16]},
        "math": {"set": "math-gsm8k", "test_ranks": [0, 4], "max_new_tokens": 100, "concurrency": [4]},
    },
}


def test_blocks_go_last_to_first_then_the_highest_concurrencies(make_inputs: MakeInputs) -> None:
    """Blocks 3 and 2, then 16 and 4; each workload keeps its lowest, math its 4."""
    steps = list(reductions(make_inputs(TWO_WORKLOADS).config))
    assert [what for _, what in steps] == ["block 3", "block 2", "concurrency 16", "concurrency 4"]
    last = steps[-1][0]
    assert last.blocks == 1
    assert {name: workload.concurrency for name, workload in last.workloads.items()} == {"code": (1,), "math": (4,)}


def test_nothing_is_given_up_without_a_budget_or_within_it(make_inputs: MakeInputs) -> None:
    """The config comes back as it was written."""
    free = make_inputs(TWO_WORKLOADS)
    assert fit_budget(free, {}).config is free.config
    wide = make_inputs({**TWO_WORKLOADS, "time_budget": "100h"})
    decision = fit_budget(wide, {})
    assert (decision.config, decision.given_up, decision.over) == (wide.config, (), False)


def test_what_is_left_fits_and_one_step_less_would_not(make_inputs: MakeInputs) -> None:
    """With a budget just under the full study's duration exactly block 3 is given up."""
    wanted = fit_budget(make_inputs(TWO_WORKLOADS), {}).wanted.expected
    inputs = make_inputs({**TWO_WORKLOADS, "time_budget": f"{int(wanted) - 1}s"})
    decision = fit_budget(inputs, {})
    assert decision.given_up == ("block 3",)
    assert decision.config.blocks == 2
    assert decision.limit is not None
    assert decision.expected.expected <= decision.limit < decision.wanted.expected


def test_a_budget_that_nothing_fits_is_refused(make_inputs: MakeInputs) -> None:
    """One line with file, key and what to do."""
    with pytest.raises(PlanError) as raised:
        fit_budget(make_inputs({**TWO_WORKLOADS, "time_budget": "10s"}), {})
    line = str(raised.value)
    assert line.startswith("study.yaml: time_budget 10s is too short: one block at the lowest concurrency takes about")
    assert "allow_over_budget" in line
    assert "\n" not in line


def test_over_budget_by_permission_keeps_everything(make_inputs: MakeInputs) -> None:
    """allow_over_budget runs the config as written and the decision says that it is over."""
    decision = fit_budget(make_inputs({**TWO_WORKLOADS, "time_budget": "10s", "allow_over_budget": True}), {})
    assert decision.given_up == ()
    assert decision.config.blocks == 3
    assert decision.over


def test_a_rerun_decides_the_same(make_inputs: MakeInputs) -> None:
    """The ledger that the first run leaves does not change what fits."""
    wanted = fit_budget(make_inputs(TWO_WORKLOADS), {}).wanted.expected
    inputs = make_inputs({**TWO_WORKLOADS, "time_budget": f"{int(wanted * 0.6)}s"})
    first = fit_budget(inputs, {})
    ledger = dict.fromkeys(range(1, first.config.blocks + 1), ("ar", "dflash", "ddtree-b16"))
    assert fit_budget(inputs, ledger) == first


def test_estimate_is_made_in_the_running_order_of_the_matrix(make_inputs: MakeInputs) -> None:
    """Expected duration is the packing of every session of the skeleton."""
    inputs = make_inputs({**TWO_WORKLOADS, "tensor_parallelism": [4, 8]})
    sessions = skeleton(inputs, {}).sessions
    assert len(sessions) == 3 * 2 * 3
    total = timeline(inputs, sessions, expected_seconds(inputs, sessions)).total
    assert fit_budget(inputs, {}).wanted == total


def test_the_family_of_comparisons(make_inputs: MakeInputs) -> None:
    """Per place: chain against AR, tree against AR and against the chain; two places give six."""
    family = primary_comparisons(skeleton(make_inputs(), {}))
    assert len(family) == 6
    assert [(one.arm, one.baseline, one.concurrency) for one in family[:3]] == [
        ("ddtree-b16", "ar", 1),
        ("ddtree-b16", "dflash", 1),
        ("dflash", "ar", 1),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(40, "40 s"), (89.4, "89 s"), (90, "2 min"), (3599, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    """Seconds below a minute and a half, then minutes, then hours."""
    assert minutes(seconds) == text
