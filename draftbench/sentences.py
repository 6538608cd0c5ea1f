"""Sentences about results, made from verdicts and intervals: none claims more than its interval shows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from draftbench.figures import numbers
from draftbench.figures.speed_figures import SPEED_MEASURES
from draftbench.figures.study import Study
from draftbench.labels import workload_label

Row = dict[str, Any]
Claim = Literal["faster", "slower", "inconclusive", "not_tested", "missing"]
MOST_LISTED = 4
MOST_DEVIATIONS = 12
_VERDICT_WORDS = {"faster": "faster", "slower": "slower", "inconclusive": "not decided", "not_tested": "not tested"}


@dataclass(frozen=True)
class Conclusion:
    """A heading and what stands under it."""

    heading: str
    sentences: tuple[str, ...]


def claim_of(row: Row) -> Claim:
    """The verdict, weakened where the row's own interval does not carry it."""
    if row["estimate"] is None:
        return "missing"
    low, high = interval_of(row)
    if low is None or high is None or row["verdict"] in {None, "not_tested"}:
        return "not_tested"
    if row["verdict"] == "faster" and low > 1:
        return "faster"
    if row["verdict"] == "slower" and high < 1:
        return "slower"
    return "inconclusive"


def verdict_words(row: Row) -> str:
    """The claim as a table shows it."""
    return _VERDICT_WORDS.get(claim_of(row), "no result")


def interval_of(row: Row) -> tuple[float | None, float | None]:
    """The interval that the verdict uses: the adjusted one where there is one."""
    if row["low_adjusted"] is not None and row["high_adjusted"] is not None:
        return row["low_adjusted"], row["high_adjusted"]
    return row["low"], row["high"]


def interval_of_these(row: Row) -> tuple[float | None, float | None]:
    """The interval that takes the prompts as fixed: the adjusted one where there is one."""
    if row["low_adjusted_these_prompts"] is not None and row["high_adjusted_these_prompts"] is not None:
        return row["low_adjusted_these_prompts"], row["high_adjusted_these_prompts"]
    return row["low_these_prompts"], row["high_these_prompts"]


def claim_of_these(row: Row) -> Claim:
    """As `claim_of`, for the measured prompts alone."""
    low, high = interval_of_these(row)
    fixed = {
        **row,
        "verdict": row["verdict_these_prompts"],
        "low_adjusted": low,
        "high_adjusted": high,
    }
    return claim_of(fixed) if low is not None else "not_tested"


def place_words(study: Study, row: Row) -> str:
    """`code at concurrency 4 with TP8`, as little of it as tells the conditions apart."""
    cells = study.table("cells")
    label = workload_label(row["workload"])
    words = label if label.isupper() else label.lower()
    same_load = cells.filter(pl.col("workload") == row["workload"])["concurrency"].n_unique() > 1
    if same_load or row["concurrency"] > 1:
        words += f" at concurrency {row['concurrency']}"
    if cells["tensor_parallelism"].n_unique() > 1:
        words += f" with TP{row['tensor_parallelism']}"
    return words


def comparison(study: Study, row: Row) -> str:
    """One full sentence about an arm against its baseline in one condition."""
    arm, baseline, place = study.label(row["arm"]), study.label(row["baseline"]), place_words(study, row)
    claim, evidence = claim_of(row), f"({_evidence(study, row)})"
    effect = _effect(row, baseline)
    if claim == "missing":
        return f"There is no result for {arm} against {baseline} on {place}: {_reason(row)}."
    if claim == "inconclusive":
        return _undecided(study, row, arm, baseline, place, effect)
    if claim == "not_tested":
        return f"In what was measured on {place}, {arm} {_past(effect)}, but this was not tested: {_reason(row)}."
    return f"On {place}, {arm} {effect} {evidence}: {claim}."


def _undecided(study: Study, row: Row, arm: str, baseline: str, place: str, effect: str) -> str:
    """Undecided for prompts like these; the measured prompts alone may still be decided."""
    these, size = claim_of_these(row), numbers.sample_size(row["blocks"], row["conversations"])
    if these in {"faster", "slower"}:
        ends = numbers.interval(*interval_of_these(row), as_ratio=True)
        wide = numbers.interval(*interval_of(row), as_ratio=True)
        return (
            f"On {place}, {arm} {effect} for the prompts measured ({numbers.confidence_label(study.confidence)} "
            f"interval {ends}, {size}): {these}; for prompts like these it is not decided ({wide})."
        )
    return (
        f"Whether {arm} is faster or slower than {baseline} on {place} is not decided: "
        f"the estimate is {numbers.ratio(row['estimate'])} times ({_evidence(study, row)})."
    )


