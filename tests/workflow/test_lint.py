"""The workflow's own style."""

import subprocess

import pytest

from tests.workflow.conftest import PROJECT, SNAKEMAKE

pytestmark = pytest.mark.workflow


def test_snakemake_lint_finds_nothing() -> None:
    """`snakemake --lint` on the default experiment."""
    done = subprocess.run([str(SNAKEMAKE), "--lint"], cwd=PROJECT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_rule_files_are_formatted() -> None:
    """`snakefmt --check`."""
    done = subprocess.run(
        [str(SNAKEMAKE.with_name("snakefmt")), "--check", "Snakefile", "rules"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["qwen3.6-27b-8gpu.yaml", "qwen3.6-27b-8gpu-screen.yaml"])
def test_the_eight_gpu_study_dry_runs_without_a_gpu(name: str) -> None:
    """Against its declared node and model facts, on a machine that has neither."""
    done = subprocess.run(
        [str(SNAKEMAKE), "-n", "-q", "rules", "--resources", "gpus=8", "--configfile", f"experiments/{name}"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "measure" in done.stdout + done.stderr
