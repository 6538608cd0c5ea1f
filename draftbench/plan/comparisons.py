"""The primary comparisons: arm against AR, and each tree against the chain of the same drafter."""

from collections.abc import Sequence
from dataclasses import dataclass

from draftbench.config import Arm
from draftbench.matrix import Matrix


@dataclass(frozen=True)
class Comparison:
    """One ratio that gets an interval and a verdict."""

    arm: str
    baseline: str
    tensor_parallelism: int
    workload: str
    concurrency: int


def primary_comparisons(matrix: Matrix) -> tuple[Comparison, ...]:
    """Every ratio of the family, in running order of tp, workload, concurrency and arm."""
    present: dict[tuple[int, str, int], dict[str, Arm]] = {}
    for session in matrix.sessions:
        for cell in session.cells:
            place = (session.tensor_parallelism, cell.workload, cell.concurrency)
            present.setdefault(place, {})[session.arm.name] = session.arm
    return tuple(
        Comparison(arm.name, baseline, *place)
        for place, arms in sorted(present.items())
        for arm in sorted(arms.values(), key=lambda arm: (arm.method, arm.draft_budget or 0, arm.name))
        for baseline in _baselines(arm, list(arms.values()))
    )


def _baselines(arm: Arm, arms: Sequence[Arm]) -> list[str]:
    wanted = {"AR": (), "DDTREE": ("AR", "DFLASH")}.get(arm.method, ("AR",))
    return [other.name for method in wanted for other in arms if other.method == method]