def _effect(row: Row, baseline: str) -> str:
    value = numbers.ratio(row["estimate"])
    return {
        "throughput": f"gives {value} times the throughput of {baseline}",
        "session_time": f"finishes conversations {value} times as fast as {baseline}",
        "ttft": f"brings the first token {value} times as fast as {baseline}",
    }.get(row["measure"], f"decodes {value} times as fast as {baseline}")


def _past(effect: str) -> str:
    verb, rest = effect.split(" ", 1)
    return {"gives": "gave", "finishes": "finished", "brings": "brought", "decodes": "decoded"}[verb] + f" {rest}"


def _evidence(study: Study, row: Row) -> str:
    low, high = interval_of(row)
    words = numbers.interval(low, high, as_ratio=True)
    level = numbers.confidence_label(study.confidence)
    size = numbers.sample_size(row["blocks"], row["conversations"])
    return ", ".join(part for part in (f"{level} interval {words}" if words else "no interval", size) if part)


def _reason(row: Row) -> str:
    return (row["reason"] or "no reason was recorded").rstrip(".")


def main_rows(study: Study, arm: str | None = None, baseline_method: str = "AR") -> list[Row]:
    """Speed comparisons (decode time at concurrency 1, throughput above) against a method's arms."""
    frame = study.table("speedups").filter(
        pl.col("measure").is_in(SPEED_MEASURES) & pl.col("baseline").is_in(study.names_of(baseline_method))
    )
    if arm is not None:
        frame = frame.filter(pl.col("arm") == arm)
    return frame.sort("tensor_parallelism", "workload", "concurrency").to_dicts()


def answer(study: Study) -> str:
    """The answer to the study's question in one sentence, for the title page."""
    arm = study.primary_arm
    if arm is None:
        return "No answer: the plan names no primary arm."
    if study.method(arm) == "AR":
        return "The primary arm is AR itself, so there is nothing to compare."
    rows = main_rows(study, arm)
    groups = {kind: [row for row in rows if _answer_kind(row) == kind] for kind in _CLAUSES}
    if not any(groups[kind] for kind in _CLAUSES if kind != "missing"):
        return f"No answer: {study.label(arm)} has no valid comparison with AR ({why_missing(study, arm)})."
    clauses = [_clause(study, kind, groups[kind]) for kind in _CLAUSES if groups[kind]]
    return f"On this machine {study.label(arm)} {'; it '.join(clauses)}{_brackets(study, rows)}."


_CLAUSES = {
    "faster": "is faster than AR",
    "faster_here": "is faster than AR for the prompts measured, which is not shown for prompts like these,",
    "slower": "is slower than AR",
    "slower_here": "is slower than AR for the prompts measured, which is not shown for prompts like these,",
    "inconclusive": "is not shown to be faster or slower than AR",
    "not_tested": "was measured against AR without a test",
    "missing": "has no result",
}


def _answer_kind(row: Row) -> str:
    claim, here = claim_of(row), claim_of_these(row)
    return f"{here}_here" if claim == "inconclusive" and here in {"faster", "slower"} else claim


def _clause(study: Study, kind: str, rows: Sequence[Row]) -> str:
    if kind == "missing":
        return f"{_CLAUSES[kind]} on {listed(place_words(study, row) for row in rows)} ({_reason(rows[0])})"
    if len(rows) > MOST_LISTED:
        values = [row["estimate"] for row in rows]
        return f"{_CLAUSES[kind]} in {len(rows)} conditions ({_span(values)} times AR's speed)"
    here = kind.endswith("_here")
    fast = "" if kind.startswith(("faster", "slower")) else " as fast"
    texts = (f"on {place_words(study, row)} ({_value_and_interval(row, here, fast)})" for row in rows)
    return f"{_CLAUSES[kind]} {listed(texts)}"


def _value_and_interval(row: Row, here: bool, fast: str) -> str:
    words = numbers.interval(*(interval_of_these(row) if here else interval_of(row)), as_ratio=True)
    return f"{numbers.ratio(row['estimate'])} times{fast}{f', {words}' if words else ''}"


def _brackets(study: Study, rows: Sequence[Row]) -> str:
    """What the brackets of the answer hold, said once."""
    blocks = {row["blocks"] for row in rows if row["blocks"] is not None}
    size = numbers.counted(max(blocks), "block") if blocks else None
    tested = any(claim_of(row) in {"faster", "slower", "inconclusive"} for row in rows)
    kind = f"{numbers.confidence_label(study.confidence)} intervals" if tested else "no intervals"
    return f" ({', '.join(part for part in (kind, size) if part)})"


