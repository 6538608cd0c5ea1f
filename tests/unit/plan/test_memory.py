"""Memory fit: the terms by hand, for GPUs and hosts, and what is unknown."""

from typing import Any

import pytest

from draftbench.config import Arm
from draftbench.hardware import GIB, MIB
from draftbench.plan.memory import MemoryFit, memory_fit

from .conftest import MakeInputs, node

TREE = Arm("ddtree-b16", "DDTREE", draft_budget=16, tree_top_k=8)
AR = Arm("ar", "AR")
CHAIN = Arm("dflash", "DFLASH")


def sizes(fit: MemoryFit) -> dict[str, int | None]:
    """Terms by name."""
    return {term.name: term.size for inequality in fit.inequalities for term in inequality.terms}


@pytest.mark.parametrize(
    ("tp", "weights", "target_cache", "drafter_cache"),
    [
        # KV target: 8 requests x 4,096 tokens x 65,536 B = 2 GiB; held KV heads 4, 2, 1, 1 of 4
        # KV drafter: 8 x 4,096 x 8,192 B = 256 MiB; held KV heads 8, 4, 2, 1 of 8
        (1, 16 * GIB, 2 * GIB, 256 * MIB),
        (2, 8 * GIB, 1 * GIB, 128 * MIB),
        (4, 4 * GIB, GIB // 2, 64 * MIB),
        (8, 2 * GIB, GIB // 2, 32 * MIB),
    ],
)
def test_terms_of_a_tree_by_hand(
    make_inputs: MakeInputs, tp: int, weights: int, target_cache: int, drafter_cache: int
) -> None:
    """Weights split by tp, at least one KV head a GPU, the drafter's weights whole."""
    terms = sizes(memory_fit(make_inputs(), TREE, tp))
    assert terms["target weights"] == weights
    assert terms["target KV cache"] == target_cache
    assert terms["drafter KV cache"] == drafter_cache
    assert terms["drafter weights"] == 2 * GIB
    assert terms["logits"] == 8 * 17 * 1000 * 4
    assert terms["graph buffers"] == 8 * 17 * 4096 * 8
    assert "recurrent state" not in terms


def test_ar_loads_no_drafter(make_inputs: MakeInputs) -> None:
    """AR's only terms are the target's."""
    assert not any("drafter" in name for name in sizes(memory_fit(make_inputs(), AR, 1)))


@pytest.mark.parametrize(("arm", "nodes"), [(AR, 1), (CHAIN, 16), (TREE, 17)])
def test_recurrent_state_counts_once_a_node_of_the_verify_pass(make_inputs: MakeInputs, arm: Arm, nodes: int) -> None:
    """8 requests x 1 MiB x (1 for AR, the block of 16, budget + 1), split by tp 4."""
    hybrid = {"recurrent_layers": 30, "recurrent_state_bytes": MIB}
    assert sizes(memory_fit(make_inputs(target=hybrid), arm, 4))["recurrent state"] == 8 * nodes * MIB // 4


def test_an_arm_fits_or_not_by_the_stated_fraction(make_inputs: MakeInputs) -> None:
    """AR at tp 1 needs 16 + 2 = 18 GiB of half the memory: 48 GiB are enough, 35 GiB are not."""
    assert memory_fit(make_inputs(), AR, 1).verdict == "fits"
    tight = memory_fit(make_inputs(inventory=node(memory=35 * GIB)), AR, 1)
    assert tight.verdict == "does not fit"
    assert tight.reason == "weights and caches needs 18.0 GiB of 17.5 GiB"


def test_workspace_must_fit_beside_the_caches(make_inputs: MakeInputs) -> None:
    """At fraction 0.96 only 1.9 of 48 GiB are left, less than the 2 GiB of workspace."""
    fit = memory_fit(make_inputs({"serving": {"memory_fraction": 0.96}}), AR, 1)
    assert fit.verdict == "does not fit"
    assert fit.reason.startswith("workspace needs 2.0 GiB of 1.9 GiB")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": {"weight_bytes": None}}, "target weights (weight_bytes of the test)"),
        ({"target": {"recurrent_state_bytes": None}}, "recurrent state (recurrent_state_bytes of the test)"),
        ({"target": {"vocabulary": None}}, "logits (vocabulary of the test)"),
        ({"drafter": {"kv_heads": None}}, "drafter KV cache (kv_heads of the test)"),
        ({"inventory": node(memory=None)}, "limit (the GPU's memory is unknown)"),
    ],
)
def test_an_unknown_term_is_no_pass(make_inputs: MakeInputs, changes: dict[str, Any], reason: str) -> None:
    """The verdict is unknown and names what is missing."""
    fit = memory_fit(make_inputs(**changes), TREE, 4)
    assert fit.verdict == "unknown"
    assert reason in fit.reason


def test_known_terms_alone_can_refuse(make_inputs: MakeInputs) -> None:
    """16 GiB of weights exceed 5 GiB whatever the unknown cache takes."""
    fit = memory_fit(make_inputs(target={"kv_heads": None}, inventory=node(memory=10 * GIB)), AR, 1)
    assert fit.verdict == "does not fit"


@pytest.mark.parametrize(("features", "width"), [(("amx_bf16",), 2), ((), 4)])
def test_a_host_holds_weights_twice_in_its_own_precision(
    make_inputs: MakeInputs, features: tuple[str, ...], width: int
) -> None:
    """The embedded engine keeps packed weights beside the plain ones: 2 x 8 Gi parameters x 2 or 4 B."""
    inputs = make_inputs(
        {"engines": {"main": {"kind": "embedded"}}},
        inventory=node(gpus=0, cpu_features=features),
        target={"parameters": 2**30},
    )
    terms = sizes(memory_fit(inputs, AR, 1))
    assert terms["target weights"] == 2 * width * 2**30
    assert terms["target KV cache"] == 2 * GIB * width // 2


def test_a_host_is_limited_to_four_fifths_of_its_memory(make_inputs: MakeInputs) -> None:
    """64 GiB give a limit of 51.2 GiB; 8 Gi parameters x 2 x 2 B + 2 GiB of cache stay below it, twice that do not."""
    embedded = {"engines": {"main": {"kind": "embedded"}}}
    assert memory_fit(make_inputs(embedded, inventory=node(gpus=0)), AR, 1).verdict == "fits"
    larger = make_inputs(embedded, inventory=node(gpus=0), target={"parameters": 2**34})
    assert memory_fit(larger, AR, 1).verdict == "does not fit"
