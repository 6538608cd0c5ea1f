"""Refusals of single sessions, and mistakes that stop everything with one line."""

import socket
from dataclasses import replace
from typing import Any

import pytest

from draftbench.config import Arm
from draftbench.errors import ConfigError, DraftbenchError, PlanError
from draftbench.hardware import GIB
from draftbench.plan.availability import check_port, check_units
from draftbench.plan.budget import skeleton
from draftbench.plan.refusals import check_study, heads_problem, refuse

from .conftest import TARGET, MakeInputs, facts, node

TREE = Arm("ddtree-b16", "DDTREE", draft_budget=16, tree_top_k=8)
AR = Arm("ar", "AR")
CHAIN = Arm("dflash", "DFLASH")
EMBEDDED = {"engines": {"main": {"kind": "embedded"}}}
HYBRID = {"recurrent_layers": 30, "recurrent_state_bytes": 1}


@pytest.mark.parametrize(
    ("query", "kv", "possible"),
    [
        (9, 3, {1, 3, 9}),  # SmolLM2-135M
        (24, 4, {1, 2, 4, 8, 12}),  # Qwen3.6-27B: at 8 two GPUs share a KV head
        (32, 8, {1, 2, 4, 8, 16}),  # its drafter
        (40, 8, {1, 2, 4, 8}),  # Qwen2.5-32B: 40 does not divide by 16
        (28, 4, {1, 2, 4}),  # Qwen2.5-7B: 28 does not divide by 8
        (12, 2, {1, 2, 4, 12}),
    ],
)
def test_which_tp_can_split_the_heads(query: int, kv: int, possible: set[int]) -> None:
    """Query heads divide by tp, and KV heads by tp or tp by KV heads; counted by hand for real models."""
    model = facts({**TARGET, "query_heads": query, "kv_heads": kv}, "model")
    assert {tp for tp in (1, 2, 3, 4, 8, 9, 12, 16) if heads_problem(model, tp) is None} == possible


def test_unknown_heads_are_no_pass() -> None:
    """Where the heads are unknown nothing is split, and tp 1 still runs."""
    model = facts({**TARGET, "kv_heads": None}, "model")
    assert heads_problem(model, 1) is None
    assert "is unknown: kv_heads kv_heads of the test" in (heads_problem(model, 2) or "")


def test_a_sound_study_is_not_refused(make_inputs: MakeInputs) -> None:
    """AR, chain and tree run at every tp of the node."""
    inputs = make_inputs({"tensor_parallelism": [1, 2, 4, 8]})
    check_study(inputs)
    assert [refuse(inputs, arm, tp) for arm in (AR, CHAIN, TREE) for tp in (1, 2, 4, 8)] == [None] * 12


