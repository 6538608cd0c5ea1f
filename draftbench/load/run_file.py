"""The run file: everything a job needs, written once when the rules are parsed and named by DRAFTBENCH_RUN."""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from draftbench.errors import ResultsError
from draftbench.layout import Layout

RUN_FILE_VARIABLE = "DRAFTBENCH_RUN"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PlannedCell(_Section):
    """One cell of a session, by the values that its record must hold."""

    workload: str
    workload_key: str
    workload_kind: str
    concurrency: int = Field(ge=1)
    max_new_tokens: int = Field(ge=1)


class PlannedSession(_Section):
    """One (arm, tensor parallelism, block) with the server that it needs, a `draftbench.servers` ServerSpec as JSON.

    `environment` holds the variables that the config sets for the server, which launch.json shows.
    """

    arm: str
    method: str
    draft_budget: int | None
    verify_width: int | None
    tensor_parallelism: int = Field(ge=1)
    block: int = Field(ge=1)
    order: int = Field(ge=0)
    server_spec: dict[str, Any]
    environment: dict[str, str] = Field(default_factory=dict)
    cells: dict[str, PlannedCell]

    @property
    def speculative(self) -> bool:
        """Whether the server drafts; AR is the only method that does not."""
        return self.method != "AR"


class WorkloadFiles(_Section):
    """Where a built workload lies; `calibration` holds the conversations that only warm-up may send."""

    rendered: Path
    calibration: Path | None


class Sampling(_Section):
    """Request parameters that every cell shares; temperature 0 is greedy."""

    temperature: float = Field(ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)


class RunFile(_Section):
    """One parsed experiment as its jobs see it; paths are relative to the folder that Snakemake runs in.

    `results` is the experiment's results folder, `workdir` the run's own state (locks, logs, server records).
    Times are seconds.
    """

    experiment: str
    plan_sha256: str
    results: Path
    workdir: Path
    engine: str
    engine_version: str
    startup_timeout: float = Field(gt=0)
    hang_timeout: float = Field(gt=0)
    stop_grace: float = Field(ge=0)
    cell_timeout: float = Field(gt=0)
    sampling: Sampling
    max_client_lag_share: float = Field(gt=0)
    packing: Literal["pairs", "exclusive"]
    workloads: dict[str, WorkloadFiles]
    sessions: dict[str, PlannedSession]

    @property
    def layout(self) -> Layout:
        """Where this experiment's results lie."""
        return Layout(self.results)

    def session(self, key: str) -> PlannedSession:
        """The planned session; raises ResultsError for a key that the plan does not hold."""
        if key not in self.sessions:
            raise ResultsError(f"session {key!r} is not in the run file; run snakemake again so that it is rewritten")
        return self.sessions[key]

    def cell(self, session: str, key: str) -> PlannedCell:
        """The planned cell; raises ResultsError for a key that its session does not hold."""
        cells = self.session(session).cells
        if key not in cells:
            raise ResultsError(f"cell {key!r} is not planned for session {session!r}; run snakemake again")
        return cells[key]

    def files(self, workload_key: str) -> WorkloadFiles:
        """Where the workload lies; raises ResultsError for one that the plan does not hold."""
        if workload_key not in self.workloads:
            raise ResultsError(f"workload {workload_key!r} is not in the run file; run snakemake again")
        return self.workloads[workload_key]


def load_run_file(path: Path | None = None) -> RunFile:
    """The run file at `path`, by default the one that DRAFTBENCH_RUN names; raises ResultsError."""
    if path is None:
        named = os.environ.get(RUN_FILE_VARIABLE)
        if not named:
            raise ResultsError(f"{RUN_FILE_VARIABLE} is not set; run this script through snakemake")
        path = Path(named)
    try:
        return RunFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}; run snakemake again so that it is written") from None
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ResultsError(f"{path}: {where}: {problem['msg']}; run snakemake again") from None
