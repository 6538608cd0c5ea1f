"""Which arms are compared with which, where and on what: all of it known from the plan, before any result."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from draftbench.statistics.paired_panel import PairedCells, Panel, Place, cell_panel, conversation_times, panel_of
from draftbench.statistics.random_effects import Floats, LogEstimate, estimate_log_ratio
from draftbench.statistics.study_plan import PlannedCell, StudyPlan

DECODE_TIME = "decode_time_per_token"
THROUGHPUT = "throughput"
SECONDARY = ("session_time", "ttft")
MAKESPAN = "throughput_makespan"
STEPPED_DECODE_TIME = "decode_time_per_token of turns whose verify steps are known"
RATES = frozenset({THROUGHPUT, MAKESPAN})
"""Measures of which more is better; the others are times."""


@dataclass(frozen=True)
class Comparison:
    """One arm against one baseline at one place."""

    arm: PlannedCell
    baseline: str
    place: Place

    @property
    def primary_measure(self) -> str:
        """Decode time per token where nothing else runs, throughput where requests share the server."""
        return DECODE_TIME if self.place.concurrency == 1 else THROUGHPUT

    @property
    def measures(self) -> tuple[str, ...]:
        """The primary measure first."""
        more = () if self.place.concurrency == 1 else (MAKESPAN,)
        return (self.primary_measure, *SECONDARY, *more)


def planned_comparisons(plan: StudyPlan) -> list[Comparison]:
    """Every arm against AR and every tree against every DFlash chain, at each planned place, in plan order."""
    return [
        Comparison(cell, baseline, place_of(cell)) for cell in plan.conditions for baseline in _baselines(plan, cell)
    ]


def place_of(cell: PlannedCell) -> Place:
    """Where the cell is compared with other arms' cells."""
    return Place(cell.tensor_parallelism, cell.workload, cell.concurrency)


def planned_places(plan: StudyPlan) -> list[Place]:
    """Every place once, in plan order."""
    return list(dict.fromkeys(place_of(cell) for cell in plan.conditions))


def _baselines(plan: StudyPlan, cell: PlannedCell) -> Iterator[str]:
    place = place_of(cell)
    for other in plan.conditions:
        same_place = place_of(other) == place
        if same_place and (
            (other.method == "AR" and cell.method != "AR") or (other.method == "DFLASH" and cell.method == "DDTREE")
        ):
            yield other.arm


class PlacePanels:
    """The rows of one place, turned into a panel a measure, each built once."""

    def __init__(self, place: Place, requests: pl.DataFrame, cells: pl.DataFrame, min_decode_tokens: int) -> None:
        self._rows = _at(requests, place)
        self._cells = _at(cells, place).filter(pl.col("status") == "measured")
        self._min_decode_tokens = min_decode_tokens
        self._panels: dict[str, Panel | None] = {}

    @property
    def rows(self) -> pl.DataFrame:
        """Request rows of the place."""
        return self._rows

    def blocks_of(self, arm: str) -> set[int]:
        """Blocks in which the arm has a valid cell here."""
        return set(self._cells.filter(pl.col("arm") == arm)["block"])

    def panel(self, measure: str) -> Panel | None:
        """Logs of a measure by session and turn."""
        if measure not in self._panels:
            self._panels[measure] = self._build(measure)
        return self._panels[measure]

    def _build(self, measure: str) -> Panel | None:
        if measure == DECODE_TIME:
            return panel_of(self._rows, "decode_time_per_token_ms", self._min_decode_tokens)
        if measure == STEPPED_DECODE_TIME:
            stepped = self._rows.filter(pl.col("steps").is_not_null())
            return panel_of(stepped, "decode_time_per_token_ms", self._min_decode_tokens)
        if measure in {"yield", "step_time_ms"}:
            return panel_of(self._rows, measure, self._min_decode_tokens)
        if measure == "ttft":
            return panel_of(self._rows, "ttft_ms")
        if measure == "session_time":
            return panel_of(conversation_times(self._rows), "session_time_s")
        column = "throughput_window" if measure == THROUGHPUT else measure
        return cell_panel({(row["arm"], row["block"]): row[column] for row in self._cells.iter_rows(named=True)})


@dataclass(frozen=True)
class Compared:
    """A comparison's estimate of the log ratio (above 0: the arm is better), or the reason why there is none."""

    estimate: LogEstimate | None
    paired: PairedCells | None
    reason: str | None


def compare(panels: PlacePanels, comparison: Comparison, measure: str) -> Compared:
    """Pairs arm and baseline on a measure and infers the mean log ratio."""
    panel = panels.panel(measure)
    paired = _pair(panel, comparison, measure)
    if panel is None or paired is None:
        return Compared(None, None, _why_unpaired(panels, comparison, measure))
    prompts = None
    if measure in RATES:
        prompts = _prompts_behind_rate(panels, comparison)
    estimate = estimate_log_ratio(paired.cells, paired.weights, panel.launch_variance(), prompts=prompts)
    return Compared(estimate, paired, estimate.reason)


def _pair(panel: Panel | None, comparison: Comparison, measure: str) -> PairedCells | None:
    if panel is None:
        return None
    if measure in RATES:
        return panel.pair(comparison.arm.arm, comparison.baseline)
    return panel.pair(comparison.baseline, comparison.arm.arm)


def _prompts_behind_rate(panels: PlacePanels, comparison: Comparison) -> tuple[Floats, Floats] | None:
    """A cell has one throughput, so how much prompts differ is taken from their decode times in the same cells."""
    paired = _pair(panels.panel(DECODE_TIME), comparison, DECODE_TIME)
    return None if paired is None else (paired.cells, paired.weights)


def _why_unpaired(panels: PlacePanels, comparison: Comparison, measure: str) -> str:
    blocks = [panels.blocks_of(name) for name in (comparison.arm.arm, comparison.baseline)]
    for name, held in zip((comparison.arm.arm, comparison.baseline), blocks, strict=True):
        if not held:
            return f"{name} has no valid cell here"
    if not blocks[0] & blocks[1]:
        return f"no block holds valid cells of both {comparison.arm.arm} and {comparison.baseline}"
    if measure == THROUGHPUT:
        return "no window in which all conversations were active at once"
    return "no turn is long enough in both arms"


def _at(table: pl.DataFrame, place: Place) -> pl.DataFrame:
    return table.filter(
        (pl.col("tensor_parallelism") == place.tensor_parallelism)
        & (pl.col("workload") == place.workload)
        & (pl.col("concurrency") == place.concurrency)
    )
