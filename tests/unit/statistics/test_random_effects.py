"""Inference with blocks and conversations crossed, against closed forms and statsmodels."""

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.anova import anova_lm

from draftbench.statistics.random_effects import (
    ONE_BLOCK,
    ONE_CONVERSATION,
    Component,
    LaunchVariance,
    Spread,
    crossed_bootstrap,
    estimate_log_ratio,
    log_interval,
    p_value,
    pooled_launch_variance,
    satterthwaite,
)

EQUAL = np.array([0.5, 0.5])
HAND = np.array([[0.1, 0.3], [0.2, 0.6]])
"""Block means 0.2 and 0.4, conversation means 0.15 and 0.45: MS_B = 0.04, MS_C = 0.09, MS_E = 0.01."""


def test_two_by_two_worked_by_hand() -> None:
    """Variance (MS_B + MS_C - MS_E) / 4 = 0.03 with 0.03^2 / (0.01^2 + 0.0225^2 + 0.0025^2) degrees of freedom."""
    estimate = estimate_log_ratio(HAND, EQUAL, LaunchVariance(0.01, 1))
    assert estimate.mean == pytest.approx(0.3)
    assert estimate.these_prompts == Spread(pytest.approx(0.01), pytest.approx(1.0))
    assert estimate.like_these is not None
    assert estimate.like_these.variance == pytest.approx(0.03)
    assert estimate.like_these.degrees_of_freedom == pytest.approx(0.0009 / 0.0006125)
    assert (estimate.blocks, estimate.conversations, estimate.reason) == (2, 2, None)


def test_launch_variance_of_two_arms_is_the_block_mean_square_of_their_ratio() -> None:
    """With AR flat and the arm's levels 0.2 and 0.4, the residual mean square is (0.2 - 0.4)^2 / 4 = 0.01, 1 df."""
    levels = {("ar", 1): 0.0, ("ar", 2): 0.0, ("tree", 1): -0.2, ("tree", 2): -0.4}
    launch = pooled_launch_variance(levels)
    assert launch == LaunchVariance(pytest.approx(0.01), 1)


def test_balanced_design_agrees_with_statsmodels_anova() -> None:
    """For equal weights and the pair's own launches the variance is that of the classical two-way ANOVA."""
    random = np.random.default_rng(1)
    blocks, conversations = 4, 6
    cells = (
        0.4
        + 0.05 * random.standard_normal((blocks, 1))
        + 0.2 * random.standard_normal((1, conversations))
        + 0.03 * random.standard_normal((blocks, conversations))
    )
    rows = [(b, c, cells[b, c]) for b in range(blocks) for c in range(conversations)]
    frame = pd.DataFrame(rows, columns=["block", "conversation", "y"])
    table = anova_lm(smf.ols("y ~ C(block) + C(conversation)", frame).fit())
    ms_b, ms_c, ms_e = table["mean_sq"]
    means = {("arm", b): float(cells[b].mean()) for b in range(blocks)} | {("ar", b): 0.0 for b in range(blocks)}
    estimate = estimate_log_ratio(cells, np.full(conversations, 1 / conversations), pooled_launch_variance(means))
    size = blocks * conversations
    parts = [(ms_b, blocks - 1), (ms_c, conversations - 1), (-ms_e, (blocks - 1) * (conversations - 1))]
    variance = sum(mean_square for mean_square, _ in parts) / size
    freedom = variance**2 / sum((mean_square / size) ** 2 / df for mean_square, df in parts)
    assert estimate.like_these is not None
    assert estimate.like_these.variance == pytest.approx(variance)
    assert estimate.like_these.degrees_of_freedom == pytest.approx(freedom)


def test_pooled_launch_variance_agrees_with_least_squares_where_arms_miss_blocks() -> None:
    """An arm added later stands in new blocks only; the residual mean square is that of an additive fit."""
    random = np.random.default_rng(2)
    keys = [(arm, block) for block in (1, 2, 3, 4) for arm in ("ar", "a", "b", "late")]
    keys = [key for key in keys if key[0] == "ar" or (key[0] == "late") == (key[1] > 2)]
    levels = {key: float(random.standard_normal()) for key in keys}
    frame = pd.DataFrame([(arm, block, value) for (arm, block), value in levels.items()], columns=["arm", "block", "y"])
    fit = smf.ols("y ~ C(arm) + C(block)", frame).fit()
    launch = pooled_launch_variance(levels)
    assert launch == LaunchVariance(pytest.approx(fit.mse_resid), int(fit.df_resid))


