"""Everything a figure or report may read: the tables, the plan and the provenance of one results folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from draftbench.errors import ResultsError
from draftbench.figures.declaration import DASHES, MARKERS, Style
from draftbench.figures.provenance_summary import summarize_provenance
from draftbench.labels import arm_colours, arm_label, arm_order
from draftbench.layout import Layout
from draftbench.tables import TABLES

_TYPES: dict[str, pl.DataType] = {
    "String": pl.String(),
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "Boolean": pl.Boolean(),
    "List(Int32)": pl.List(pl.Int32()),
}
REPORT_TABLES = (
    "cells",
    "speedups",
    "decomposition",
    "levels",
    "acceptance",
    "losslessness",
    "budgets",
    "hypotheses",
    "failures",
    "deviations",
    "crosscheck",
)
"""What figures and reports read; the tables of single turns and requests are too large for that."""


@dataclass(frozen=True)
class Study:
    """One experiment's results, read-only; a table that was not written is empty and named in `absent`."""

    tables: Mapping[str, pl.DataFrame]
    plan: Mapping[str, Any] = field(default_factory=dict)
    plan_markdown: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    def table(self, name: str) -> pl.DataFrame:
        """One of REPORT_TABLES."""
        return self.tables[name]

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return str(self.plan.get("experiment") or "unnamed")

    @property
    def question(self) -> str:
        """What the study answers."""
        return str(self.plan.get("question") or "")

    @property
    def confidence(self) -> float:
        """Level of every interval."""
        return float((self.plan.get("statistics") or {}).get("confidence", 0.95))

    @property
    def margin(self) -> float:
        """Relative speed difference that matters, as the plan states it."""
        return float((self.plan.get("statistics") or {}).get("margin", 0.03))

    @property
    def arms(self) -> list[tuple[str, str, int | None]]:
        """(name, method, draft budget) of every arm that any table names, in display order."""
        found: dict[str, tuple[str, int | None]] = {}
        for name in ("cells", "levels", "speedups", "losslessness", "acceptance", "decomposition"):
            for arm, method, budget in self.table(name).select("arm", "method", "draft_budget").unique().iter_rows():
                if arm is not None:
                    found.setdefault(arm, (method, budget))
        triples = [(arm, method, budget) for arm, (method, budget) in found.items()]
        return sorted(triples, key=lambda arm: (*arm_order(arm[1], arm[2]), arm[0]))

    @property
    def primary_arm(self) -> str | None:
        """The arm of the headline, named before the run."""
        name = self.plan.get("primary_arm")
        return str(name) if name else None

    def method(self, arm: str) -> str | None:
        """AR, DFLASH, ...; None for an arm without any row."""
        return next((method for name, method, _ in self.arms if name == arm), None)

    def names_of(self, method: str) -> list[str]:
        """Arms of one method, in display order."""
        return [name for name, arm_method, _ in self.arms if arm_method == method]

    def label(self, arm: str) -> str:
        """Display name of an arm, also of one that never ran."""
        return next((arm_label(*triple) for triple in self.arms if triple[0] == arm), arm)

    def arm_styles(self) -> dict[str, Style]:
        """Label, colour, marker and dash of every arm: the same in every figure."""
        colours = arm_colours(self.arms)
        return {
            name: Style(
                arm_label(name, method, budget),
                colours[name],
                MARKERS[place % len(MARKERS)],
                DASHES[place % len(DASHES)],
                filled=place < len(MARKERS),
            )
            for place, (name, method, budget) in enumerate(self.arms)
        }


def empty_table(name: str) -> pl.DataFrame:
    """The table's columns without rows."""
    return pl.DataFrame(schema={column.name: _TYPES[column.type] for column in TABLES[name]})


def read_study(layout: Layout) -> Study:
    """Read tables, plan and provenance of a results folder; whatever is missing is empty.

    Raises ResultsError for a file that is there but unreadable.
    """
    present = [name for name in REPORT_TABLES if layout.table(name).exists()]
    tables = {name: _read_table(layout, name) if name in present else empty_table(name) for name in REPORT_TABLES}
    plan = _read_json(layout.plan_json)
    return Study(
        tables=tables,
        plan=plan,
        plan_markdown=layout.plan_markdown.read_text(encoding="utf-8") if layout.plan_markdown.exists() else "",
        provenance=summarize_provenance(layout, plan),
        absent=frozenset(REPORT_TABLES) - frozenset(present),
    )


def _read_table(layout: Layout, name: str) -> pl.DataFrame:
    path = layout.table(name)
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ResultsError(f"{path}: cannot be read as Parquet ({error}); run the statistics rule again") from None
    missing = [column.name for column in TABLES[name] if column.name not in frame.columns]
    if missing:
        raise ResultsError(f"{path}: lacks the column {missing[0]!r}; it was written by another version, delete it")
    return frame.select(pl.col(column.name).cast(_TYPES[column.type]) for column in TABLES[name])


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: is not valid JSON ({error}); delete it and run again") from None
    if not isinstance(content, dict):
        raise ResultsError(f"{path}: must hold an object; delete it and run again")
    return content
