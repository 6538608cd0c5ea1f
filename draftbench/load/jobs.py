"""The three jobs of a session, each inside a lease: launch, warm up, measure one cell."""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from draftbench.errors import PlanError, ResultsError
from draftbench.load.cell import CellPlan, measure_cell
from draftbench.load.client import Client
from draftbench.load.failures import failure_recorded, measurement_error
from draftbench.load.progress import describe_cell, describe_session, note_finished, progress_line
from draftbench.load.run_file import PlannedSession, RunFile
from draftbench.load.served_instance import (
    ServedInstance,
    leased,
    redacted_environment,
    resolved_settings,
)
from draftbench.load.stream import RequestError
from draftbench.load.warm_up import Calibration, highest_concurrencies, require_disjoint, warm_up
from draftbench.provenance import atomic_write_json, collect, utc_now

PLAN_PATIENCE_S = 120.0

Lease = Callable[[PlannedSession], AbstractContextManager[ServedInstance]]
"""How a job comes to its server; tests put a server of their own here."""


def launch(run: RunFile, session_key: str, output: Path, lease: Lease = leased) -> None:
    """Start the session's server and write what was started: command, resolved settings, devices, versions.

    Raises PlanError where the plan is not written, LeaseError, ServerError.
    """
    session = run.session(session_key)
    _require_plan(run.layout.plan_json)
    _say(run, f"launch {describe_session(session)}")
    with failure_recorded(run, session_key, None, "launch"), lease(session) as server:
        info = asyncio.run(_server_info(server))
        atomic_write_json(output, _launch_record(run, session_key, server, info))
    ready = f" in {server.ready_seconds:.0f} s" if server.ready_seconds is not None else ""
    print(f"ready{ready}: {describe_session(session)} ({server.instance_id})", file=sys.stderr, flush=True)


def warm(run: RunFile, session_key: str, output: Path, lease: Lease = leased) -> None:
    """Warm the session's server up and write what was sent; raises MeasurementError, LeaseError, ServerError."""
    session = run.session(session_key)
    _say(run, f"warm up {describe_session(session)}")
    with failure_recorded(run, session_key, None, "warmup"), lease(session) as server:
        atomic_write_json(output, warm_up(run, session_key, _calibrations(run, session), server))


def measure(run: RunFile, session_key: str, cell_key: str, output: Path, lease: Lease = leased) -> None:
    """Measure one cell on a warm server; raises MeasurementError, LeaseError, ServerError.

    A server that was restarted since the session's warm-up is warmed up again, and that is recorded beside
    warmup.json under the new instance's id.
    """
    plan = CellPlan(run, session_key, cell_key)
    doing, expected = describe_cell(plan.session, plan.cell), run.layout.cell_record(session_key, cell_key)
    if output.resolve() != expected.resolve():
        raise ResultsError(f"--output {output} is not this cell's place, {expected}")
    _say(run, f"measure {doing}")
    start = time.monotonic()
    with failure_recorded(run, session_key, cell_key, "measure"), lease(plan.session) as server:
        _warm_if_restarted(run, session_key, server)
        measure_cell(plan, _load(run.files(plan.cell.workload_key).rendered), server)
    note_finished(run, plan.cell, time.monotonic() - start)
    _say(run, f"done: {doing}")


def _warm_if_restarted(run: RunFile, session_key: str, server: ServedInstance) -> None:
    if server.is_warm():
        return
    record = warm_up(run, session_key, _calibrations(run, run.session(session_key)), server)
    atomic_write_json(run.layout.session(session_key) / f"warmup-{server.instance_id}.json", record)


def _calibrations(run: RunFile, session: PlannedSession) -> list[Calibration]:
    """The session's workloads that have calibration conversations, none of which may be a measured one."""
    found = []
    for key, (workload, concurrency) in highest_concurrencies(session).items():
        files = run.files(key)
        if files.calibration is not None:
            conversations = _load(files.calibration)
            require_disjoint(workload, conversations, _load(files.rendered))
            found.append(Calibration(workload, concurrency, conversations))
    return found


def _load(path: Path) -> list[Any]:
    from draftbench.workloads.schema import load_rendered

    return list(load_rendered(path))


async def _server_info(server: ServedInstance) -> dict[str, Any]:
    async with Client(server.url) as client:
        try:
            return await client.server_info()
        except RequestError as error:
            raise measurement_error(error, "asking for /server_info", server.is_alive()) from error


def _launch_record(run: RunFile, session_key: str, server: ServedInstance, info: dict[str, Any]) -> dict[str, Any]:
    session = run.session(session_key)
    return {
        "schema_version": 1,
        "experiment": run.experiment,
        "session": session_key,
        **session.model_dump(mode="json", exclude={"server_spec", "environment", "cells"}),
        "plan_sha256": run.plan_sha256,
        "launched_utc": utc_now(),
        "instance_id": server.instance_id,
        "engine": run.engine,
        "engine_version": info.get("version", run.engine_version),
        "devices": server.devices,
        "neighbours": server.neighbours,
        "ready_seconds": server.ready_seconds,
        "command": server.command,
        "environment": redacted_environment(session.environment),
        "resolved": resolved_settings(info),
        "provenance": collect(),
    }


def _require_plan(plan_json: Path) -> None:
    """The plan is rendered by a rule of its own, which may still be at work."""
    deadline = time.monotonic() + PLAN_PATIENCE_S
    while not plan_json.exists():
        if time.monotonic() >= deadline:
            raise PlanError(f"{plan_json} is missing; nothing is launched without a plan: run `snakemake plan`")
        time.sleep(0.5)


def _say(run: RunFile, doing: str) -> None:
    """Standard error is what Snakemake shows while the job runs; standard output goes to its log."""
    print(progress_line(run, doing), file=sys.stderr, flush=True)
