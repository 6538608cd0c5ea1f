"""Inference for a paired log ratio when blocks and conversations are crossed (decision 10).

A launch shifts every conversation of its block, and a conversation keeps its own log ratio in every block, so neither
rows nor blocks nor conversations alone are independent replicates.
Model: y_bc = mean + block_b + conversation_c + rest_bc, with the launch part estimated from all arms of one tensor
parallelism and degrees of freedom after Satterthwaite (1946).
A nested bootstrap covers only 65 to 88 % at 2 to 3 launches; see benchmarks/coverage.py for what this covers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

ONE_BLOCK = "one block: how much launches differ cannot be estimated"
ONE_CONVERSATION = "one conversation: how much prompts differ cannot be estimated"


@dataclass(frozen=True)
class Component:
    """A variance component's share in the variance of the estimate; `sign` is -1 where it is subtracted."""

    variance: float
    degrees_of_freedom: float
    sign: int = 1

    def __post_init__(self) -> None:
        assert self.variance >= 0
        assert self.degrees_of_freedom > 0


@dataclass(frozen=True)
class Spread:
    """Variance of an estimate and its degrees of freedom.

    `at_least` is the spread of a narrower claim: with more variance but also more degrees of freedom the interval could
    come out shorter than that one, which no wider claim may.
    """

    variance: float
    degrees_of_freedom: float
    at_least: "Spread | None" = field(default=None, compare=False)


@dataclass(frozen=True)
class LogEstimate:
    """A mean log ratio with its two spreads: prompts taken as fixed, and prompts as a sample of such prompts."""

    mean: float
    these_prompts: Spread | None
    like_these: Spread | None
    blocks: int
    conversations: int
    reason: str | None = None

    @property
    def like_these_in_family(self) -> Spread | None:
        """`like_these` for the far tails of a family's levels: no more degrees of freedom than the conversations have.

        Satterthwaite's are estimated with the spread, too large just where the spread came out too small; at 5 % that
        is harmless, at a family's levels false verdicts reached 8 % in simulation (benchmarks/coverage.py), capped 5 %.
        """
        if self.like_these is None:
            return None
        freedom = min(self.like_these.degrees_of_freedom, self.conversations - 1)
        return replace(self.like_these, degrees_of_freedom=freedom)

    @property
    def ratio(self) -> float:
        """The geometric mean."""
        return math.exp(self.mean)


@dataclass(frozen=True)
class LaunchVariance:
    """Variance of one launch's mean log level, after arm (and block) means, pooled over arms."""

    variance: float
    degrees_of_freedom: int


def pooled_launch_variance(
    levels: Mapping[tuple[str, int], float], remove_blocks: bool = True
) -> LaunchVariance | None:
    """Residual mean square of an additive arms x blocks fit to mean log levels by (arm, block).

    With `remove_blocks`, drift shared by a block's arms is taken out, as in a ratio; without, it stays in.
    None where no degree of freedom is left.
    """
    arms = sorted({arm for arm, _ in levels})
    blocks = sorted({block for _, block in levels})
    keys = sorted(levels)
    columns = [[float(arm == key[0]) for arm in arms] for key in keys]
    if remove_blocks:
        columns = [
            row + [float(key[1] == block) for block in blocks[1:]] for row, key in zip(columns, keys, strict=True)
        ]
    design, values = np.array(columns), np.array([levels[key] for key in keys])
    if not keys:
        return None
    fit, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
    freedom = len(keys) - int(rank)
    if freedom < 1:
        return None
    return LaunchVariance(float(np.sum((values - design @ fit) ** 2)) / freedom, freedom)