@pytest.mark.parametrize(
    ("arm", "tp", "changes", "reason"),
    [
        (AR, 1, {"environment": {"SGLANG_SIMULATE_ACC_LEN": "4"}}, "SGLANG_SIMULATE_ACC_LEN is set"),
        (
            Arm("eagle", "EAGLE3"),
            1,
            {"config": EMBEDDED},
            "the embedded engine lacks EAGLE3; it has AR, DFLASH, DDTREE",
        ),
        (CHAIN, 1, {"inventory": node(gpus=0)}, "SGLang has no DFLASH on a CPU"),
        (AR, 2, {"config": EMBEDDED}, "the embedded engine runs on one device"),
        (AR, 8, {"inventory": node(gpus=4)}, "tp 8 needs 8 GPUs, the node has 4"),
        (AR, 2, {"inventory": node(gpus=0)}, "tp 2 needs 2 GPUs, the node has none"),
        (AR, 8, {"target": {"query_heads": 28}}, "tp 8 cannot split the 28 query heads and 4 KV heads of target"),
        (CHAIN, 4, {"drafter": {"query_heads": 30}}, "tp 4 cannot split the 30 query heads and 8 KV heads of drafter"),
        (TREE, 1, {"target": HYBRID}, "the target has 30 recurrent layers"),
        (TREE, 1, {"target": {"recurrent_layers": None}}, "whether the target has recurrent layers is unknown"),
        (CHAIN, 1, {"drafter": {"hidden_size": 1024}}, "do not match: hidden size 1024 and 512"),
        (TREE, 1, {"drafter": {"vocabulary": 999}}, "do not match: vocabulary 999 and 1000"),
        (TREE, 1, {"drafter": {"feature_layers": (1, 40)}}, "it reads layer 40, the target has 40 layers"),
        (replace(CHAIN, draft_tokens=17), 1, {}, "draft_tokens 17 exceeds the drafter's block of 16"),
        (TREE, 1, {"config": {"serving": {"page_size": 16}}}, "serving.page_size is 16; a tree needs 1"),
        (TREE, 1, {"config": {"serving": {"attention_backend": "fa3"}}}, "attention_backend fa3 takes no tree mask"),
        (TREE, 1, {"config": {"serving": {"cuda_graph_max_batch": 2}}}, "graphs cover 2 x 17 tokens, concurrency 4"),
        (AR, 1, {"config": {"serving": {"cuda_graph_max_batch": 3}}}, "graphs cover 3 x 1 tokens, concurrency 4"),
        (AR, 1, {"inventory": node(memory=20 * GIB)}, "does not fit: weights and caches needs 18.0 GiB of 10.0 GiB"),
    ],
)
def test_each_refusal_names_its_reason(
    make_inputs: MakeInputs, arm: Arm, tp: int, changes: dict[str, Any], reason: str
) -> None:
    """One line that says what cannot be and why."""
    said = refuse(make_inputs(**changes), arm, tp)
    assert said is not None
    assert reason in said
    assert "\n" not in said


def test_chains_stay_allowed_where_a_tree_is_refused(make_inputs: MakeInputs) -> None:
    """Hybrid targets, page size and attention back end concern tree arms alone."""
    inputs = make_inputs({"serving": {"page_size": 16, "attention_backend": "fa3"}}, target=HYBRID)
    assert refuse(inputs, CHAIN, 1) is None
    assert refuse(inputs, TREE, 1) is not None


def test_hybrid_opt_in_admits_the_tree(make_inputs: MakeInputs) -> None:
    """allow_tree_on_hybrid lifts that refusal."""
    assert refuse(make_inputs({"allow_tree_on_hybrid": True}, target=HYBRID), TREE, 1) is None


def test_draft_tokens_need_room_in_the_context(make_inputs: MakeInputs) -> None:
    """Prompt 3,960 + output 100 + 2 x 17 = 4,094 fit 4,096; one budget of 24 (2 x 25) does not, AR always does."""
    inputs = make_inputs({"workloads": {"code": {"max_prompt_tokens": 3960}}})
    assert refuse(inputs, TREE, 1) is None
    assert refuse(inputs, AR, 1) is None
    wider = Arm("ddtree-b24", "DDTREE", draft_budget=24, tree_top_k=8)
    assert "needs 4110 tokens of context, not 4096" in (refuse(inputs, wider, 1) or "")


def test_an_arm_without_its_baseline_is_refused(make_inputs: MakeInputs) -> None:
    """A simulated environment refuses AR as well, and every arm at once."""
    inputs = make_inputs(environment={"SGLANG_SIMULATE_ACC_METHOD": "x"})
    matrix = skeleton(inputs, {})
    assert matrix.sessions == ()
    assert {refusal.arm for refusal in matrix.refusals} == {"ar", "dflash", "ddtree-b16"}


