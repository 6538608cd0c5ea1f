"""Mistakes that only the whole workflow can see end in one line and exit code 1."""

import socket
from typing import Any

import pytest

from tests.workflow.conftest import Workbench, stub_config

pytestmark = pytest.mark.workflow


def _arm(method: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "ar", "method": "AR"}, {"name": "other", "method": method, **more}]


MISTAKES: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"bolcks": 3}, (), "config.yaml: bolcks: unknown key"),
    ({"blocks": "two"}, (), "config.yaml: blocks: input should be a valid integer"),
    ({"arms": _arm("DDTREE", draft_budgets=[0]), "primary_arm": "ar"}, (), "draft_budgets[0]: input should be greater"),
    ({"tensor_parallelism": [4]}, (), "tp 4 cannot split the 9 query heads"),
    ({"arms": _arm("SPECULATE"), "primary_arm": "ar"}, (), "config.yaml: arms[1].method"),
    ({"arms": [{"name": "d", "method": "DFLASH"}], "primary_arm": "d"}, (), "exactly one AR arm"),
    ({"drafter": {"name": "none", "path": "models/none"}}, (), "drafter.path models/none: no config.json"),
    ({"target": {"name": "none", "path": "README.md"}}, (), "target.path README.md: no config.json"),
    ({"hardware": {"gpus": 0}, "tensor_parallelism": [1]}, (), "the node has no GPU"),
]


@pytest.mark.parametrize(("changes", "arguments", "expected"), MISTAKES, ids=[m[2][:40] for m in MISTAKES])
def test_one_line_and_exit_code_one(
    finished: Workbench, changes: dict[str, Any], arguments: tuple[str, ...], expected: str
) -> None:
    """A dry run already says what is wrong; there is no traceback and nothing is written."""
    finished.write_config(stub_config(**changes) | {"experiment": "mistake"})

    run = finished.dry_run(*arguments)

    assert run.code == 1
    lines = [line for line in run.output.splitlines() if line.startswith("draftbench: ")]
    assert len(lines) == 1, run.output
    assert expected in lines[0]
    assert "Traceback" not in run.output
    assert not (finished.folder / "results" / "mistake").exists()


def test_a_port_in_use_is_said_before_anything_is_launched(bench: Workbench) -> None:
    """The fixed port of the config is taken: one line, exit code 1, no session started."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        content = stub_config(blocks=1, packing="exclusive")
        content["serving"]["port"] = port
        bench.write_config(content)

        run = bench.run()

    assert run.code == 1
    assert f"serving.port {port} is in use" in run.output
    assert "Traceback" not in run.output
    assert not list(bench.results.glob("sessions/*"))


def test_too_few_gpus_are_refused_for_sessions_but_not_for_analysis(bench: Workbench) -> None:
    """Snakemake would clamp the request silently; a plan or report needs no GPU."""
    bench.write_config(stub_config(tensor_parallelism=[8], **bench.wide_models()))

    measuring = bench.dry_run("--resources", "gpus=4")
    planning = bench.dry_run("plan", "--resources", "gpus=4")

    assert measuring.code == 1
    assert "a session at tp 8 must run, but --resources gpus=4 grants 4" in measuring.output
    assert planning.code == 0, planning.output