def estimate_log_ratio(
    cells: Floats,
    weights: Floats,
    launch: LaunchVariance | None,
    launches_per_ratio: int = 2,
    prompts: tuple[Floats, Floats] | None = None,
) -> LogEstimate:
    """The weighted mean of `cells` (blocks x conversations, mean log ratios) with both spreads.

    `weights` (conversations) sum to 1: a conversation counts by its turns, alike in every block.
    `launch` is the variance of one launch; a ratio has `launches_per_ratio` of them in every block.
    `prompts` gives other (cells, weights) to take the spread of conversations from, where `cells` has none.
    """
    assert math.isclose(float(weights.sum()), 1.0, rel_tol=1e-9)
    prompt_cells, prompt_weights = prompts or (cells, weights)
    blocks, conversations = cells.shape[0], prompt_cells.shape[1]
    mean = float(cells.mean(axis=0) @ weights)
    if launch is None:
        return LogEstimate(mean, None, None, blocks, conversations, ONE_BLOCK)
    launch_part = Component(launches_per_ratio * launch.variance / blocks, launch.degrees_of_freedom)
    these = satterthwaite([launch_part])
    if conversations < 2:
        return LogEstimate(mean, these, None, blocks, conversations, ONE_CONVERSATION)
    like = satterthwaite([launch_part, *conversation_components(prompt_cells, prompt_weights)])
    like = replace(like, at_least=these)
    return LogEstimate(mean, these, like, blocks, conversations)


def conversation_components(cells: Floats, weights: Floats) -> list[Component]:
    """What sampling of conversations adds: their spread, less the noise that the launch part already holds.

    With equal weights and the launch part from the same cells, the sum is the classical (MS_B + MS_C - MS_E) / (B C).
    An estimate below zero counts as zero.
    """
    blocks, conversations = cells.shape
    squares = float(np.sum(weights**2))
    spread = float(cells.mean(axis=0).var(ddof=1))
    between = Component(squares * spread, conversations - 1)
    if blocks < 2:
        return [between]
    rest = cells - cells.mean(axis=1, keepdims=True) - cells.mean(axis=0, keepdims=True) + cells.mean()
    freedom = (blocks - 1) * (conversations - 1)
    noise = Component(squares * float(np.sum(rest**2)) / freedom / blocks, freedom, sign=-1)
    return [between, noise] if between.variance > noise.variance else []


def satterthwaite(components: Sequence[Component]) -> Spread:
    """Sum of components with the effective degrees of freedom of Satterthwaite (1946)."""
    total = sum(part.sign * part.variance for part in components)
    denominator = sum(part.variance**2 / part.degrees_of_freedom for part in components)
    if denominator == 0:
        return Spread(0.0, min(part.degrees_of_freedom for part in components))
    return Spread(total, total**2 / denominator)


def log_interval(mean: float, spread: Spread, alpha: float) -> tuple[float, float]:
    """Two-sided Student interval of level 1 - alpha on the log scale."""
    half = _half_width(spread, alpha)
    if spread.at_least is not None:
        half = max(half, _half_width(spread.at_least, alpha))
    return mean - half, mean + half


def _half_width(spread: Spread, alpha: float) -> float:
    return float(stats.t.isf(alpha / 2, spread.degrees_of_freedom)) * math.sqrt(spread.variance)


def ratio_interval(mean: float, spread: Spread | None, alpha: float) -> tuple[float | None, float | None]:
    """The interval of the ratio; (None, None) without a spread."""
    if spread is None:
        return None, None
    low, high = log_interval(mean, spread, alpha)
    return _exp(low), _exp(high)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def p_value(mean: float, spread: Spread, margin: float = 0.0) -> float:
    """Two-sided p of |true mean| <= margin (logs): rejected at alpha exactly where the interval leaves the margin."""
    narrower = 0.0 if spread.at_least is None else p_value(mean, spread.at_least, margin)
    excess = abs(mean) - margin
    if spread.variance == 0:
        return max(narrower, 0.0 if excess > 0 else 1.0)
    own = 2 * float(stats.t.sf(excess / math.sqrt(spread.variance), spread.degrees_of_freedom))
    return min(1.0, max(narrower, own))


def crossed_bootstrap(
    cells: Floats, weights: Floats, alpha: float, seed: int, replicates: int = 2000
) -> tuple[float, float] | None:
    """Percentile interval of the log ratio, blocks and conversations resampled independently; None with one block."""
    blocks, conversations = cells.shape
    if blocks < 2:
        return None
    random = np.random.default_rng(seed)
    block_counts = random.multinomial(blocks, np.full(blocks, 1 / blocks), size=replicates)
    counts = random.multinomial(conversations, np.full(conversations, 1 / conversations), size=replicates)
    shares = counts * weights
    means = np.einsum("rb,bc,rc->r", block_counts / blocks, cells, shares / shares.sum(axis=1, keepdims=True))
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)