def test_drift_shared_by_a_block_is_no_launch_variance() -> None:
    """Adding one number to every arm of a block changes nothing where blocks are taken out."""
    levels = {(arm, block): 0.01 * block * (arm == "a") for arm in ("ar", "a", "b") for block in (1, 2, 3)}
    drifted = {(arm, block): value + 0.5 * block for (arm, block), value in levels.items()}
    one, other = pooled_launch_variance(levels), pooled_launch_variance(drifted)
    assert one is not None
    assert other is not None
    assert other.variance == pytest.approx(one.variance)
    kept = pooled_launch_variance(drifted, remove_blocks=False)
    assert kept is not None
    assert kept.variance > 0.1


def test_one_block_gives_no_interval_but_a_reason() -> None:
    """Nothing estimates how launches differ, so neither spread exists."""
    launch = pooled_launch_variance({("ar", 1): 0.0, ("a", 1): 0.3})
    estimate = estimate_log_ratio(np.array([[0.3, 0.1]]), EQUAL, launch)
    assert launch is None
    assert (estimate.these_prompts, estimate.like_these, estimate.reason) == (None, None, ONE_BLOCK)
    assert estimate.ratio == pytest.approx(math.exp(0.2))


def test_one_conversation_speaks_of_these_prompts_only() -> None:
    """Launches are known, prompts are not."""
    estimate = estimate_log_ratio(np.array([[0.3], [0.1]]), np.array([1.0]), LaunchVariance(0.01, 3))
    assert estimate.these_prompts == Spread(pytest.approx(0.01), pytest.approx(3))
    assert (estimate.like_these, estimate.reason) == (None, ONE_CONVERSATION)


def test_conversations_without_spread_add_nothing() -> None:
    """Where conversations differ less than their noise says, the launch part stands alone."""
    cells = np.array([[0.1, -0.1], [-0.1, 0.1]])
    estimate = estimate_log_ratio(cells, EQUAL, LaunchVariance(0.01, 4))
    assert estimate.like_these == estimate.these_prompts


def test_verdicts_have_no_more_degrees_of_freedom_than_conversations() -> None:
    """Two conversations have one, however many launches were pooled; the plain interval keeps Satterthwaite's."""
    estimate = estimate_log_ratio(HAND, EQUAL, LaunchVariance(0.01, 30))
    assert estimate.like_these is not None
    assert estimate.like_these.degrees_of_freedom > 1
    assert estimate.like_these_in_family == Spread(pytest.approx(0.03), 1)


def test_the_wider_claim_never_has_the_shorter_interval() -> None:
    """Launches with one degree of freedom, prompts with three: the interval for prompts like these holds the other."""
    cells = np.array([[0.1, 0.11, 0.09, 0.1], [0.5, 0.52, 0.5, 0.49]])
    estimate = estimate_log_ratio(
        cells, np.full(4, 0.25), LaunchVariance(0.02, 1), prompts=(np.array([[0.0, 0.4, 0.8, 0.2]]), np.full(4, 0.25))
    )
    assert estimate.these_prompts is not None
    assert estimate.like_these is not None
    assert estimate.like_these.degrees_of_freedom > 1
    assert estimate.like_these.variance > estimate.these_prompts.variance
    for alpha in (0.05, 0.001):
        low, high = log_interval(estimate.mean, estimate.like_these, alpha)
        low_these, high_these = log_interval(estimate.mean, estimate.these_prompts, alpha)
        assert low <= low_these < high_these <= high
    assert p_value(estimate.mean, estimate.like_these) >= p_value(estimate.mean, estimate.these_prompts)


def test_weights_follow_turns() -> None:
    """Conversations of 3 and 1 turns: mean 0.75 x 0.2 + 0.25 x 0.6, spread share 0.75^2 + 0.25^2."""
    cells = np.array([[0.2, 0.6]])
    estimate = estimate_log_ratio(cells, np.array([0.75, 0.25]), LaunchVariance(0.0, 2))
    assert estimate.mean == pytest.approx(0.3)
    assert estimate.like_these is not None
    assert estimate.like_these.variance == pytest.approx((0.5625 + 0.0625) * 0.08)


