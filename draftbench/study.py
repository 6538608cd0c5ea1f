"""One experiment on one machine: config, node, facts and ledger bound to matrix, plan, paths and targets.

Rules ask this object and nothing else; opening it starts no server and touches no GPU.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from draftbench.config import ExperimentConfig, load_config
from draftbench.layout import Layout
from draftbench.matrix import Cell, Matrix, Refusal, Session, digest, expand
from draftbench.plan import Plan, build_plan, check_study, fit_budget, refuse
from draftbench.plan.availability import check_units
from draftbench.plan.inputs import PlanInputs, read_inputs
from draftbench.plan.ledger import read_ledger
from draftbench.plan.writing import load_plan
from draftbench.session_specs import SessionSpecs, read_self_test
from draftbench.tables import TABLES
from draftbench.tex_program import tex_program
from draftbench.workload_plan import PlannedWorkloads

AGGREGATE_TABLES = ("requests", "cells", "failures", "deviations")
PRIORITY_STEP = 10
SOURCE_SUFFIXES = {".py", ".css", ".js", ".j2"}

Purpose = Literal["measure", "plan", "analyse"]


@dataclass(frozen=True)
class Bench:
    """What measuring needs: node and model facts, servers, prompts."""

    inputs: PlanInputs
    specs: SessionSpecs
    workloads: PlannedWorkloads


@dataclass(frozen=True)
class Study:
    """What is measured here, in which order, with what, and where it lies.

    `bench` is None for a study that is only analysed, as it was recorded, perhaps on another machine.
    """

    config: ExperimentConfig
    config_file: Path
    project: Path
    units: int
    device: str
    matrix: Matrix
    plan: Plan
    bench: Bench | None

    @classmethod
    def open(
        cls, config_file: Path, overrides: Mapping[str, Any], project: Path, gpus: int | None, purpose: Purpose
    ) -> "Study":
        """Read and check everything; raises a DraftbenchError of one line for any mistake.

        `gpus` are the units that Snakemake was given, None = all the machine has.
        Only `measure` is refused for too few GPUs; `analyse` takes an unchanged study as it was recorded, whatever
        machine it is analysed on.
        """
        config = load_config(config_file, overrides)
        config_sha256 = digest(config.model_dump(mode="json"), 64)
        recorded = _recorded_plan(project, config, config_sha256) if purpose == "analyse" else None
        if recorded is not None:
            return cls(
                config, config_file, project, gpus or 1, recorded.device, _matrix_of(config, recorded), recorded, None
            )
        study = cls._planned(config, config_file, project, gpus, config_sha256)
        if purpose == "measure":
            study.require_units()
        return study

    @classmethod
    def _planned(
        cls, config: ExperimentConfig, config_file: Path, project: Path, gpus: int | None, config_sha256: str
    ) -> "Study":
        wanted = read_inputs(config, project, config_file.name)
        check_study(wanted)
        ledger = read_ledger(project, Layout.of(config.experiment))
        decision = fit_budget(wanted, ledger)
        inputs = replace(wanted, config=decision.config)
        bench = Bench(
            inputs,
            SessionSpecs(inputs.config, project, inputs.inventory, inputs.drafter, read_self_test(project)),
            PlannedWorkloads.of(inputs.config, project),
        )
        matrix = expand(inputs.config, bench.workloads.test_keys, bench.specs.spec, partial(refuse, inputs), ledger)
        plan = build_plan(inputs, matrix, decision, config_sha256, bench.workloads.calibration_keys)
        units = _usable_units(inputs, gpus)
        return cls(inputs.config, config_file, project, units, bench.specs.device, matrix, plan, bench)

    @property
    def layout(self) -> Layout:
        """Paths of the results, relative to the project folder."""
        return Layout.of(self.config.experiment)

    # --- what Snakemake asks ---------------------------------------------------------------------------------------

    @functools.cached_property
    def targets(self) -> list[str]:
        """Everything of a complete study; every cell by name, or a deleted one would not be missed."""
        layout = self.layout
        records = [layout.launch_record(s.key) for s in self.matrix.sessions]
        records += [layout.warmup_record(s.key) for s in self.matrix.sessions]
        return [
            layout.plan_json.as_posix(),
            *(path.as_posix() for path in records),
            *self.cell_files,
            *self.table_files,
            *self.report_files,
        ]

    @functools.cached_property
    def cell_files(self) -> list[str]:
        """The record of every cell, in running order."""
        return [self.layout.cell_record(cell.session, cell.key).as_posix() for cell in self.matrix.cells]

    @property
    def workload_files(self) -> list[str]:
        """Rendered prompts of every workload, measured and calibration."""
        return [(self.layout.workload(key) / "rendered.jsonl").as_posix() for key in self._workload_keys]

    def cell_workload(self, session: str, cell: str) -> str:
        """Rendered prompts of one cell."""
        key = self._cells[session, cell].workload_key
        return (self.layout.workload(key) / "rendered.jsonl").as_posix()

    @property
    def statistics_tables(self) -> list[str]:
        """Tables that rule statistics makes."""
        return [name for name in TABLES if name not in {*AGGREGATE_TABLES, "losslessness"}]

    @property
    def table_files(self) -> list[str]:
        """Every table that figures and reports read."""
        return [self.layout.table(name).as_posix() for name in TABLES]

    @property
    def report_files(self) -> list[str]:
        """The report; the PDF only where something can make one."""
        files = [self.layout.report_html, self.layout.report_tex]
        return [path.as_posix() for path in (*files, *([self.layout.report_pdf] if tex_program() else []))]

    @property
    def prose(self) -> list[str]:
        """LaTeX prose of the report."""
        return sorted(path.relative_to(self.project).as_posix() for path in (self.project / "report").glob("*.tex"))

    def code(self, *rooms: str) -> list[str]:
        """Source files whose edit makes an analysis stale; measuring code is covered by MEASUREMENT_PROTOCOL."""
        package = self.project / "draftbench"
        modules = [package / room for room in rooms if room.endswith(".py")]
        packages = [package / room for room in rooms if not room.endswith(".py")]
        modules += [path for folder in packages for path in folder.rglob("*.*") if path.suffix in SOURCE_SUFFIXES]
        return sorted(path.relative_to(self.project).as_posix() for path in modules)

    @property
    def plan_sha256(self) -> str:
        """Hash of the plan's content."""
        return self.plan.plan_sha256

    @property
    def session_pattern(self) -> str:
        """Wildcard constraint."""
        return "|".join(re.escape(session.key) for session in self.matrix.sessions) or "none"

    cell_pattern = r"[a-z][\w.-]*_c\d+-[0-9a-f]{6}"

    @property
    def workload_pattern(self) -> str:
        """Wildcard constraint."""
        return "|".join(re.escape(key) for key in self._workload_keys)

    def session_units(self, session: str) -> int:
        """GPU units that a session holds: all there are on a CPU, so that sessions never overlap."""
        alone = self.device == "cpu" or self.config.packing == "exclusive"
        return self.units if alone else self._sessions[session].tensor_parallelism

    def session_threads(self, session: str, cores: int) -> int:
        """All cores on a CPU, so that no other job runs beside a measurement."""
        return cores if self.device == "cpu" else 1

    def priority(self, session: str) -> int:
        """Earlier sessions first, so that a server keeps its GPUs until its cells are done."""
        return PRIORITY_STEP * (len(self.matrix.sessions) - self._sessions[session].order)

    # --- checks ----------------------------------------------------------------------------------------------------

    def require_units(self) -> None:
        """Raise PlanError when a session that must run needs more GPUs than Snakemake may use, which would clamp it."""
        assert self.bench is not None
        check_units(self.bench.inputs, self.units, (s for s in self.matrix.sessions if self._missing_cells(s)))

    def _missing_cells(self, session: Session) -> list[str]:
        paths = {cell.key: self.layout.cell_record(session.key, cell.key) for cell in session.cells}
        return [key for key, path in paths.items() if not (self.project / path).exists()]

    @property
    def _workload_keys(self) -> list[str]:
        if self.bench is not None:
            return list(self.bench.workloads.definitions)
        planned = self.plan.workloads
        return [key for workload in planned for key in (workload.key, workload.calibration_key) if key is not None]

    @functools.cached_property
    def _sessions(self) -> dict[str, Session]:
        return {session.key: session for session in self.matrix.sessions}

    @functools.cached_property
    def _cells(self) -> dict[tuple[str, str], Cell]:
        return {(cell.session, cell.key): cell for cell in self.matrix.cells}


