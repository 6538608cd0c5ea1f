"""Every figure of a study, in reading order, and why the others are missing."""

from collections.abc import Callable

from draftbench.figures import level_figures, speed_figures
from draftbench.figures.declaration import Figure, Skipped
from draftbench.figures.study import Study

BUILDERS: tuple[Callable[[Study], list[Figure | Skipped]], ...] = (
    speed_figures.against_ar,
    speed_figures.against_dflash,
    speed_figures.budget_curve,
    speed_figures.decomposition,
    speed_figures.session_time,
    level_figures.yield_by_budget,
    level_figures.acceptance_by_position,
    level_figures.time_to_first_token,
    level_figures.time_per_output_token,
    level_figures.throughput,
    level_figures.losslessness,
    level_figures.divergence_margin,
    level_figures.drift,
)


def build_catalogue(study: Study) -> tuple[list[Figure], list[Skipped]]:
    """(figures that the data allow, the others with their reasons)."""
    entries = [entry for build in BUILDERS for entry in build(study)]
    figures = [entry for entry in entries if isinstance(entry, Figure)]
    return figures, [entry for entry in entries if isinstance(entry, Skipped)]
