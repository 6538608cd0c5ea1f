"""One cell from flush to cell.json: empty the cache, play, check every identity, score AR's output, write."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftbench.errors import MeasurementError
from draftbench.load.client import Client, TokenScore
from draftbench.load.clock import NS_PER_MS, NS_PER_S, Clock, MonotonicClock
from draftbench.load.failures import measurement_error
from draftbench.load.identities import CellFacts, check_cell, failure_class
from draftbench.load.loop_lag import LagSummary, LoopLagSampler
from draftbench.load.recorder import CellRows, write_cell
from draftbench.load.run_file import PlannedCell, PlannedSession, RunFile
from draftbench.load.schedule import PlannedConversation
from draftbench.load.served_instance import ServedInstance, resolved_settings
from draftbench.load.session_player import Limits, SessionPlayer
from draftbench.load.stream import RequestError
from draftbench.load.windows import occupancy_window
from draftbench.provenance import collect, utc_now
from draftbench.records import CellRecord, Check, RequestRecord

FLUSH_PATIENCE_S = 30.0
FLUSH_RETRY_MS = 200


@dataclass(frozen=True)
class CellPlan:
    """Which cell is measured, by key and by value."""

    run: RunFile
    session_key: str
    cell_key: str

    @property
    def session(self) -> PlannedSession:
        """The cell's session."""
        return self.run.session(self.session_key)

    @property
    def cell(self) -> PlannedCell:
        """The cell's own values."""
        return self.run.cell(self.session_key, self.cell_key)

    @property
    def name(self) -> str:
        """The name that stands in every row."""
        return f"{self.session_key}/{self.cell_key}"

    @property
    def wants_scores(self) -> bool:
        """Greedy AR only: its tokens are the reference of losslessness, and speculative servers refuse logprobs."""
        return not self.session.speculative and self.run.sampling.temperature == 0

    @property
    def limits(self) -> Limits:
        """When the cell is given up."""
        return Limits(self.run.hang_timeout, self.run.cell_timeout)


@dataclass(frozen=True)
class Measured:
    """What came out of playing a cell, before it was judged."""

    records: Sequence[RequestRecord]
    scores: dict[int, list[TokenScore]] | None
    lag: LagSummary
    load_average: float
    resolved: dict[str, Any]
    started_utc: str


def measure_cell(plan: CellPlan, conversations: Sequence[PlannedConversation], server: ServedInstance) -> Path:
    """Measure one cell and write its folder; returns the path of cell.json.

    Raises MeasurementError (hang, crash, incomplete, identity, cache_state, client_late) and then writes no file.
    """
    measured = asyncio.run(_measure(plan, conversations, server))
    checks = check_cell(measured.records, _facts(plan, conversations, server, measured))
    broken = failure_class(checks)
    if broken is not None:
        raise MeasurementError(_verdict(checks), broken)
    folder = plan.run.layout.cell(plan.session_key, plan.cell_key)
    rows = CellRows(plan.name, measured.records, measured.scores)
    return write_cell(folder, rows, _record(plan, server, measured, checks))


async def _measure(plan: CellPlan, conversations: Sequence[PlannedConversation], server: ServedInstance) -> Measured:
    clock = MonotonicClock()
    started_utc, load_average = utc_now(), os.getloadavg()[0]
    async with Client(server.url, clock) as client:
        try:
            resolved = resolved_settings(await client.server_info())
            await flush_cache(client, clock)
            await client.open_connections(min(plan.cell.concurrency, len(conversations)))
        except RequestError as error:
            raise measurement_error(error, "preparing the cell", server.is_alive()) from error
        player = SessionPlayer(client, clock, server.played, plan.run.sampling, plan.limits)
        lag = LoopLagSampler()
        records = await player.play(conversations, plan.cell.concurrency, plan.cell_key, lag)
        scores = await _scores(plan, client, conversations, records, server) if plan.wants_scores else None
    return Measured(records, scores, lag.summary(), load_average, resolved, started_utc)