def _recorded_plan(project: Path, config: ExperimentConfig, config_sha256: str) -> Plan | None:
    """The plan under the results, where it is of this very config."""
    path = project / Layout.of(config.experiment).plan_json
    recorded = load_plan(path) if path.is_file() else None
    return recorded if recorded is not None and recorded.config_sha256 == config_sha256 else None


def _matrix_of(config: ExperimentConfig, plan: Plan) -> Matrix:
    arms = {arm.name: arm for arm in config.expanded_arms}
    sessions = tuple(
        Session(
            key=session.key,
            arm=arms[session.arm],
            tensor_parallelism=session.tensor_parallelism,
            block=session.block,
            order=session.order,
            spec={},
            cells=tuple(
                Cell(cell.key, session.key, cell.workload, cell.workload_key, cell.concurrency)
                for cell in session.cells
            ),
        )
        for session in plan.sessions
    )
    refusals = tuple(Refusal(refusal.arm, refusal.tensor_parallelism, refusal.reason) for refusal in plan.refusals)
    return Matrix(sessions, refusals, plan.blocks)


def _usable_units(inputs: PlanInputs, granted: int | None) -> int:
    """Units that sessions may hold: what Snakemake was given, never more GPUs than there are."""
    if inputs.device == "cpu":
        return granted or 1
    there = len(inputs.inventory.gpus)
    return there if granted is None else min(granted, there)
