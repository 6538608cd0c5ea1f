"""The shipped experiments plan without their GPUs and models; config mistakes that planning finds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftbench.config import ExperimentConfig, load_config
from draftbench.errors import DraftbenchError, PlanError
from draftbench.plan import PlanInputs, build_plan, check_study, fit_budget, read_inputs
from draftbench.plan.budget import skeleton
from draftbench.plan.content import Plan
from draftbench.plan.memory import memory_fit

ROOT = Path(__file__).resolve().parents[3]
FULL = ROOT / "experiments" / "qwen3.6-27b-8gpu.yaml"
SCREEN = ROOT / "experiments" / "qwen3.6-27b-8gpu-screen.yaml"


def planned(path: Path) -> tuple[PlanInputs, Plan]:
    """Plan an experiment in an empty project folder, so that only declared facts are there."""
    inputs = read_inputs(load_config(path), ROOT / "tests", path.name, {})
    check_study(inputs)
    decision = fit_budget(inputs, {})
    inputs = replace(inputs, config=decision.config)
    return inputs, build_plan(inputs, skeleton(inputs, {}), decision, "c" * 64)


def test_full_study_has_960_cells_and_no_refusal() -> None:
    """Eight arms x TP4, TP8 x three blocks x five workloads x four concurrencies."""
    _, plan = planned(FULL)
    assert len(plan.sessions) == 8 * 2 * 3
    assert plan.cells == 960
    assert plan.refusals == ()
    assert plan.given_up == ()
    assert {session.verify_width for session in plan.sessions} == {1, 9, 13, 16, 17, 21, 25, 33}


def test_every_declared_number_has_a_source() -> None:
    """No fact of target and drafter lacks its source, and an unknown one says why."""
    _, plan = planned(FULL)
    assert plan.drafter is not None
    for model in (plan.target, plan.drafter):
        assert all(fact.source for fact in model.facts.values())
    assert plan.target.facts["layers"].value == 64
    assert plan.drafter.facts["block_size"].value == 16


def test_largest_tree_at_tp4_by_hand() -> None:
    """Bytes a GPU, budget 32.

    Target 55.56e9 / 4, KV 32 x 16,384 x 65,536 / 4, state 153,944,064 x 33 x 32 / 4, drafter 1,730,213,120 x 2,
    its KV 32 x 16,384 x 20,480 x 2 / 8.
    """
    inputs, _ = planned(FULL)
    tree = next(arm for arm in inputs.config.expanded_arms if arm.name == "ddtree-b32")
    static = memory_fit(inputs, tree, 4).inequalities[0]
    assert static.known == 13_890_000_000 + 8_589_934_592 + 40_641_232_896 + 3_460_426_240 + 2_684_354_560
    assert static.verdict == "fits"


def test_tp4_sessions_stay_inside_a_numa_node() -> None:
    """The packing simulation uses GPUs 0 to 3, 4 to 7, or all eight."""
    _, plan = planned(FULL)
    assert {session.gpus for session in plan.sessions} == {(0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8))}


def test_screening_fits_its_budget_with_one_block() -> None:
    """2.5 hours, one block, and the plan says that there are no verdicts."""
    _, plan = planned(SCREEN)
    assert plan.time_budget == 9000
    assert plan.duration.expected <= 9000
    assert not plan.over_budget
    assert set(plan.blocks) == {1}
    assert any("no verdict" in warning for warning in plan.warnings)


def test_screening_differs_from_the_study_in_time_alone() -> None:
    """Arms, models, server settings and hypotheses are the same."""
    full, screen = load_config(FULL), load_config(SCREEN)
    for section in ("arms", "target", "drafter", "serving", "hardware", "tensor_parallelism", "hypotheses", "engines"):
        assert getattr(full, section) == getattr(screen, section)


def test_hybrid_target_without_the_opt_in_is_refused() -> None:
    """Taking allow_tree_on_hybrid away stops the study with its reason."""
    config = load_config(FULL).model_copy(update={"allow_tree_on_hybrid": False})
    with pytest.raises(PlanError, match="48 recurrent layers"):
        check_study(read_inputs(config, ROOT / "tests", FULL.name, {}))


def changed(tmp_path: Path, changes: dict[str, Any]) -> ExperimentConfig:
    """The default experiment with other sections, loaded from a file."""
    content = yaml.safe_load((ROOT / "config.yaml").read_text())
    for key, value in changes.items():
        content[key] = (
            {**content[key], **value} if isinstance(value, dict) and isinstance(content[key], dict) else value
        )
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_config(path)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tensor_parallelism": [2]}, "config.yaml: tensor_parallelism: the embedded engine runs on one device"),
        ({"drafter": {"path": "models/absent"}}, "drafter.path models/absent: no config.json; run `make setup`"),
        ({"target": {"path": "models/absent"}}, "target.path models/absent: no config.json; run `make setup`"),
        ({"target": {"path": "docs"}}, "target.path docs: no config.json"),
        ({"drafter": None}, "config.yaml: drafter is missing"),
    ],
)
def test_mistakes_in_the_default_config_are_one_line(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    """What `snakemake` would print: file or key, and what to do."""
    with pytest.raises(DraftbenchError) as raised:
        check_study(read_inputs(changed(tmp_path, {"target": {"path": "models/smollm2-135m-dflash"}, **changes}), ROOT))
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tensor_parallelism": (16,)}, "tensor_parallelism: 16 needs 16 GPUs, but the node has 8"),
        ({"tensor_parallelism": (4, 16), "hardware": 16}, "tp 16 cannot split the 24 query heads and 4 KV heads"),
    ],
)
def test_mistakes_in_the_eight_gpu_study_are_one_line(changes: dict[str, Any], line: str) -> None:
    """Too few GPUs, and heads that tp cannot split."""
    config = load_config(FULL)
    if "hardware" in changes and config.hardware is not None:
        nodes = (tuple(range(8)), tuple(range(8, 16)))
        changes = {**changes, "hardware": config.hardware.model_copy(update={"gpus": 16, "numa_nodes": nodes})}
    with pytest.raises(DraftbenchError) as raised:
        check_study(read_inputs(config.model_copy(update=changes), ROOT / "tests", FULL.name, {}))
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)
