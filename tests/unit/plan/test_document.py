"""The plan as data and as a document: content, hash, files and ledger."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftbench.errors import PlanError
from draftbench.layout import Layout
from draftbench.plan.budget import fit_budget, skeleton
from draftbench.plan.content import Plan
from draftbench.plan.document import build_plan, content_sha256
from draftbench.plan.inputs import PlanInputs
from draftbench.plan.ledger import merged, read_ledger
from draftbench.plan.markdown import render_markdown
from draftbench.plan.writing import load_plan, write_plan
from draftbench.statistics.study_plan import parse_plan

from .conftest import MakeInputs, node


def plan_of(inputs: PlanInputs, ledger: dict[int, tuple[str, ...]] | None = None) -> Plan:
    """Plan with bare keys."""
    decision = fit_budget(inputs, ledger or {})
    decided = replace(inputs, config=decision.config)
    return build_plan(decided, skeleton(decided, ledger or {}), decision, "c" * 64)


def test_the_hash_covers_the_content_and_nothing_else(make_inputs: MakeInputs) -> None:
    """Planning twice gives one hash; another margin, node or fact gives another."""
    first = plan_of(make_inputs())
    assert plan_of(make_inputs()) == first
    assert content_sha256(first) == first.plan_sha256
    others = [
        make_inputs({"statistics": {"margin": 0.05}}),
        make_inputs(inventory=node(gpus=4)),
        make_inputs(target={"layers": 39}),
    ]
    assert len({first.plan_sha256, *(plan_of(other).plan_sha256 for other in others)}) == 4


def test_plan_json_reads_back_as_the_same_plan(make_inputs: MakeInputs, tmp_path: Path) -> None:
    """Blocks keep numbers as keys, feature layers stay a list of numbers."""
    plan, layout = plan_of(make_inputs()), Layout.of("test")
    write_plan(plan, layout, tmp_path)
    assert load_plan(tmp_path / layout.plan_json) == plan
    assert not list(tmp_path.rglob("*.tmp"))


def test_analysis_understands_plan_json(make_inputs: MakeInputs) -> None:
    """The reader of the statistics finds every cell, and a refused arm as refused."""
    hybrid = {"recurrent_layers": 30, "recurrent_state_bytes": 1}
    inputs = make_inputs({"primary_arm": "dflash"}, target=hybrid)
    plan = plan_of(inputs)
    study = parse_plan(json.loads(plan.model_dump_json()))
    assert len(study.cells) == plan.cells == 2 * 2 * 2
    assert study.baseline_arm == "ar"
    assert {(cell.arm, cell.method, cell.draft_budget) for cell in study.refused} == {("ddtree-b16", "DDTREE", 16)}


@pytest.mark.parametrize("content", [None, "{}", "not json"])
def test_a_file_that_is_no_plan_is_one_line(tmp_path: Path, content: str | None) -> None:
    """Missing, empty and broken files say what to run."""
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PlanError, match="run `snakemake plan`") as raised:
        load_plan(path)
    assert "\n" not in str(raised.value)


def test_document_has_what_a_user_approves(make_inputs: MakeInputs) -> None:
    """Question, node, block size with its rule, memory with terms, refusals with reasons, statistics, deviations."""
    inputs = make_inputs(
        {
            "tensor_parallelism": [4],
            "hypotheses": [{"id": "h1", "kind": "lossless", "statement": "Output | stays."}],
        },
        drafter={"hidden_size": None},
    )
    text = render_markdown(plan_of(inputs))
    for wanted in (
        "**Question.** Does it pay?",
        "| GPUs | 8 x NVIDIA Test, 48.0 GiB each |",
        "| NUMA nodes of the GPUs | 0: 0, 1, 2, 3; 1: 4, 5, 6, 7 |",
        "| hidden size | unknown | hidden_size of the test |",
        "Block size of the drafter: 16 (block_size of the test).",
        "target weights 4.0 + target KV cache 0.500 = 4.5 <= 24.0 | fits |",
        "| h1 | Output \\| stays. | lossless |",
        "over 6 primary comparisons",
        "## Deviations",
    ):
        assert wanted in text
    assert "None" not in text


def test_document_says_what_is_missing(make_inputs: MakeInputs) -> None:
    """An unknown memory term, one block, and what the time budget took are written out."""
    study: dict[str, Any] = {"blocks": 2, "packing": "exclusive", "workloads": {"code": {"concurrency": [1]}}}
    unknown = render_markdown(plan_of(make_inputs({**study, "blocks": 1}, target={"kv_heads": None})))
    assert "unknown (unknown: target KV cache (kv_heads of the test))" in unknown
    assert "One block gives no interval and no verdict" in unknown
    wanted = fit_budget(make_inputs(study), {}).wanted.expected
    cut = render_markdown(plan_of(make_inputs({**study, "time_budget": f"{int(wanted) - 1}s"})))
    assert "it gives up, in this order: block 2." in cut


def test_a_refusal_stands_in_the_document(make_inputs: MakeInputs) -> None:
    """Arm, tp and reason."""
    inputs = make_inputs({"primary_arm": "dflash", "serving": {"page_size": 16}})
    text = render_markdown(plan_of(inputs))
    assert "| ddtree-b16 | 1 | serving.page_size is 16; a tree needs 1, for every arm |" in text


def test_a_block_binds_only_once_something_was_launched(make_inputs: MakeInputs, tmp_path: Path) -> None:
    """A plan that never ran leaves no ledger behind; after a launch its block stays."""
    layout, plan = Layout.of("test"), plan_of(make_inputs())
    assert read_ledger(tmp_path, layout) == {}
    write_plan(plan, layout, tmp_path)
    assert json.loads((tmp_path / layout.ledger).read_text()) == {
        "1": ["ar", "dflash", "ddtree-b16"],
        "2": ["ar", "dflash", "ddtree-b16"],
    }
    assert read_ledger(tmp_path, layout) == {}
    record = tmp_path / layout.launch_record(plan.sessions[0].key)
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert read_ledger(tmp_path, layout) == {1: ("ar", "dflash", "ddtree-b16")}


def test_results_without_launch_records_bind_too(make_inputs: MakeInputs, tmp_path: Path) -> None:
    """A cell that was measured is proof enough."""
    layout, plan = Layout.of("test"), plan_of(make_inputs())
    write_plan(plan, layout, tmp_path)
    last = plan.sessions[-1]
    cell = tmp_path / layout.cell_record(last.key, last.cells[0].key)
    cell.parent.mkdir(parents=True)
    cell.write_text("{}")
    assert read_ledger(tmp_path, layout) == {2: ("ar", "dflash", "ddtree-b16")}


def test_an_added_arm_joins_the_ledger_in_its_new_block(make_inputs: MakeInputs, tmp_path: Path) -> None:
    """After blocks 1 and 2 ran, budget 24 comes in 3 and 4 with AR, and the next reading finds all four."""
    layout, first = Layout.of("test"), plan_of(make_inputs())
    write_plan(first, layout, tmp_path)
    for session in first.sessions:
        record = tmp_path / layout.launch_record(session.key)
        record.parent.mkdir(parents=True)
        record.write_text("{}")
    arms = [
        {"name": "ar", "method": "AR"},
        {"name": "dflash", "method": "DFLASH"},
        {"name": "ddtree", "method": "DDTREE", "draft_budgets": [16, 24]},
    ]
    second = plan_of(make_inputs({"arms": arms}), read_ledger(tmp_path, layout))
    assert second.blocks[3] == second.blocks[4] == ("ar", "ddtree-b24")
    assert {session.key for session in first.sessions} <= {session.key for session in second.sessions}
    write_plan(second, layout, tmp_path)
    third = plan_of(make_inputs({"arms": arms}), read_ledger(tmp_path, layout))
    assert {1, 2} <= set(read_ledger(tmp_path, layout))
    assert third.plan_sha256 == second.plan_sha256


def test_an_arm_that_left_the_config_keeps_its_blocks() -> None:
    """Blocks are joined, never shortened."""
    assert merged({1: ("ar", "old")}, {1: ("ar", "new"), 2: ("ar", "new")}) == {
        1: ("ar", "old", "new"),
        2: ("ar", "new"),
    }


@pytest.mark.parametrize("content", ["[]", '{"one": ["ar"]}', "{"])
def test_a_broken_ledger_is_one_line(tmp_path: Path, content: str) -> None:
    """The line names the file and what to do."""
    path = tmp_path / Layout.of("test").ledger
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(PlanError, match="is no list of blocks; delete it"):
        read_ledger(tmp_path, Layout.of("test"))


def test_rule_plan_writes_what_the_workflow_computed(make_inputs: MakeInputs, tmp_path: Path) -> None:
    """The script takes the plan from DRAFTBENCH_PLAN; without it, it ends with one line and code 1."""
    plan, layout = plan_of(make_inputs()), Layout.of("test")
    computed = tmp_path / "computed.json"
    computed.write_text(plan.model_dump_json())
    script = Path(__file__).resolve().parents[3] / "workflow_scripts" / "plan.py"
    bare = {"PATH": os.environ["PATH"]}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=tmp_path, env={**bare, "DRAFTBENCH_PLAN": str(computed)}, check=False)
    assert done.returncode == 0
    assert load_plan(tmp_path / layout.plan_json) == plan
    assert (tmp_path / layout.plan_markdown).read_text().startswith("# Plan: test\n")
    lost = subprocess.run(command, cwd=tmp_path, env=bare, check=False, capture_output=True, text=True)
    assert lost.returncode == 1
    assert lost.stderr == "draftbench: DRAFTBENCH_PLAN is not set; run this script through snakemake\n"
