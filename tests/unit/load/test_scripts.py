"""The scripts as a user meets them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.load.builders import RunPlan

PROJECT = Path(__file__).parents[3]
ARGUMENTS = {
    "launch.py": ("--session", "gone", "--output", "launch.json"),
    "warmup.py": ("--session", "gone", "--output", "warmup.json"),
    "measure.py": ("--session", "gone", "--cell", "gone", "--output", "cell.json"),
}


@pytest.mark.parametrize("script", ARGUMENTS)
def test_a_mistake_is_one_line_and_exit_code_1(tmp_path: Path, script: str) -> None:
    """A session that the run file lacks: no traceback, and the line says what to do."""
    run_file = tmp_path / "run.json"
    run_file.write_text(RunPlan(tmp_path).build().model_dump_json())
    command = [sys.executable, "-P", str(PROJECT / "workflow_scripts" / script), *ARGUMENTS[script]]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"DRAFTBENCH_RUN": str(run_file)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "draftbench: session 'gone' is not in the run file; run snakemake again so that it is rewritten"
    ]
