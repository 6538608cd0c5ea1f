"""One Snakemake run of a study: what its jobs are told, which servers it owns, how it ends."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson

from draftbench.errors import PlanError
from draftbench.hardware import declaration_problem, read_inventory
from draftbench.load.run_file import RUN_FILE_VARIABLE, PlannedCell, PlannedSession, RunFile, Sampling, WorkloadFiles
from draftbench.matrix import Session, digest
from draftbench.plan.availability import check_port
from draftbench.plan.writing import load_plan
from draftbench.provenance import atomic_write_bytes
from draftbench.servers.leases import stop_all
from draftbench.servers.processes import ProcessIdentity
from draftbench.servers.results_lock import hold_results_lock
from draftbench.servers.server_spec import RunContext, default_node_lock_dir
from draftbench.study import Bench, Study

STATE = Path(".draftbench")
PLAN_VARIABLE = "DRAFTBENCH_PLAN"


@dataclass(frozen=True)
class StudyRun:
    """The run that the main Snakemake process stands for."""

    study: Study
    context: RunContext

    @classmethod
    def of(cls, study: Study) -> "StudyRun":
        """The calling process's run; its servers end with it."""
        main = ProcessIdentity.current()
        state = study.project / STATE / "servers" / str(main).replace(":", "-")
        locks = os.environ.get("DRAFTBENCH_LOCKS")
        return cls(study, RunContext(main, state, Path(locks) if locks else default_node_lock_dir()))

    def job_environment(self) -> dict[str, str]:
        """Write what jobs need to know, named by content so that a dry run disturbs no live one; its variables."""
        folder = self.study.project / STATE
        plan = _write_by_content(folder / "plans", self.study.plan.model_dump(mode="json"))
        self._date(plan)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        variables = {"PATH": path, PLAN_VARIABLE: str(plan), **self.context.to_environment()}
        if self.study.bench is None:
            return variables
        for key, definition in self.study.bench.workloads.definitions.items():
            atomic_write_bytes(folder / "workloads" / f"{key}.json", definition.model_dump_json(indent=1).encode())
        run_file = _write_by_content(folder / "runs", self.run_file(self.study.bench).model_dump(mode="json"))
        return {RUN_FILE_VARIABLE: str(run_file), **variables}

    @property
    def plan_file(self) -> str:
        """The computed plan, which rule plan takes as input; relative to the project."""
        content = orjson.dumps(self.study.plan.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
        return (STATE / "plans" / f"{digest(content.decode(), 16)}.json").as_posix()

    def _date(self, plan: Path) -> None:
        """Make the computed plan newer than a written one that differs, and older than one that agrees.

        So rule plan knows without Snakemake's own records, which are gone when results were copied.
        """
        written = self.study.project / self.study.layout.plan_json
        if not written.is_file():
            return
        before = written.stat().st_mtime_ns - 1
        if _is_plan(written, self.study.plan_sha256):
            os.utime(plan, ns=(before, before))
        else:
            os.utime(plan)

    def run_file(self, bench: Bench) -> RunFile:
        """Every session and cell with its server, as jobs see them."""
        config = self.study.config
        return RunFile(
            experiment=config.experiment,
            plan_sha256=self.study.plan_sha256,
            results=self.study.layout.root,
            workdir=STATE,
            engine=config.engine_entry.kind,
            engine_version=bench.specs.engine_version,
            startup_timeout=config.serving.startup_timeout,
            hang_timeout=config.serving.hang_timeout,
            stop_grace=config.serving.stop_grace,
            cell_timeout=config.cell_timeout,
            sampling=Sampling(temperature=config.sampling.temperature, top_p=config.sampling.top_p),
            max_client_lag_share=config.statistics.max_client_lag_share,
            packing=config.packing,
            workloads=self._workload_files(bench),
            sessions={session.key: self._planned(bench, session) for session in self.study.matrix.sessions},
        )

    def _workload_files(self, bench: Bench) -> dict[str, WorkloadFiles]:
        workloads, layout = bench.workloads, self.study.layout
        return {
            key: WorkloadFiles(
                rendered=layout.workload(key) / "rendered.jsonl",
                calibration=layout.workload(workloads.calibration_keys[name]) / "rendered.jsonl",
            )
            for name, key in workloads.test_keys.items()
        }

    def _planned(self, bench: Bench, session: Session) -> PlannedSession:
        study = self.study
        spec = bench.specs.server_spec(
            session.key,
            session.key.rsplit("-", 1)[1],
            session.arm,
            session.tensor_parallelism,
            bench.specs.devices(study.units),
        )
        return PlannedSession(
            arm=session.arm.name,
            method=session.arm.method,
            draft_budget=session.arm.draft_budget,
            verify_width=bench.inputs.verify_width(session.arm),
            tensor_parallelism=session.tensor_parallelism,
            block=session.block,
            order=session.order,
            server_spec=spec.model_dump(mode="json"),
            environment=dict(study.config.engine_entry.environment),
            cells={
                cell.key: PlannedCell(
                    workload=cell.workload,
                    workload_key=cell.workload_key,
                    workload_kind=bench.workloads.kind(cell.workload),
                    concurrency=cell.concurrency,
                    max_new_tokens=study.config.workloads[cell.workload].max_new_tokens,
                )
                for cell in session.cells
            },
        )

    def claim(self) -> None:
        """Make this the one measuring run of the results folder, on the node that the plan was made for.

        Raises ResultsError when another run measures, PlanError when the node or the port is not the planned one.
        """
        config, bench = self.study.config, self.study.bench
        if bench is None:
            raise PlanError("cells are missing and this command only analyses; run snakemake without a target")
        hold_results_lock(self.study.project / self.study.layout.root)
        if config.hardware is not None and config.engine_entry.launcher is None and self.study.device == "cuda":
            problem = declaration_problem(bench.inputs.inventory, read_inventory(None))
            if problem:
                raise PlanError(f"{self.study.config_file.name}: {problem}")
        check_port(bench.inputs)
        self._forget_dead_runs()

    def _forget_dead_runs(self) -> None:
        for folder in (self.study.project / STATE / "servers").glob("*-*"):
            if not ProcessIdentity.parse(folder.name.replace("-", ":")).is_alive():
                shutil.rmtree(folder, ignore_errors=True)

    def stop_servers(self) -> None:
        """Stop every server of this run and wait until its processes, locks and ports are gone."""
        if self.context.state_dir.is_dir():
            stop_all(self.context)

    def closing_words(self, succeeded: bool) -> str:
        """What the user reads last: the answer and where the report lies, or what failed and how to go on."""
        layout = self.study.layout
        if succeeded:
            return f"draftbench: {_answer(self.study)}"
        failures = sorted((self.study.project / layout.root / "failures").glob("*.json"))
        lines = [f"draftbench: {_failure_line(path)}" for path in failures]
        lines.append("draftbench: finished cells are kept; the next run measures only what is missing")
        lines.append("draftbench: `snakemake interim` makes a report of what there is, marked INTERIM")
        return "\n".join(lines)


def _write_by_content(folder: Path, content: object) -> Path:
    data = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    path = folder / f"{digest(data.decode(), 16)}.json"
    if not path.exists():
        atomic_write_bytes(path, data)
    return path


def _is_plan(path: Path, plan_sha256: str) -> bool:
    try:
        return load_plan(path).plan_sha256 == plan_sha256
    except PlanError:  # of another version: it is written anew
        return False


def _answer(study: Study) -> str:
    """The headline, where the report has one; else where things lie."""
    path = study.project / study.layout.root / "answer.txt"
    place = next((f for f in study.report_files if f.endswith(".pdf")), study.report_files[0])
    if (study.project / place).exists():
        headline = path.read_text().strip() + " " if path.is_file() else ""
        return f"{headline}Report: {place}"
    return "done"


def _failure_line(path: Path) -> str:
    record = json.loads(path.read_text())
    what = f"{record['session']}/{record['cell'] or record['stage']}"
    return f"failed: {what}: {record['failure_class']}: {record['message']}"
