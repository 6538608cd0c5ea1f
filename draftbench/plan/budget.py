"""What fits the time budget, and what is given up for it.

Decided from config, node, facts and ledger alone: measured durations never change the matrix, or a rerun would
measure something else than the run before it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from draftbench.config import Arm, ExperimentConfig
from draftbench.errors import PlanError
from draftbench.matrix import Matrix, expand
from draftbench.plan.assumptions import Span
from draftbench.plan.duration import expected_seconds, timeline
from draftbench.plan.inputs import PlanInputs
from draftbench.plan.refusals import refuse


@dataclass(frozen=True)
class BudgetDecision:
    """The config that fits, what it gave up in that order, and what it is expected to take.

    `wanted` is the expected duration before anything was given up; `limit` None = no time budget.
    """

    config: ExperimentConfig
    given_up: tuple[str, ...]
    wanted: Span
    expected: Span
    limit: float | None

    @property
    def over(self) -> bool:
        """Whether the plan exceeds the budget all the same, which allow_over_budget permits."""
        return self.limit is not None and self.expected.expected > self.limit


def fit_budget(inputs: PlanInputs, ledger: Mapping[int, Sequence[str]]) -> BudgetDecision:
    """Give up whole blocks, last to first, then the highest concurrencies, until the expected duration fits.

    Raises PlanError where even one block at the lowest concurrency does not fit and allow_over_budget is not set;
    where it is set, the config stays as it was written.
    """
    config, limit = inputs.config, inputs.config.time_budget_seconds
    wanted = _duration(inputs, ledger)
    if limit is None or wanted.expected <= limit or config.allow_over_budget:
        return BudgetDecision(config, (), wanted, wanted, limit)
    given_up: list[str] = []
    smallest = wanted
    for reduced, what in reductions(config):
        given_up.append(what)
        smallest = _duration(_with(inputs, reduced), ledger)
        if smallest.expected <= limit:
            return BudgetDecision(reduced, tuple(given_up), wanted, smallest, limit)
    raise PlanError(
        f"{inputs.file_name}: time_budget {config.time_budget} is too short: one block at the lowest concurrency takes "
        f"about {minutes(smallest.expected)}; raise it, drop arms or workloads, or set allow_over_budget"
    )


def reductions(config: ExperimentConfig) -> Iterator[tuple[ExperimentConfig, str]]:
    """Yield ever smaller configs, each with what it gave up in one more step.

    A workload's lowest concurrency is never given up.
    """
    for blocks in range(config.blocks - 1, 0, -1):
        config = config.model_copy(update={"blocks": blocks})
        yield config, f"block {blocks + 1}"
    while True:
        removable = {c for w in config.workloads.values() for c in w.concurrency if c > min(w.concurrency)}
        if not removable:
            return
        config = _without_concurrency(config, max(removable))
        yield config, f"concurrency {max(removable)}"


def _without_concurrency(config: ExperimentConfig, concurrency: int) -> ExperimentConfig:
    workloads = {
        name: workload.model_copy(
            update={
                "concurrency": tuple(
                    value
                    for value in workload.concurrency
                    if value != concurrency or value == min(workload.concurrency)
                )
            }
        )
        for name, workload in config.workloads.items()
    }
    return config.model_copy(update={"workloads": workloads})


def skeleton(inputs: PlanInputs, ledger: Mapping[int, Sequence[str]]) -> Matrix:
    """Expand the matrix with bare keys: same sessions, same order, for estimates before the hashes are known."""
    names = {name: name for name in inputs.config.workloads}

    def why(arm: Arm, tp: int) -> str | None:
        return refuse(inputs, arm, tp)

    return expand(inputs.config, names, lambda arm, tp: {"arm": arm.name, "tp": tp}, why, ledger)


def _duration(inputs: PlanInputs, ledger: Mapping[int, Sequence[str]]) -> Span:
    sessions = skeleton(inputs, ledger).sessions
    return timeline(inputs, sessions, expected_seconds(inputs, sessions)).total


def _with(inputs: PlanInputs, config: ExperimentConfig) -> PlanInputs:
    return PlanInputs(config, inputs.inventory, inputs.target, inputs.drafter, inputs.file_name, inputs.environment)


def minutes(seconds: float) -> str:
    """`2 h 05 min`, `14 min` or `40 s`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours} h {rest:02d} min" if hours else f"{rest} min"
