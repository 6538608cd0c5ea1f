"""Blocks, sessions and cells."""

from pathlib import Path

import pytest

from draftbench.config import Arm, ExperimentConfig, load_config
from draftbench.matrix import Matrix, assign_blocks, expand

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def config() -> ExperimentConfig:
    """The default experiment."""
    return load_config(PROJECT / "config.yaml")


def _expand(config: ExperimentConfig, ledger: dict[int, tuple[str, ...]] | None = None, **specs: int) -> Matrix:
    keys = {name: f"{name}-aaaaaa" for name in config.workloads}
    return expand(config, keys, lambda arm, tp: {"arm": arm.name, "x": specs.get(arm.name, 0)}, _accept, ledger or {})


def _accept(arm: Arm, tp: int) -> str | None:
    return None


@pytest.mark.parametrize(
    ("arms", "wanted", "ledger", "expected"),
    [
        (["ar", "d"], 2, {}, {1: ("ar", "d"), 2: ("ar", "d")}),
        (
            ["ar", "d", "t"],
            2,
            {1: ("ar", "d"), 2: ("ar", "d")},
            {1: ("ar", "d"), 2: ("ar", "d"), 3: ("ar", "t"), 4: ("ar", "t")},
        ),
        (["ar", "d"], 3, {1: ("ar", "d"), 2: ("ar", "d")}, {1: ("ar", "d"), 2: ("ar", "d"), 3: ("ar", "d")}),
        (["ar", "d"], 1, {1: ("ar", "d"), 2: ("ar", "d")}, {1: ("ar", "d")}),
        (["ar", "t"], 1, {1: ("ar", "d"), 2: ("ar", "t")}, {2: ("ar", "t")}),
        (["ar"], 2, {}, {1: ("ar",), 2: ("ar",)}),
    ],
    ids=["fresh", "arm added", "block added", "block removed", "arm removed", "baseline alone"],
)
def test_an_arm_added_later_comes_in_a_new_block_with_its_own_baseline(
    arms: list[str], wanted: int, ledger: dict[int, tuple[str, ...]], expected: dict[int, tuple[str, ...]]
) -> None:
    """Arms keep the blocks they had; what is missing comes in new blocks, AR in each."""
    assert assign_blocks(arms, wanted, ledger) == expected


def test_assigning_again_from_its_own_ledger_changes_nothing() -> None:
    """After a run the next one has nothing to do."""
    first = assign_blocks(["ar", "d", "t"], 2, {1: ("ar", "d"), 2: ("ar", "d")})

    assert assign_blocks(["ar", "d", "t"], 2, first) == first


def test_every_block_holds_every_arm_once_and_every_cell(config: ExperimentConfig) -> None:
    """2 blocks x 5 arms, each with agentic c1, code c1 and c4, json c1."""
    matrix = _expand(config)

    assert len(matrix.sessions) == 10
    assert {len(session.cells) for session in matrix.sessions} == {4}
    assert [session.block for session in matrix.sessions] == [1] * 5 + [2] * 5
    assert len({(session.block, session.arm.name) for session in matrix.sessions}) == 10
    assert len({cell.session + cell.key for cell in matrix.cells}) == 40


def test_order_is_random_by_block_and_fixed_by_the_seed(config: ExperimentConfig) -> None:
    """Blocks are shuffled on their own; the same seed gives the same order, another seed another."""
    order = [s.key for s in _expand(config).sessions]
    other = [s.key for s in _expand(config.model_copy(update={"seed": 1})).sessions]

    assert order == [s.key for s in _expand(config).sessions]
    assert sorted(order) == sorted(other)
    assert order != other
    assert [k.split("_")[0] for k in order[:5]] != [k.split("_")[0] for k in order[5:]]


def test_a_changed_setting_of_one_arm_changes_that_arms_sessions_alone(config: ExperimentConfig) -> None:
    """Its keys get another hash, everybody else's stay."""
    before = {s.key for s in _expand(config).sessions}
    after = {s.key for s in _expand(config, **{"ddtree-b15": 1}).sessions}

    assert {key.split("_")[0] for key in before ^ after} == {"ddtree-b15"}
    assert len(before - after) == len(after - before) == 2


def test_a_refused_arm_leaves_the_matrix_with_its_reason(config: ExperimentConfig) -> None:
    """Refusals are listed and their sessions are gone."""
    keys = {name: f"{name}-aaaaaa" for name in config.workloads}
    matrix = expand(config, keys, lambda arm, tp: {}, lambda arm, tp: "too wide" if arm.is_tree else None, {})

    assert [(refusal.arm, refusal.reason) for refusal in matrix.refusals] == [
        (f"ddtree-b{budget}", "too wide") for budget in (7, 15, 31)
    ]
    assert {session.arm.name for session in matrix.sessions} == {"ar", "dflash"}
