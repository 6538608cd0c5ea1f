"""Answers to the claims that the config made before the run: supported, refuted or undecided, with the numbers."""

from collections.abc import Callable
from typing import Any

import polars as pl

from draftbench.statistics.speedups import FASTER, NOT_TESTED, SLOWER
from draftbench.statistics.study_plan import PlannedHypothesis, StudyPlan
from draftbench.statistics.table_writing import table_from_rows

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"

Tables = dict[str, pl.DataFrame]
Answer = tuple[str, str]


def hypotheses(plan: StudyPlan, tables: Tables) -> pl.DataFrame:
    """Table hypotheses from tables speedups, budgets and losslessness."""
    rows: list[dict[str, Any]] = []
    for claim in plan.hypotheses:
        answer, evidence = _RULES[claim.kind](plan, claim, tables)
        rows.append({"id": claim.id, "statement": claim.statement, "answer": answer, "evidence": evidence})
    return table_from_rows("hypotheses", rows)


def _arm_faster_than(plan: StudyPlan, claim: PlannedHypothesis, tables: Tables) -> Answer:
    """Supported where every comparison says faster, refuted where one says slower."""
    return _judge_verdicts(_primary(plan, claim, tables["speedups"]))


def _gain_survives_tp(plan: StudyPlan, claim: PlannedHypothesis, tables: Tables) -> Answer:
    """The claim of speed over AR, at the highest tensor parallelism alone."""
    rows = _primary(plan, claim, tables["speedups"])
    degrees = rows["tensor_parallelism"].unique().sort().to_list()
    if len(degrees) < 2:
        return UNDECIDED, "the plan holds one tensor parallelism"
    answer, evidence = _judge_verdicts(rows.filter(pl.col("tensor_parallelism") == degrees[-1]))
    return answer, f"at tensor parallelism {degrees[-1]}: {evidence}"


def _best_budget_inside_sweep(plan: StudyPlan, claim: PlannedHypothesis, tables: Tables) -> Answer:
    """Supported where every selected budget lies inside, refuted where all lie at an end."""
    rows = tables["budgets"].filter(pl.col("best_draft_budget").is_not_null())
    sweep = sorted({cell.draft_budget for cell in plan.cells if cell.draft_budget is not None})
    if rows.is_empty() or len(sweep) < 3:
        return UNDECIDED, "fewer than three budgets" if len(sweep) < 3 else "no budget could be selected"
    inside = [sweep[0] < budget < sweep[-1] for budget in rows["best_draft_budget"]]
    found = ", ".join(
        f"{row['best_draft_budget']} on {row['workload']} at {row['concurrency']}" for row in rows.iter_rows(named=True)
    )
    evidence = f"best budget {found}; the sweep runs from {sweep[0]} to {sweep[-1]}"
    if rows["exploratory"].any():
        return UNDECIDED, f"{evidence}; exploratory, since one block leaves nothing to confirm on"
    if all(inside):
        return SUPPORTED, evidence
    return (UNDECIDED if any(inside) else REFUTED), evidence


def _lossless(plan: StudyPlan, claim: PlannedHypothesis, tables: Tables) -> Answer:
    """Supported where every verdict is identical or within_noise, refuted where one is different."""
    rows = tables["losslessness"]
    if claim.arm is not None:
        rows = rows.filter(pl.col("arm") == claim.arm)
    counts = {verdict: rows.filter(pl.col("verdict") == verdict).height for verdict in rows["verdict"].unique().sort()}
    evidence = ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts.items())
    if counts.get("different"):
        worst = rows.filter(pl.col("verdict") == "different").row(0, named=True)
        return REFUTED, f"{evidence}; for example {worst['arm']} on {worst['workload']}: {worst['reason']}"
    if rows.is_empty() or counts.get("not_shown"):
        return UNDECIDED, evidence or "nothing was compared"
    return SUPPORTED, evidence


def _live_predicted_by_frozen(plan: StudyPlan, claim: PlannedHypothesis, tables: Tables) -> Answer:
    return UNDECIDED, "the plan holds no sessions with live history"


_RULES: dict[str, Callable[[StudyPlan, PlannedHypothesis, Tables], Answer]] = {
    "arm_faster_than": _arm_faster_than,
    "gain_survives_tp": _gain_survives_tp,
    "best_budget_inside_sweep": _best_budget_inside_sweep,
    "lossless": _lossless,
    "live_predicted_by_frozen": _live_predicted_by_frozen,
}


def _primary(plan: StudyPlan, claim: PlannedHypothesis, speedups: pl.DataFrame) -> pl.DataFrame:
    baseline = claim.baseline or plan.baseline_arm
    arm = pl.col("arm") == claim.arm if claim.arm is not None else pl.col("method") == "DDTREE"
    return speedups.filter(pl.col("primary") & arm & (pl.col("baseline") == baseline))


def _judge_verdicts(rows: pl.DataFrame) -> Answer:
    verdicts = rows["verdict"].to_list()
    if not verdicts or all(verdict == NOT_TESTED for verdict in verdicts):
        reasons = [reason for reason in rows["reason"].to_list() if reason]
        return UNDECIDED, f"not tested: {reasons[0]}" if reasons else "the plan holds no such comparison"
    evidence = _ratios(rows)
    if SLOWER in verdicts:
        return REFUTED, evidence
    return (SUPPORTED if set(verdicts) == {FASTER} else UNDECIDED), evidence


def _ratios(rows: pl.DataFrame) -> str:
    """`1.62 (1.41 to 1.86) on code at 1: faster`, one a comparison; several arms or tp are named."""
    named = [name for name in ("arm", "tensor_parallelism") if rows[name].n_unique() > 1]
    parts = []
    for row in rows.iter_rows(named=True):
        who = " ".join(f"tp {row[name]}" if name == "tensor_parallelism" else str(row[name]) for name in named)
        where = f"{row['workload']} at {row['concurrency']}"
        ratio = "no estimate" if row["estimate"] is None else f"{row['estimate']:.2f}"
        interval = "" if row["low_adjusted"] is None else f" ({row['low_adjusted']:.2f} to {row['high_adjusted']:.2f})"
        parts.append(f"{who + ' ' if who else ''}{ratio}{interval} on {where}: {row['verdict'].replace('_', ' ')}")
    return "; ".join(parts)