async def flush_cache(client: Client, clock: Clock, patience_s: float = FLUSH_PATIENCE_S) -> None:
    """Empty the prefix cache; asks again while the server still ends a former request.

    Raises MeasurementError (cache_state) when the server refuses for longer than `patience_s`.
    """
    deadline = clock.now_ns() + round(patience_s * NS_PER_S)
    while not await client.flush_cache():
        now = clock.now_ns()
        if now >= deadline:
            raise MeasurementError(f"the server refused to flush its cache for {patience_s:g} s", "cache_state")
        await clock.sleep_until(now + FLUSH_RETRY_MS * NS_PER_MS)


async def _scores(
    plan: CellPlan,
    client: Client,
    conversations: Sequence[PlannedConversation],
    records: Sequence[RequestRecord],
    server: ServedInstance,
) -> dict[int, list[TokenScore]]:
    """The target's two best tokens at each output position, by prefill, as many requests at once as in the cell."""
    places = asyncio.Semaphore(plan.cell.concurrency)
    prompts = prompts_by_request(conversations)

    async def score(record: RequestRecord) -> tuple[int, list[TokenScore]]:
        prompt = prompts[record.request]
        async with places:
            found = await client.score([*prompt, *record.output_ids], len(prompt), plan.run.hang_timeout)
        server.note_progress()
        return record.request, found

    try:
        async with asyncio.timeout(plan.run.cell_timeout):
            return dict(await asyncio.gather(*(score(record) for record in records if record.output_ids)))
    except RequestError as error:
        raise measurement_error(error, "scoring AR's output", server.is_alive()) from error
    except TimeoutError:
        raise MeasurementError("scoring AR's output took longer than cell_timeout", "incomplete") from None


def prompts_by_request(conversations: Sequence[PlannedConversation]) -> dict[int, Sequence[int]]:
    """The ids sent, by request number in planned order."""
    turns = (turn for conversation in conversations for turn in conversation.turns)
    return {number: turn.input_ids for number, turn in enumerate(turns)}


def _facts(
    plan: CellPlan, conversations: Sequence[PlannedConversation], server: ServedInstance, measured: Measured
) -> CellFacts:
    prompts = prompts_by_request(conversations)
    return CellFacts(
        speculative=plan.session.speculative,
        verify_width=plan.session.verify_width,
        planned_requests=len(prompts),
        instance_id=server.instance_id,
        prompts=prompts,
        loop_lag_p99_ms=measured.lag.p99_ms,
        max_client_lag_share=plan.run.max_client_lag_share,
    )


def _verdict(checks: Sequence[Check]) -> str:
    broken = [check for check in checks if not check.passed]
    return "; ".join(f"{check.name}: {check.detail}" for check in broken)


def _record(plan: CellPlan, server: ServedInstance, measured: Measured, checks: Sequence[Check]) -> CellRecord:
    run, session, cell, records = plan.run, plan.session, plan.cell, measured.records
    window = occupancy_window(records, cell.concurrency)
    return CellRecord(
        experiment=run.experiment,
        session=plan.session_key,
        cell=plan.cell_key,
        arm=session.arm,
        method=session.method,
        draft_budget=session.draft_budget,
        verify_width=session.verify_width,
        tensor_parallelism=session.tensor_parallelism,
        block=session.block,
        session_order=session.order,
        workload=cell.workload,
        workload_key=cell.workload_key,
        workload_kind=cell.workload_kind,
        concurrency=cell.concurrency,
        temperature=run.sampling.temperature,
        top_p=run.sampling.top_p,
        max_new_tokens=cell.max_new_tokens,
        instance_id=server.instance_id,
        devices=server.devices,
        neighbours=server.neighbours,
        engine=run.engine,
        engine_version=run.engine_version,
        resolved=measured.resolved,
        plan_sha256=run.plan_sha256,
        started_utc=measured.started_utc,
        start_ns=min(record.sent_ns for record in records),
        end_ns=max(record.done_ns or record.sent_ns for record in records),
        window_start_ns=window.start_ns,
        window_end_ns=window.end_ns,
        window_reason=window.reason,
        planned_requests=len(records),
        completed_requests=sum(record.error is None for record in records),
        loop_lag_p50_ms=measured.lag.p50_ms,
        loop_lag_p99_ms=measured.lag.p99_ms,
        loop_lag_max_ms=measured.lag.max_ms,
        load_average=measured.load_average,
        checks=tuple(checks),
        telemetry=None,
        telemetry_reason="no telemetry is recorded in this version",
        provenance=collect(),
    )
