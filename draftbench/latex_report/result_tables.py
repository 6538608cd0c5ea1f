"""Tables of the printed report: speed-ups with verdict marks, levels, losslessness, cells."""

from collections.abc import Sequence
from typing import Any

import polars as pl
from pylatex import NoEscape

from draftbench.figures import numbers
from draftbench.figures.latex_text import breakable, code, escape
from draftbench.figures.study import Study
from draftbench.labels import workload_label
from draftbench.latex_report.blocks import long_table
from draftbench.sentences import claim_of, interval_of, main_rows

Row = dict[str, Any]
MARKS = {
    "faster": r"$\blacktriangle$",
    "slower": r"$\blacktriangledown$",
    "inconclusive": r"$\circ$",
    "not_tested": "--",
    "missing": "",
}
ARMS_A_TABLE = 6
_DASH = r"\textcolor{black!45}{n/a}"
LEVEL_TITLES = {
    "ttft_ms": "TTFT (ms)",
    "tpot_ms": "TPOT (ms)",
    "throughput": "Output (tokens/s)",
    "yield": "Yield (tokens/step)",
    "acceptance_length": "Acceptance length",
    "step_time_ms": "Step (ms)",
    "session_time_s": "Session (s)",
}
ARM_COLUMN = r">{\raggedright\arraybackslash}p{2.6cm}"


