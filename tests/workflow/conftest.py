"""A copy of the project in which real Snakemake runs, served by stub servers on a declared node."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

PROJECT = Path(__file__).parents[2]
COPIED = ("Snakefile", "rules", "workflow_scripts", "draftbench", "envs", "report", "profiles", "tests/fakes", "models")
SHARED = (".venvs", ".cache")
SNAKEMAKE = PROJECT / ".venvs" / "driver" / "bin" / "snakemake"


def stub_config(**changes: Any) -> dict[str, Any]:
    """A small study on a declared node of eight GPUs: AR, DFlash and one tree, two blocks, two short cells each."""
    content: dict[str, Any] = {
        "experiment": "stub",
        "question": "Does the workflow hold?",
        "engine": "stub",
        "engines": {
            "stub": {
                "kind": "sglang",
                "python": ".venvs/driver/bin/python",
                "launcher": ["tests/fakes/stub_server.py"],
                "device": "cuda",
                "flags": {"stub-step-ms": 15},
            }
        },
        "serving": {
            "max_running_requests": 8,
            "context_length": 8192,
            "memory_fraction": 0.8,
            "cuda_graph_max_batch": 8,
            "page_size": 1,
            "attention_backend": "triton",
            "startup_timeout": 60,
            "hang_timeout": 20,
            "stop_grace": 3,
        },
        "target": {"name": "SmolLM2", "path": ".cache/models/SmolLM2-135M-Instruct-q4_1-dequantised"},
        "drafter": {"name": "drafter", "path": "models/smollm2-135m-dflash"},
        "arms": [
            {"name": "ar", "method": "AR"},
            {"name": "dflash", "method": "DFLASH"},
            {"name": "ddtree", "method": "DDTREE", "draft_budgets": [8]},
        ],
        "primary_arm": "ddtree-b8",
        "tensor_parallelism": [1],
        "blocks": 2,
        "workloads": {
            "code": {
                "set": "code-humaneval",
                "test_ranks": [0, 4],
                "calibration_ranks": [100, 101],
                "max_new_tokens": 24,
                "concurrency": [1, 4],
            }
        },
        "sampling": {"temperature": 0.0},
        "statistics": {"max_client_lag_share": 100.0},
        "hardware": {"gpus": 8, "numa_nodes": [[0, 1, 2, 3], [4, 5, 6, 7]], "gpu_memory_gib": 96},
    }
    return content | changes


@dataclass
class Run:
    """What one Snakemake invocation did."""

    code: int
    output: str

    @property
    def jobs(self) -> dict[str, int]:
        """Jobs by rule from Snakemake's own table; empty where there was nothing to do."""
        table = re.search(r"^Job stats:\n(.*?)\n\n", self.output + "\n\n", re.MULTILINE | re.DOTALL)
        rows = re.findall(r"^(\w+) +(\d+)", table.group(1), re.MULTILINE) if table else []
        return {rule: int(count) for rule, count in rows if rule not in {"total", "job", "all"}}


@dataclass
class Workbench:
    """A project folder of its own; servers it starts carry `mark` in their environment."""

    folder: Path
    mark: str
    environment: dict[str, str] = field(default_factory=dict)

    def write_config(self, content: dict[str, Any]) -> None:
        """Replace config.yaml."""
        (self.folder / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))

    def command(self, *arguments: str) -> list[str]:
        """The command line as a user types it."""
        resources = [] if "--resources" in arguments else ["--resources", "gpus=8"]
        return [str(SNAKEMAKE), *arguments, "--cores", "all", *resources]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Snakemake in a session of its own, so that signals to it are signals to it alone."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=os.environ | {"DRAFTBENCH_TEST": self.mark} | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, timeout: float = 240) -> Run:
        """Run Snakemake to its end."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=timeout)
        return Run(process.returncode, output)

    def dry_run(self, *arguments: str) -> Run:
        """What Snakemake would do now."""
        return self.run("-n", *arguments)

    def wide_models(self) -> dict[str, Any]:
        """Target and drafter whose heads eight GPUs can split, as config sections; only their config.json differ."""
        heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 18}
        sections = {}
        for role, path in (("target", stub_config()["target"]["path"]), ("drafter", stub_config()["drafter"]["path"])):
            folder = self.folder / "models" / f"wide-{role}"
            shutil.copytree(PROJECT / path, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
            config = json.loads((PROJECT / path / "config.json").read_text()) | heads
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "model.safetensors").symlink_to(PROJECT / path / "model.safetensors")
            sections[role] = {"name": f"wide {role}", "path": f"models/wide-{role}"}
        return sections

    @property
    def results(self) -> Path:
        """Results of the experiment in config.yaml."""
        return self.folder / "results" / yaml.safe_load((self.folder / "config.yaml").read_text())["experiment"]

    def cell_files(self) -> dict[Path, int]:
        """Every finished cell with the time at which it was written."""
        return {path: path.stat().st_mtime_ns for path in self.results.glob("sessions/*/*/cell.json")}

    def processes(self) -> list[psutil.Process]:
        """Whatever of this workbench still lives."""
        return [process for process in psutil.process_iter() if _carries(process, self.mark)]


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("DRAFTBENCH_TEST") == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _kill(process: psutil.Process) -> str:
    try:
        command = " ".join(process.cmdline())
        process.kill()
    except psutil.Error as error:  # gone meanwhile
        return str(error)
    return command


@pytest.fixture(scope="session")
def project_copy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Workbench]:
    """Make workbenches; environments and the model cache are shared by links."""

    def make(name: str) -> Workbench:
        folder = tmp_path_factory.mktemp(name)
        for part in COPIED:
            source, target = PROJECT / part, folder / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, target)
        for part in SHARED:
            (folder / part).symlink_to(PROJECT / part)
        # Without TeX, which would take half of the time; tests/unit/latex_report makes real PDFs.
        environment = {"DRAFTBENCH_LOCKS": str(folder / "locks"), "DRAFTBENCH_TEX": "none", "PYTHONUNBUFFERED": "1"}
        return Workbench(folder, f"{name}-{os.getpid()}", environment)

    return make


@pytest.fixture
def bench(project_copy: Callable[[str], Workbench], request: pytest.FixtureRequest) -> Iterator[Workbench]:
    """A fresh workbench; whatever it left running is a failure and is killed."""
    workbench = project_copy(re.sub(r"\W+", "_", request.node.name)[:40])
    workbench.write_config(stub_config())
    yield workbench
    left = [_kill(process) for process in workbench.processes()]
    assert left == []


@pytest.fixture(scope="module")
def finished(project_copy: Callable[[str], Workbench]) -> Workbench:
    """A workbench whose study has been run to its end; tests that change it copy it first."""
    workbench = project_copy("finished")
    workbench.write_config(stub_config())
    done = workbench.run()
    assert done.code == 0, done.output[-5000:]
    return workbench


@pytest.fixture
def again(finished: Workbench, tmp_path: Path) -> Workbench:
    """A copy of the finished study, Snakemake's own records included, dates kept."""
    folder = tmp_path / "again"
    shutil.copytree(finished.folder, folder, symlinks=True)
    return Workbench(folder, finished.mark, finished.environment)


assert sys.version_info >= (3, 11)