def test_satterthwaite_of_two_equal_parts_adds_degrees_of_freedom() -> None:
    """(v + v)^2 / (v^2/4 + v^2/4) = 8."""
    assert satterthwaite([Component(0.2, 4), Component(0.2, 4)]) == Spread(pytest.approx(0.4), pytest.approx(8))


def test_interval_is_students() -> None:
    """Mean 1, standard error 0.5, 4 df: 1 +- 2.776445 x 0.5 (a t table)."""
    assert log_interval(1.0, Spread(0.25, 4), 0.05) == pytest.approx((1 - 1.3882225, 1 + 1.3882225))


@pytest.mark.parametrize("mean", [0.02, 0.05, 0.2, -0.3])
@pytest.mark.parametrize("margin", [0.0, 0.03])
def test_p_value_and_interval_agree(mean: float, margin: float) -> None:
    """At alpha equal to p the interval just touches the margin."""
    spread = Spread(0.002, 3.7)
    p = p_value(mean, spread, margin)
    if p < 1:
        low, high = log_interval(mean, spread, p)
        assert (low if mean > 0 else -high) == pytest.approx(margin)
    else:
        assert abs(mean) <= margin


def test_p_value_is_the_t_tests() -> None:
    """With one launch part from n block means the p-value is that of scipy's one-sample t-test."""
    values = np.array([0.02, 0.05, 0.01, 0.04])
    expected = stats.ttest_1samp(values, 0.0).pvalue
    assert p_value(float(values.mean()), Spread(values.var(ddof=1) / 4, 3)) == pytest.approx(expected)


def test_bootstrap_quantiles_match_complete_enumeration() -> None:
    """2 blocks x 2 conversations: block draws (11, 12, 22) and conversation draws alike give nine means."""
    interval = crossed_bootstrap(HAND, EQUAL, 0.05, seed=3, replicates=20_000)
    assert interval == pytest.approx((0.1, 0.6))
    middle = crossed_bootstrap(HAND, EQUAL, 0.75, seed=3, replicates=20_000)
    assert middle is not None
    # The middle quarter lies between the means of (both blocks, both conversations) 0.3 and its neighbours.
    draws = [HAND[b][:, c].mean() for b in ([0, 0], [0, 1], [1, 0], [1, 1]) for c in ([0, 0], [0, 1], [1, 0], [1, 1])]
    assert middle == pytest.approx(tuple(np.quantile(draws, [0.375, 0.625])), abs=0.051)


def test_bootstrap_repeats_with_its_seed_and_needs_two_blocks() -> None:
    """A report must not change from one rendering to the next."""
    assert crossed_bootstrap(HAND, EQUAL, 0.05, seed=7) == crossed_bootstrap(HAND, EQUAL, 0.05, seed=7)
    assert crossed_bootstrap(HAND[:1], EQUAL, 0.05, seed=7) is None


@pytest.mark.parametrize(("blocks", "lowest"), [(2, 0.90), (3, 0.92)])
def test_coverage_is_near_nominal(blocks: int, lowest: float) -> None:
    """600 studies of 5 arms and 8 conversations: the 95 % interval covers; benchmarks/coverage.py has the full grid."""
    random = np.random.default_rng(blocks)
    conversations, arms, studies, covered = 8, 5, 600, 0
    weights = np.full(conversations, 1 / conversations)
    for _ in range(studies):
        launches = 0.006 * random.standard_normal((arms, blocks)) + 0.02 * random.standard_normal((1, blocks))
        taste = 0.02 * random.standard_normal((arms, 1, conversations))
        noise = 0.004 * random.standard_normal((arms, blocks, conversations))
        logs = launches[:, :, None] + taste + noise
        levels = {(str(arm), block): float(logs[arm, block].mean()) for arm in range(arms) for block in range(blocks)}
        estimate = estimate_log_ratio(logs[0] - logs[1], weights, pooled_launch_variance(levels))
        assert estimate.like_these is not None
        low, high = log_interval(estimate.mean, estimate.like_these, 0.05)
        covered += low <= 0 <= high
    assert lowest <= covered / studies <= 0.99