def why_missing(study: Study, arm: str) -> str:
    """Why an arm has no results: refusal, failure or unmeasured cells."""
    for refusal in study.plan.get("refusals") or []:
        if refusal.get("arm") == arm:
            return str(refusal.get("reason", "refused by the plan")).rstrip(".")
    failures = study.table("failures").filter(pl.col("arm") == arm)
    if failures.height:
        first = failures.row(0, named=True)
        return f"{first['failure_class']} at {first['stage']}: {first['message']}".rstrip(".")
    return "its cells were not measured"


def listed(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    items = list(parts)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def conclusions(study: Study) -> list[Conclusion]:
    """What to run, how much faster, where not, and how sure; headings without a sentence are left out."""
    found = [
        Conclusion("What to run", tuple(_recommendations(study))),
        Conclusion("How much faster", tuple(_primary_sentences(study))),
        Conclusion("Trees against the chain", tuple(_chain_sentences(study))),
        Conclusion("Where not", tuple(_where_not(study))),
        Conclusion("Is the output still the model's own", tuple(losslessness(study))),
        Conclusion("How sure", tuple(_how_sure(study))),
    ]
    return [entry for entry in found if entry.sentences]


def _recommendations(study: Study) -> list[str]:
    rows = main_rows(study)
    decided: dict[str, list[str]] = {}
    for row in study.table("budgets").sort("tensor_parallelism", "workload", "concurrency").to_dicts():
        here = [other for other in rows if _same_condition(other, row)]
        place = place_words(study, row)
        evidence = f" ({_held_out(row)})" if row["best_arm"] is not None else ""
        decided.setdefault(_recommendation(study, row, here), []).append(place + evidence)
    return [f"{text} {_on_places(places)}." for text, places in decided.items()]


def _same_condition(one: Row, other: Row) -> bool:
    return all(one[name] == other[name] for name in ("tensor_parallelism", "workload", "concurrency"))


def _on_places(places: Sequence[str]) -> str:
    if len(places) <= 2 * MOST_LISTED:
        return f"on {listed(places)}"
    return f"in {len(places)} conditions, which the table of recommendations lists"


def _recommendation(study: Study, budget: Row, here: Sequence[Row]) -> str:
    if budget["best_arm"] is None:
        return f"No arm can be recommended ({_reason(budget)})"
    if study.method(budget["best_arm"]) == "AR":
        return "Stay with AR, which had the best estimate itself,"
    return _recommended_arm(study, budget, here)


def _recommended_arm(study: Study, budget: Row, here: Sequence[Row]) -> str:
    arm = study.label(budget["best_arm"])
    claim = next((claim_of(row) for row in here if row["arm"] == budget["best_arm"]), "missing")
    if budget["exploratory"] or claim == "not_tested":
        return f"{arm} had the highest estimate, which data that also selected it cannot confirm,"
    if claim == "faster":
        return f"Run {arm}"
    if any(row["arm"] == budget["best_arm"] and claim_of_these(row) == "faster" for row in here):
        return f"{arm} is faster than AR for the prompts measured, which is not shown for prompts like these,"
    if any(claim_of(row) == "faster" for row in here):
        return f"{arm} had the highest estimate without being shown to be faster than AR, while another arm is,"
    return f"Stay with AR: no arm is shown to be faster, though {arm} had the highest estimate,"


def _held_out(row: Row) -> str:
    kind = "exploratory" if row["exploratory"] else "held out"
    return f"{kind} {numbers.estimate(row['held_out_speedup'], row['low'], row['high'], row['reason'], as_ratio=True)}"


def _primary_sentences(study: Study) -> list[str]:
    if study.primary_arm is None:
        return []
    rows = main_rows(study, study.primary_arm)
    if not rows:
        return [f"{study.label(study.primary_arm)} has no comparison with AR: {why_missing(study, study.primary_arm)}."]
    if len(rows) > 2 * MOST_LISTED:
        return [_tally(study, rows, f"{study.label(study.primary_arm)} against AR")]
    return [comparison(study, row) for row in rows]


def _chain_sentences(study: Study) -> list[str]:
    rows = [row for row in main_rows(study, baseline_method="DFLASH") if row["method"] == "DDTREE"]
    if not rows:
        trees, chains = study.names_of("DDTREE"), study.names_of("DFLASH")
        return [f"Draft trees were not compared with DFlash: {_no_pair(study)}."] if trees or chains else []
    primary = [row for row in rows if row["arm"] == study.primary_arm]
    tally = _tally(study, rows, "All trees against DFlash with the same drafter")
    return [comparison(study, row) for row in primary[: 2 * MOST_LISTED]] + [tally]


def _no_pair(study: Study) -> str:
    for failure in study.table("failures").to_dicts():
        if study.method(failure["arm"]) in {"DFLASH", "DDTREE"}:
            return f"{study.label(failure['arm'])} failed ({failure['failure_class']})"
    return "one of the two has no valid cell in a common block"


def _tally(study: Study, rows: Sequence[Row], what: str) -> str:
    parts = []
    for claim, words in (("faster", "faster"), ("slower", "slower"), ("inconclusive", "not decided"),
                         ("not_tested", "not tested"), ("missing", "without a result")):  # fmt: skip
        chosen = [row for row in rows if claim_of(row) == claim]
        if chosen:
            values = [row["estimate"] for row in chosen if row["estimate"] is not None]
            parts.append(f"{len(chosen)} {words}{f' ({_span(values)})' if values else ''}")
    return f"{what}, {numbers.counted(len(rows), 'comparison')}: {listed(parts)}."


def _span(values: Sequence[float]) -> str:
    low, high = numbers.ratio(min(values)), numbers.ratio(max(values))
    return f"estimate {low}" if low == high else f"estimates {low} to {high}"


def _where_not(study: Study) -> list[str]:
    rows = main_rows(study)
    if not rows:
        return []
    sentences = [_tally(study, rows, "All arms against AR")]
    slower = [row for row in rows if claim_of(row) == "slower"]
    if 0 < len(slower) <= 2 * MOST_LISTED:
        sentences += [comparison(study, row) for row in slower if row["arm"] != study.primary_arm]
    return sentences


def losslessness(study: Study) -> list[str]:
    """One sentence a verdict, and the reason of every verdict that is not good."""
    frame = study.table("losslessness")
    if frame.is_empty():
        return ["Whether the output is still the model's own was not shown: no request was compared with AR's."]
    words = {
        "identical": "identical to AR's",
        "within_noise": "different from AR's only within numerical noise",
        "different": "different from AR's beyond numerical noise",
        "not_shown": "not shown to be AR's",
    }
    sentences = []
    for verdict, text in words.items():
        rows = frame.filter(pl.col("verdict") == verdict).to_dicts()
        if rows:
            arms = listed(dict.fromkeys(study.label(row["arm"]) for row in rows))
            same, total = sum(row["identical"] or 0 for row in rows), sum(row["requests"] or 0 for row in rows)
            sentences.append(
                f"In {numbers.counted(len(rows), 'condition')} ({arms}) the output is {text}: "
                f"{same:,} of {total:,} requests have exactly the same tokens."
            )
            if verdict in {"different", "not_shown"}:
                reasons = dict.fromkeys(_reason(row) for row in rows)
                sentences += [f"The reason: {reason}." for reason in list(reasons)[:MOST_LISTED]]
    return sentences


def deviations(study: Study) -> list[str]:
    """Where the run left the plan, at most a page of it."""
    texts = [
        f"{row['what']}: planned {row['planned']}, happened {row['happened']}."
        for row in study.table("deviations").to_dicts()
    ]
    more = len(texts) - MOST_DEVIATIONS
    rest = [f"And {more:,} more; tables/deviations.csv lists them all."] if more > 0 else []
    return texts[:MOST_DEVIATIONS] + rest


def _how_sure(study: Study) -> list[str]:
    cells = study.table("cells")
    counts = {status: cells.filter(pl.col("status") == status).height for status in ("measured", "failed", "missing")}
    blocks = cells.filter(pl.col("status") == "measured")["block"].n_unique()
    tested = any(claim_of(row) in {"faster", "slower", "inconclusive"} for row in main_rows(study))
    level, margin = numbers.confidence_label(study.confidence), numbers.percent(study.margin)
    sentences = [
        f"{numbers.counted(counts['measured'], 'cell')} of {cells.height:,} measured in "
        f"{numbers.counted(blocks, 'block')}; {counts['failed']} failed, {counts['missing']} missing."
    ]
    if not tested:
        sentences.append(
            "No comparison has two blocks, and one block shows no variation between launches, "
            "so there are no intervals and no verdicts."
        )
    else:
        sentences.append(
            f"Faster and slower mean that the whole {level} interval lies beyond the stated margin of {margin}, "
            "with the level adjusted for the number of primary comparisons."
        )
    if study.table("deviations").height:
        sentences.append(f"The run left the plan in {numbers.counted(study.table('deviations').height, 'point')}.")
    return sentences
