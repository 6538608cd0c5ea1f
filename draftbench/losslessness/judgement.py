"""The verdict on an arm's output: identical, within_noise, different or not_shown, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

IDENTICAL, WITHIN_NOISE, DIFFERENT, NOT_SHOWN = "identical", "within_noise", "different", "not_shown"

EXACT_MARGIN = 1e-4
"""Nats; in fp32 a smaller margin is a tie (decision 11)."""
CERTAIN_MARGIN = 1.0
"""Nats; a token e times likelier than the next is never flipped by rounding, whatever the floor has seen."""
FLOOR_FACTOR = 2.0
"""A margin up to twice the largest that rounding was seen to flip is taken for rounding: the floor is a sample too."""
RATE_LEVEL = 0.01
TREND_LEVEL = 0.05


@dataclass(frozen=True)
class Floor:
    """What a correct engine shows: AR's own tokens scored again by prefill."""

    tokens: int
    disagreements: int
    margin_max: float | None

    @property
    def limit(self) -> float:
        """Margin above which a difference is not taken for noise, nats."""
        return max(EXACT_MARGIN, FLOOR_FACTOR * (self.margin_max or 0.0))


@dataclass(frozen=True)
class Evidence:
    """First differences of one condition, counted."""

    requests: int
    tokens: int
    diverged: int
    unscored: int
    beyond: int
    margin_max: float | None


def judge_greedy(evidence: Evidence, floor: Floor | None) -> tuple[str, str]:
    """Verdict and the sentence behind it."""
    if evidence.requests == 0:
        return NOT_SHOWN, "no block holds valid cells of both this arm and AR"
    if evidence.diverged == 0:
        return IDENTICAL, f"all {evidence.requests} outputs are AR's, token by token"
    found = f"{evidence.diverged} of {evidence.requests} outputs differ from AR's"
    if floor is None or floor.tokens == 0:
        return NOT_SHOWN, f"{found}, and AR's output was not scored by prefill"
    if evidence.beyond:
        return _judge_beyond(evidence, floor, found)
    if evidence.unscored:
        return NOT_SHOWN, f"{found}, {evidence.unscored} of them where AR's output has no score"
    return WITHIN_NOISE, f"{found}, all where the target's two best tokens are close: {_compared(evidence, floor)}"


def _judge_beyond(evidence: Evidence, floor: Floor, found: str) -> tuple[str, str]:
    certain = evidence.margin_max is not None and evidence.margin_max > CERTAIN_MARGIN
    more_often = rate_p_value(evidence, floor) < RATE_LEVEL
    if floor.disagreements or certain or more_often:
        return DIFFERENT, f"{found}, {evidence.beyond} of them beyond rounding: {_compared(evidence, floor)}"
    return NOT_SHOWN, f"{found}, but the floor of {floor.tokens} tokens is too small to tell rounding from a fault"


def _compared(evidence: Evidence, floor: Floor) -> str:
    ours = f"margin at most {evidence.margin_max:.2g} nats"
    if floor.margin_max is None:
        return f"{ours}; AR scored again by prefill never differs in {floor.tokens} tokens"
    return f"{ours}; AR scored again by prefill differs up to {floor.margin_max:.2g}"


def rate_p_value(evidence: Evidence, floor: Floor) -> float:
    """One-sided Fisher p of as many differences a token as the floor's."""
    table = [
        [evidence.diverged, max(0, evidence.tokens - evidence.diverged)],
        [floor.disagreements, floor.tokens - floor.disagreements],
    ]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)


def trend_p_value(faults: Sequence[int], totals: Sequence[int]) -> float | None:
    """One-sided Cochran-Armitage p of a share that grows along ordered groups; None where it cannot be tested."""
    scores = np.arange(len(totals), dtype=np.float64)
    sizes, counts = np.asarray(totals, dtype=np.float64), np.asarray(faults, dtype=np.float64)
    if len(totals) < 2 or sizes.sum() == 0:
        return None
    share = counts.sum() / sizes.sum()
    spread = (sizes * scores**2).sum() - (sizes * scores).sum() ** 2 / sizes.sum()
    variance = share * (1 - share) * spread
    if variance <= 0:
        return None
    return float(stats.norm.sf((scores * (counts - sizes * share)).sum() / math.sqrt(variance)))


def length_p_value(ours: Sequence[int], theirs: Sequence[int], paired: bool) -> float | None:
    """p of equal output lengths: Wilcoxon's signed ranks for paired greedy outputs, else Kolmogorov-Smirnov."""
    if not ours or not theirs:
        return None
    if not paired:
        return float(stats.ks_2samp(ours, theirs).pvalue)
    if np.array_equal(ours, theirs):
        return 1.0
    return float(stats.wilcoxon(ours, theirs).pvalue)
