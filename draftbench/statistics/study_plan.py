"""The plan as analysis sees it: which cells exist, how they compare and how they are judged."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftbench.errors import ResultsError
from draftbench.labels import arm_order


@dataclass(frozen=True)
class PlannedCell:
    """One cell of the plan with the conditions under which it is measured."""

    session: str
    cell: str
    arm: str
    method: str
    draft_budget: int | None
    verify_width: int | None
    tensor_parallelism: int
    block: int
    session_order: int
    workload: str
    concurrency: int
    refusal: str | None = None

    @property
    def condition(self) -> dict[str, Any]:
        """The seven columns that every table of conditions begins with."""
        return {
            "arm": self.arm,
            "method": self.method,
            "draft_budget": self.draft_budget,
            "verify_width": self.verify_width,
            "tensor_parallelism": self.tensor_parallelism,
            "workload": self.workload,
            "concurrency": self.concurrency,
        }


@dataclass(frozen=True)
class PlannedHypothesis:
    """A claim of the config that the report answers."""

    id: str
    kind: str
    arm: str | None
    baseline: str | None
    statement: str


@dataclass(frozen=True)
class StudyPlan:
    """What analysis needs of plan.json."""

    experiment: str
    primary_arm: str
    margin: float
    confidence: float
    min_decode_tokens: int
    hypotheses: tuple[PlannedHypothesis, ...]
    cells: tuple[PlannedCell, ...]
    refused: tuple[PlannedCell, ...]
    sha256: str | None = None

    @property
    def baseline_arm(self) -> str:
        """The AR arm, the denominator of every speed-up."""
        return next(cell.arm for cell in self.cells if cell.method == "AR")

    @property
    def conditions(self) -> tuple[PlannedCell, ...]:
        """One planned cell a condition, whatever the block: by tp, workload as planned, concurrency, AR first."""
        workloads = list(dict.fromkeys(cell.workload for cell in self.cells))
        once = {tuple(cell.condition.values()): cell for cell in reversed(self.cells)}
        return tuple(
            sorted(
                once.values(),
                key=lambda cell: (
                    cell.tensor_parallelism,
                    workloads.index(cell.workload),
                    cell.concurrency,
                    arm_order(cell.method, cell.draft_budget),
                    cell.arm,
                ),
            )
        )


def read_plan(path: Path) -> StudyPlan:
    """The plan of a results folder; ResultsError where the file is missing or lacks a key."""
    try:
        return parse_plan(json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise ResultsError(f"{path}: there is no plan; run `snakemake plan` first") from error
    except json.JSONDecodeError as error:
        raise ResultsError(f"{path}: not readable as JSON ({error}); run `snakemake plan` again") from error
    except (KeyError, TypeError, StopIteration) as error:
        raise ResultsError(f"{path}: lacks {error}; run `snakemake plan` again") from error


def parse_plan(plan: Mapping[str, Any]) -> StudyPlan:
    """The only place that knows how plan.json is laid out; KeyError where a key is missing."""
    cells = tuple(_planned_cell(session, cell) for session in plan["sessions"] for cell in session["cells"])
    statistics = plan["statistics"]
    return StudyPlan(
        experiment=plan["experiment"],
        primary_arm=plan["primary_arm"],
        margin=statistics["margin"],
        confidence=statistics["confidence"],
        min_decode_tokens=statistics["min_decode_tokens"],
        hypotheses=tuple(
            PlannedHypothesis(h["id"], h["kind"], h.get("arm"), h.get("baseline"), h["statement"])
            for h in plan.get("hypotheses", ())
        ),
        cells=cells,
        refused=_refused_cells(plan.get("refusals", ()), cells),
        sha256=plan.get("plan_sha256"),
    )


def _planned_cell(session: Mapping[str, Any], cell: Mapping[str, Any]) -> PlannedCell:
    return PlannedCell(
        session=session["key"],
        cell=cell["key"],
        arm=session["arm"],
        method=session["method"],
        draft_budget=session["draft_budget"],
        verify_width=session["verify_width"],
        tensor_parallelism=session["tensor_parallelism"],
        block=session["block"],
        session_order=session["order"],
        workload=cell["workload"],
        concurrency=cell["concurrency"],
    )


def _refused_cells(refusals: Any, cells: tuple[PlannedCell, ...]) -> tuple[PlannedCell, ...]:
    """A refused (arm, tp) as one row a (workload, concurrency), so that no planned thing is silently absent."""
    places = sorted({(cell.workload, cell.concurrency) for cell in cells})
    known = {cell.arm: cell for cell in cells}
    refused = []
    for refusal in refusals:
        arm = refusal["arm"]
        twin = known.get(arm)
        refused += [
            PlannedCell(
                session="",
                cell="",
                arm=arm,
                method=refusal.get("method") or (twin.method if twin else "OTHER"),
                draft_budget=refusal.get("draft_budget") or (twin.draft_budget if twin else None),
                verify_width=refusal.get("verify_width") or (twin.verify_width if twin else None),
                tensor_parallelism=refusal["tensor_parallelism"],
                block=0,
                session_order=-1,
                workload=workload,
                concurrency=concurrency,
                refusal=refusal["reason"],
            )
            for workload, concurrency in places
        ]
    return tuple(refused)
