"""Table losslessness: every arm's outputs against AR's of the same block, cell by cell."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from draftbench.layout import Layout
from draftbench.losslessness.divergence import UNIT, Outputs, compare_outputs, with_margins
from draftbench.losslessness.judgement import (
    NOT_SHOWN,
    TREND_LEVEL,
    Evidence,
    Floor,
    judge_greedy,
    length_p_value,
    trend_p_value,
)
from draftbench.statistics.cell_files import read_requests, read_scores
from draftbench.statistics.comparisons import place_of, planned_places
from draftbench.statistics.paired_panel import Place
from draftbench.statistics.study_plan import PlannedCell, StudyPlan
from draftbench.statistics.table_writing import table_from_rows


@dataclass
class ConditionFindings:
    """What is known of one arm at one place before it is judged: compared rows of all blocks."""

    condition: PlannedCell
    compared: list[pl.DataFrame] = field(default_factory=list)

    @property
    def rows(self) -> pl.DataFrame | None:
        """All blocks' rows; None where nothing could be compared."""
        return pl.concat(self.compared) if self.compared else None


def losslessness(plan: StudyPlan, layout: Layout, cells: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """Every arm but AR at every place; cells not measured are left out, the rest judged.

    Tables `cells` and `requests` give validity and marks, the cells' folders the output ids, a few cells at a time.
    """
    marks = requests.select("session", "cell", *UNIT, "repetitive")
    measured = _measured(plan, cells)
    sampled = bool((cells["temperature"].max() or 0) > 0)  # type: ignore[operator]
    floors = {} if sampled else _floors(layout, measured)
    rows: list[dict[str, Any]] = []
    for place in planned_places(plan):
        arms, repeats = _compare_place(plan, _Reader(layout, marks), place, measured)
        floor = floors.get((place.tensor_parallelism, place.concurrency))
        rows += [_row(findings, floor, repeats, sampled) for findings in arms]
    return table_from_rows("losslessness", _mark_leakage(rows))


def _measured(plan: StudyPlan, cells: pl.DataFrame) -> list[PlannedCell]:
    valid = set(cells.filter(pl.col("status") == "measured").select("session", "cell").iter_rows())
    return [cell for cell in plan.cells if (cell.session, cell.cell) in valid]


def _floors(layout: Layout, measured: list[PlannedCell]) -> dict[tuple[int, int], Floor]:
    """The floor a (tp, concurrency): rounding is the kernels', so workloads and blocks are pooled."""
    floors: dict[tuple[int, int], Floor] = {}
    for cell in measured:
        scores = read_scores(layout, cell) if cell.method == "AR" else None
        if scores is None:
            continue
        flipped = scores.filter(pl.col("token") != pl.col("top1_token"))
        margin = flipped.select((pl.col("top1_logprob") - pl.col("top2_logprob")).max()).item()
        key = (cell.tensor_parallelism, cell.concurrency)
        held = floors.get(key, Floor(0, 0, None))
        largest = max((value for value in (held.margin_max, margin) if value is not None), default=None)
        floors[key] = Floor(held.tokens + scores.height, held.disagreements + flipped.height, largest)
    return floors


def _compare_place(
    plan: StudyPlan, reader: "_Reader", place: Place, measured: list[PlannedCell]
) -> tuple[list[ConditionFindings], tuple[int, int]]:
    """Findings of every arm at the place, and (identical, compared) of AR against AR of the first block."""
    arms = {cell.arm: ConditionFindings(cell) for cell in plan.conditions if place_of(cell) == place}
    here = [cell for cell in measured if place_of(cell) == place]
    first: Outputs | None = None
    identical = compared = 0
    for ar_cell in sorted((cell for cell in here if cell.method == "AR"), key=lambda cell: cell.block):
        baseline, scores = reader.outputs(ar_cell), read_scores(reader.layout, ar_cell)
        if first is None:
            first = baseline
        else:
            repeat = compare_outputs(baseline, first)
            identical, compared = identical + repeat["position"].null_count(), compared + repeat.height
        for cell in here:
            if cell.block == ar_cell.block and cell.method != "AR":
                rows = compare_outputs(reader.outputs(cell), baseline)
                arms[cell.arm].compared.append(with_margins(rows, scores))
    return [each for each in arms.values() if each.condition.method != "AR"], (identical, compared)


@dataclass(frozen=True)
class _Reader:
    """Outputs of one cell at a time, with the marks that aggregation made."""

    layout: Layout
    marks: pl.DataFrame

    def outputs(self, cell: PlannedCell) -> Outputs:
        """The cell's finished requests."""
        rows = read_requests(self.layout, cell).filter(pl.col("error").is_null() & pl.col("output_ids").is_not_null())
        marks = self.marks.filter((pl.col("session") == cell.session) & (pl.col("cell") == cell.cell))
        tokens = pl.col("output_ids").list.len().cast(pl.Int64)
        return Outputs(
            rows.select(*UNIT, "request", "output_ids", tokens=tokens).join(
                marks.select(pl.col("conversation"), pl.col("turn").cast(pl.Int32), "repetitive"), on=UNIT, how="left"
            )
        )


def _row(findings: ConditionFindings, floor: Floor | None, repeats: tuple[int, int], sampled: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        **findings.condition.condition,
        "requests": 0,
        "ar_ar_identical": repeats[0],
        "ar_ar_requests": repeats[1],
        "leakage_suspected": False,
        **_floor_columns(floor),
    }
    rows = findings.rows
    if rows is None or rows.is_empty():
        verdict, reason = judge_greedy(Evidence(0, 0, 0, 0, 0, None), floor)
        return {**row, "verdict": verdict, "reason": reason}
    row |= _length_columns(rows, paired=not sampled)
    if sampled:
        reason = f"sampled output: tokens cannot be compared; lengths {row['length_ratio']:.2f} x AR's"
        return {**row, "requests": rows.height, "verdict": NOT_SHOWN, "reason": reason}
    evidence = count_divergence(rows, floor)
    verdict, reason = judge_greedy(evidence, floor)
    return {
        **row,
        "requests": evidence.requests,
        "identical": evidence.requests - evidence.diverged,
        "diverged": evidence.diverged,
        "first_divergence_p50": rows["position"].median(),
        "diverged_unscored": evidence.unscored,
        "margin_max": evidence.margin_max,
        "diverged_beyond_floor": evidence.beyond,
        "verdict": verdict,
        "reason": reason,
    }


def count_divergence(rows: pl.DataFrame, floor: Floor | None) -> Evidence:
    """Counts over compared requests; `tokens` are those up to and including the first difference."""
    limit = floor.limit if floor is not None else float("inf")
    apart = pl.col("position").is_not_null()
    read = pl.when(apart).then(pl.min_horizontal(pl.col("position") + 1, "tokens_ar")).otherwise("tokens_ar")
    counts = rows.select(
        requests=pl.len(),
        tokens=read.sum(),
        diverged=apart.sum(),
        unscored=(apart & pl.col("margin").is_null()).sum(),
        beyond=(pl.col("margin") > limit).sum(),
        margin_max=pl.col("margin").max(),
    ).row(0, named=True)
    return Evidence(**counts)


def _floor_columns(floor: Floor | None) -> dict[str, Any]:
    if floor is None:
        return {}
    return {
        "floor_margin_max": floor.margin_max,
        "floor_tokens": floor.tokens,
        "floor_disagreements": floor.disagreements,
        "floor_limit": floor.limit,
    }


def _length_columns(rows: pl.DataFrame, paired: bool) -> dict[str, Any]:
    """Lengths and repetition; blocks repeat the same prompts, so the test takes one row a prompt."""
    prompts = rows.group_by(UNIT, maintain_order=True).agg(pl.col("tokens").first(), pl.col("tokens_ar").first())
    lengths = rows.select(ours=pl.col("tokens").sum(), theirs=pl.col("tokens_ar").sum()).row(0)
    return {
        "length_ratio": lengths[0] / lengths[1] if lengths[1] else None,
        "length_p_value": length_p_value(prompts["tokens"].to_list(), prompts["tokens_ar"].to_list(), paired),
        "repetitive_share": rows["repetitive"].mean(),
        "repetitive_share_ar": rows["repetitive_ar"].mean(),
    }


def _mark_leakage(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Marks conditions whose differences beyond the floor grow with the budget, or with concurrency."""
    for row in rows:
        grows = (
            [name for name, peers in _ladders(row, rows) if _grows(peers)] if row.get("diverged_beyond_floor") else []
        )
        if grows:
            cause = " and ".join(grows)
            yield {
                **row,
                "leakage_suspected": True,
                "reason": f"{row['reason']}; grows with {cause}: state leakage suspected",
            }
        else:
            yield row


def _ladders(row: dict[str, Any], rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """(differences beyond the floor, requests) by rising budget at one concurrency, and by rising concurrency."""
    same_tp = [other for other in rows if other["tensor_parallelism"] == row["tensor_parallelism"]]
    if row["draft_budget"] is not None:
        trees = [r for r in same_tp if r["draft_budget"] is not None and r["concurrency"] == row["concurrency"]]
        yield "the draft budget", _pool(trees, "draft_budget")
    mine = [r for r in same_tp if r["arm"] == row["arm"] and r["workload"] == row["workload"]]
    yield "concurrency", _pool(mine, "concurrency")


def _pool(rows: list[dict[str, Any]], key: str) -> list[tuple[int, int]]:
    steps = sorted({row[key] for row in rows})
    groups = [[row for row in rows if row[key] == step] for step in steps]
    return [
        (sum(r.get("diverged_beyond_floor") or 0 for r in group), sum(r["requests"] for r in group)) for group in groups
    ]


def _grows(ladder: list[tuple[int, int]]) -> bool:
    p = trend_p_value([faults for faults, _ in ladder], [total for _, total in ladder])
    return p is not None and p < TREND_LEVEL
