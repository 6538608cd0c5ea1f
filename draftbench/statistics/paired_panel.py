"""Rows of one (tensor parallelism, workload, concurrency) as a sessions x turns matrix of logs, ready to be paired."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from draftbench.statistics.random_effects import Floats, LaunchVariance, pooled_launch_variance


@dataclass(frozen=True)
class Place:
    """Where arms are compared with one another: everything but the arm and the block."""

    tensor_parallelism: int
    workload: str
    concurrency: int


@dataclass(frozen=True)
class PairedCells:
    """Log ratios of two arms, averaged over turns: blocks x conversations, and the conversations' shares of turns."""

    cells: Floats
    weights: Floats
    blocks: tuple[int, ...]
    turns: int


@dataclass(frozen=True)
class Panel:
    """Logs of one metric; NaN where a session lacks a turn or the metric is undefined there."""

    sessions: tuple[tuple[str, int], ...]
    logs: Floats
    conversation_of_turn: npt.NDArray[np.int64]

    def pair(self, arm: str, baseline: str) -> PairedCells | None:
        """log(arm / baseline) in the blocks that hold both, over turns that all these blocks have in both arms.

        None where no block or no turn is left: a turn dropped in one block is dropped in all, so that blocks compare
        the same work.
        """
        rows = {session: row for row, session in enumerate(self.sessions)}
        blocks = sorted(block for name, block in self.sessions if name == arm and (baseline, block) in rows)
        if not blocks:
            return None
        differences = np.array([self.logs[rows[arm, b]] - self.logs[rows[baseline, b]] for b in blocks])
        return _average_turns(differences, self.conversation_of_turn, tuple(blocks))

    def restrict(self, arms: Sequence[str]) -> "Panel | None":
        """The panel of these arms alone, in the blocks that hold all of them, over turns that all of these have."""
        held = [{block for name, block in self.sessions if name == arm} for arm in arms]
        blocks = set.intersection(*held)
        chosen = [row for row, (arm, block) in enumerate(self.sessions) if arm in arms and block in blocks]
        logs = self.logs[chosen]
        complete = ~np.isnan(logs).any(axis=0)
        if not chosen or not complete.any():
            return None
        sessions = tuple(self.sessions[row] for row in chosen)
        return Panel(sessions, logs[:, complete], self.conversation_of_turn[complete])

    def launch_variance(
        self, remove_blocks: bool = True, arms: Callable[[str], bool] = lambda arm: True
    ) -> LaunchVariance | None:
        """Launch variance pooled over the arms chosen, from the turns that all their sessions have."""
        chosen = [row for row, (arm, _) in enumerate(self.sessions) if arms(arm)]
        logs = self.logs[chosen]
        complete = ~np.isnan(logs).any(axis=0)
        if not chosen or not complete.any():
            return None
        means = logs[:, complete].mean(axis=1)
        levels = {self.sessions[row]: float(mean) for row, mean in zip(chosen, means, strict=True)}
        return pooled_launch_variance(levels, remove_blocks)


def _average_turns(
    differences: Floats, conversation_of_turn: npt.NDArray[np.int64], blocks: tuple[int, ...]
) -> PairedCells | None:
    complete = ~np.isnan(differences).any(axis=0)
    if not complete.any():
        return None
    codes, conversation = np.unique(conversation_of_turn[complete], return_inverse=True)
    counts = np.bincount(conversation, minlength=len(codes))
    sums = np.zeros((len(blocks), len(codes)))
    np.add.at(sums.T, conversation, differences[:, complete].T)
    return PairedCells(sums / counts, counts / counts.sum(), blocks, int(counts.sum()))


def panel_of(rows: pl.DataFrame, metric: str, min_decode_tokens: int = 0) -> Panel | None:
    """The panel of a metric from rows of table requests of one place; None without rows.

    Rows with fewer than `min_decode_tokens` decode tokens are left out; conversations and turns are the columns.
    """
    if min_decode_tokens:
        rows = rows.filter(pl.col("decode_tokens") >= min_decode_tokens)
    positive = rows.filter(pl.col(metric) > 0)
    if positive.is_empty():
        return None
    wide = (
        positive.with_columns(log=pl.col(metric).log(), session=pl.format("{}|{}", "arm", "block"))
        .pivot(on="session", index=["conversation", "turn"], values="log", aggregate_function="mean")
        .sort("conversation", "turn")
    )
    keys = [column for column in wide.columns if column not in {"conversation", "turn"}]
    names = (key.rsplit("|", 1) for key in keys)
    logs = wide.select(pl.col(keys).fill_null(float("nan"))).to_numpy().T
    codes = wide["conversation"].rank("dense").cast(pl.Int64).to_numpy()
    return Panel(tuple((arm, int(block)) for arm, block in names), np.ascontiguousarray(logs), codes)


def cell_panel(values: Mapping[tuple[str, int], float | None]) -> Panel | None:
    """The panel of a metric with one number a session (arm, block), such as throughput; None without numbers."""
    known = {session: value for session, value in values.items() if value is not None and value > 0}
    if not known:
        return None
    logs = np.log(np.array([[value] for value in known.values()]))
    return Panel(tuple(known), logs, np.zeros(1, dtype=np.int64))


def conversation_times(rows: pl.DataFrame) -> pl.DataFrame:
    """Session time of every conversation: its turns' times summed, tool delays left out; one row as if one turn."""
    return (
        rows.group_by("arm", "block", "conversation")
        .agg(session_time_s=pl.col("turn_time_s").sum())
        .with_columns(turn=pl.lit(0))
    )