def test_baseline_refusal_carries_over(make_inputs: MakeInputs) -> None:
    """Where only AR is refused, by a flag of memory alone, the others go with it."""
    inputs = make_inputs(target={"weight_bytes": 30 * GIB})
    assert (refuse(inputs, AR, 1) or "").startswith("does not fit")
    assert refuse(inputs, TREE, 1) is not None


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"config": {"tensor_parallelism": [1, 8]}, "target": {"query_heads": 28}},
            "study.yaml: tensor_parallelism: tp 8 cannot split the 28 query heads and 4 KV heads of target; "
            "allowed: 1, 2, 4",
        ),
        (
            {"config": {"tensor_parallelism": [8]}, "inventory": node(gpus=4)},
            "study.yaml: tensor_parallelism: 8 needs 8 GPUs, but the node has 4 (test); "
            "allowed: up to 4, or declare another node under `hardware`",
        ),
        (
            {"config": {**EMBEDDED, "tensor_parallelism": [2]}},
            "study.yaml: tensor_parallelism: the embedded engine runs on one device; allowed: [1]",
        ),
        (
            {"config": {"serving": {"context_length": 65536}}},
            "study.yaml: serving.context_length 65536 exceeds the 32768 tokens of target; allowed: up to 32768",
        ),
        (
            {"config": {"workloads": {"code": {"max_prompt_tokens": 4000}}}},
            "study.yaml: workloads.code: max_prompt_tokens + max_new_tokens = 4100 exceed serving.context_length 4096; "
            "lower them or raise it",
        ),
        (
            {"config": {"workloads": {"code": {"set": "random-tokens"}}}},
            "study.yaml: workloads.code.set 'random-tokens': random tokens say nothing about drafting; name a real set",
        ),
        (
            {"config": {"serving": {"port": 30000}}},
            "study.yaml: serving.port 30000 is fixed, but sessions run side by side; "
            "set it to null or packing to exclusive",
        ),
    ],
)
def test_config_mistakes_are_one_line(make_inputs: MakeInputs, changes: dict[str, Any], line: str) -> None:
    """File, key and what is allowed."""
    with pytest.raises(ConfigError) as raised:
        check_study(make_inputs(**changes))
    assert str(raised.value) == line


def test_a_refused_headline_stops_the_study(make_inputs: MakeInputs) -> None:
    """Without its primary arm a study has no answer; the other arms would only burn time."""
    with pytest.raises(PlanError, match=r"^study.yaml: primary_arm ddtree-b16 is refused: the target has 30 recurrent"):
        check_study(make_inputs(target=HYBRID))


def test_a_fixed_port_is_fine_where_sessions_run_alone(make_inputs: MakeInputs) -> None:
    """Exclusive packing, or a node that holds one session, never uses a port twice at once."""
    check_study(make_inputs({"serving": {"port": 30000}, "packing": "exclusive"}))
    check_study(make_inputs({"serving": {"port": 30000}, "tensor_parallelism": [8]}))


def test_port_in_use_is_one_line(make_inputs: MakeInputs) -> None:
    """A port on which something listens is refused before anything is launched; a free one is not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        inputs = make_inputs({"serving": {"port": port}})
        with pytest.raises(PlanError) as raised:
            check_port(inputs)
    assert str(raised.value) == (
        f"study.yaml: serving.port {port} is in use; stop what listens there, or set it to null"
    )
    check_port(inputs)
    check_port(make_inputs())


@pytest.mark.parametrize(
    ("units", "line"),
    [
        (None, "no GPU is granted; add --resources gpus=4"),
        (2, "a session at tp 4 must run, but --resources gpus=2 grants 2; pass --resources gpus=4 or more"),
        (16, "--resources gpus=16 grants more GPUs than the node shows (8)"),
    ],
)
def test_too_few_units_are_refused(make_inputs: MakeInputs, units: int | None, line: str) -> None:
    """The line says which flag to pass; enough units, or nothing to run, pass."""
    inputs = make_inputs({"tensor_parallelism": [1, 4]})
    sessions = skeleton(inputs, {}).sessions
    with pytest.raises(DraftbenchError) as raised:
        check_units(inputs, units, sessions)
    assert line in str(raised.value)
    check_units(inputs, 4, sessions)
    check_units(inputs, None, ())