def speedup_tables(study: Study, baseline_method: str, caption: str) -> list[NoEscape]:
    """Conditions by arms: estimate, verdict mark, and the verdict's interval beneath."""
    rows = main_rows(study, baseline_method=baseline_method)
    if baseline_method == "DFLASH":
        rows = [row for row in rows if row["method"] == "DDTREE"]
    held = {row["arm"] for row in rows}
    arms = [name for name, _, _ in study.arms if name in held]
    tables = -(-len(arms) // ARMS_A_TABLE)
    chunks = [arms[place * len(arms) // tables : (place + 1) * len(arms) // tables] for place in range(tables)]
    return [_matrix(study, rows, chunk, caption) for chunk in chunks]


def _matrix(study: Study, rows: Sequence[Row], arms: Sequence[str], caption: str) -> NoEscape:
    several = study.table("cells")["tensor_parallelism"].n_unique() > 1
    found = {(*_condition(row), row["arm"]): row for row in rows}
    lines = []
    for condition in sorted({_condition(row) for row in rows}):
        tp, workload, concurrency = condition
        head = [f"TP{tp}"] if several else []
        head += [escape(workload_label(workload)), str(concurrency)]
        lines.append([*head, *(_stacked(found.get((*condition, arm))) for arm in arms)])
    width = 11.6 / max(len(arms), 5)
    arm_column = rf">{{\centering\arraybackslash}}p{{{width:.2f}cm}}"
    columns = f"@{{}}{'l' if several else ''}lr{arm_column * len(arms)}@{{}}"
    header = [*(["TP"] if several else []), "Workload", "c", *(study.label(arm) for arm in arms)]
    return long_table(columns, header, lines, caption)


def _condition(row: Row) -> tuple[int, str, int]:
    return row["tensor_parallelism"], row["workload"], row["concurrency"]


def _stacked(row: Row | None) -> str:
    if row is None or row["estimate"] is None:
        return _DASH
    words = numbers.interval(*interval_of(row), as_ratio=True) or "no interval"
    return rf"{numbers.ratio(row['estimate'])}\,{MARKS[claim_of(row)]}\newline{{\scriptsize {words}}}"


def level_table(study: Study) -> NoEscape | None:
    """TTFT, TPOT and throughput of every arm and condition."""
    levels = study.table("levels").filter(pl.col("estimate").is_not_null())
    metrics = [name for name in LEVEL_TITLES if name in set(levels["metric"].to_list())]
    shown = [name for name in metrics if name in {"ttft_ms", "tpot_ms", "throughput", "yield"}]
    if not shown:
        return None
    found = {(*_condition(row), row["arm"], row["metric"]): row for row in levels.to_dicts()}
    lines = []
    for tp, workload, concurrency in sorted({key[:3] for key in found}):
        for arm, _, _ in study.arms:
            cells = [found.get((tp, workload, concurrency, arm, metric)) for metric in shown]
            if any(cells):
                head = [escape(workload_label(workload)), str(concurrency), str(tp), escape(study.label(arm))]
                lines.append([*head, *(_level(cell) for cell in cells)])
    columns = f"@{{}}lrr{ARM_COLUMN}{'l' * len(shown)}@{{}}"
    header = ["Workload", "c", "TP", "Arm", *(LEVEL_TITLES[name] for name in shown)]
    caption = f"Levels with {numbers.confidence_label(study.confidence)} intervals in brackets."
    return long_table(columns, header, lines, caption, size="scriptsize")


def _level(row: Row | None) -> str:
    if row is None:
        return _DASH
    words = numbers.interval(row["low"], row["high"])
    return numbers.number(row["estimate"]) + (f" ({words})" if words else "")


def losslessness_table(study: Study) -> NoEscape | None:
    """Identical requests, margins and verdicts."""
    rows = study.table("losslessness").to_dicts()
    if not rows:
        return None
    order = [name for name, _, _ in study.arms]
    lines = [
        [
            escape(workload_label(row["workload"])),
            str(row["concurrency"]),
            str(row["tensor_parallelism"]),
            escape(study.label(row["arm"])),
            f"{row['identical']} of {row['requests']}",
            _or_dash(row["margin_max"]),
            _or_dash(row["floor_margin_max"]),
            _or_dash(row["length_ratio"]),
            escape((row["verdict"] or "not_shown").replace("_", " ")),
        ]
        for row in sorted(rows, key=lambda row: (*_condition(row), order.index(row["arm"])))
    ]
    columns = f"@{{}}lrr{ARM_COLUMN}rrrrl@{{}}"
    header = ["Workload", "c", "TP", "Arm", "Identical", "Margin", "Floor", "Length ratio", "Verdict"]
    caption = (
        "Greedy output against AR's of the same block: requests with the same tokens, largest margin at a first "
        "difference and its noise floor (nats), mean output length against AR's."
    )
    return long_table(columns, header, lines, caption, size="scriptsize")


def _or_dash(value: float | None) -> str:
    return _DASH if value is None else numbers.number(value)


def recommendation_table(study: Study) -> NoEscape | None:
    """Best arm of every condition with its held-out speed-up."""
    rows = study.table("budgets").sort("tensor_parallelism", "workload", "concurrency").to_dicts()
    if not rows:
        return None
    lines = [
        [
            escape(workload_label(row["workload"])),
            str(row["concurrency"]),
            str(row["tensor_parallelism"]),
            escape(study.label(row["best_arm"])) if row["best_arm"] else _DASH,
            escape(numbers.estimate(row["held_out_speedup"], row["low"], row["high"], row["reason"], as_ratio=True)),
            "selected and judged on the same data" if row["exploratory"] else "held out",
        ]
        for row in rows
    ]
    columns = rf"@{{}}lrr{ARM_COLUMN}>{{\raggedright\arraybackslash}}p{{5cm}}l@{{}}"
    header = ["Workload", "c", "TP", "Highest estimate", "Speed-up over AR", "How it was judged"]
    return long_table(columns, header, lines, "The arm with the highest speed-up over AR in every condition.")


def failure_table(study: Study) -> NoEscape | None:
    """Every failure record in one line each."""
    rows = study.table("failures").to_dicts()
    if not rows:
        return None
    lines = [
        [
            escape(study.label(row["arm"] or "not known")),
            escape(_where(row)),
            breakable(row["failure_class"] or "not known"),
            breakable(row["message"] or "no message"),
        ]
        for row in rows
    ]
    wide = r">{\raggedright\arraybackslash}p"
    columns = f"@{{}}{ARM_COLUMN}{wide}{{3.2cm}}{wide}{{2.3cm}}{wide}{{6.6cm}}@{{}}"
    return long_table(
        columns, ("Arm", "Where", "Class", "Message"), lines, "Failures; report.html holds the log tails."
    )


def _where(row: Row) -> str:
    place = f", {workload_label(row['workload'])}, c = {row['concurrency']}" if row["workload"] else ""
    return f"{row['stage']}{place}"


def cell_table(study: Study) -> NoEscape | None:
    """Every cell of the plan, measured or not."""
    rows = study.table("cells").sort("session_order", "workload", "concurrency").to_dicts()
    if not rows:
        return None
    columns = rf"@{{}}rrl{ARM_COLUMN}rlrrrrr@{{}}"
    header = (
        "Order", "Block", "Workload", "Arm", "c", "Status", "Requests", "Tokens/s", "TTFT ms", "TPOT ms", "Yield",
    )  # fmt: skip
    lines = [_cell_line(study, row) for row in rows]
    return long_table(
        columns, header, lines, "Every cell of the plan (medians of a cell, pooled yield).", size="scriptsize"
    )


def _cell_line(study: Study, row: Row) -> list[str]:
    rate = row["throughput_window"] if row["throughput_window"] is not None else row["throughput_makespan"]
    arm = study.label(row["arm"])
    return [
        str(row["session_order"]),
        str(row["block"]),
        escape(workload_label(row["workload"])),
        escape(f"{arm}, TP{row['tensor_parallelism']}" if (row["tensor_parallelism"] or 1) > 1 else arm),
        str(row["concurrency"]),
        escape(row["status"]),
        _DASH if row["requests"] is None else f"{row['requests']:,}",
        *(_or_dash(value) for value in (rate, row["ttft_p50_ms"], row["tpot_p50_ms"], row["yield"])),
    ]


def crosscheck_table(study: Study) -> NoEscape | None:
    """The primary arm's rows in other tools' definitions; tables/crosscheck holds every arm."""
    frame = study.table("crosscheck").filter(
        pl.col("value").is_not_null() & (pl.col("arm") == (study.primary_arm or ""))
    )
    lowest = frame.group_by("workload").agg(pl.col("concurrency").min(), pl.col("tensor_parallelism").min())
    rows = frame.join(lowest, on=["workload", "concurrency", "tensor_parallelism"], how="semi").to_dicts()
    if not rows:
        return None
    lines = [
        [
            escape(workload_label(row["workload"])),
            str(row["concurrency"]),
            escape(study.label(row["arm"])),
            breakable(row["definition"]),
            code(row["metric"]),
            f"{numbers.number(row['value'])} {escape(row['unit'] or '')}",
        ]
        for row in rows
    ]
    columns = rf"@{{}}lr{ARM_COLUMN}l>{{\raggedright\arraybackslash}}p{{6.2cm}}r@{{}}"
    header = ("Workload", "c", "Arm", "Definition", "Metric", "Value")
    caption = "The primary arm under other tools' definitions, from the same rows (tables/crosscheck.csv has all arms)."
    return long_table(columns, header, lines, caption, size="scriptsize")
