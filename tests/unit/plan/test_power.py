"""The power calculation against hand computation and tables of Student's t."""

import math

import pytest

from draftbench.plan.power import familywise_level, half_width, power_of, t_quantile


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (4, 2.776), (8, 2.306), (30, 2.042)])
def test_t_quantiles_as_printed_in_tables(freedom: int, quantile: float) -> None:
    """Two-sided 95 %."""
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=5e-4)


def test_half_width_for_these_prompts_by_hand() -> None:
    """Three blocks, five arms: 8 degrees of freedom, sd 0.006 x sqrt(2/3), t 2.306."""
    expected = math.exp(2.306 * 0.006 * math.sqrt(2 / 3)) - 1
    assert half_width(3, 5, None, 0.95) == pytest.approx(expected, rel=1e-3)


def test_half_width_for_prompts_like_these_by_hand() -> None:
    """48 conversations of sd 0.15 and 3 blocks: variance 4.6875e-4 + 2.4e-5.

    Satterthwaite: 4.9275e-4^2 / (4.6875e-4^2 / 47 + 2.4e-5^2 / 8) = 51.1 degrees of freedom, t 2.0075.
    """
    expected = math.exp(2.0075 * math.sqrt(4.9275e-4)) - 1
    assert half_width(3, 5, 48, 0.95) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("blocks", "conversations"), [(1, None), (1, 10), (3, 1)])
def test_no_spread_no_interval(blocks: int, conversations: int | None) -> None:
    """One block gives no launch spread, one conversation no spread between conversations."""
    assert half_width(blocks, 5, conversations, 0.95) is None


def test_blocks_needed_are_the_least_that_reach_the_margin() -> None:
    """The number found reaches the margin, one block less does not."""
    level = familywise_level(0.95, 20)
    needed = power_of(48, 2, 5, 0.01, level).blocks_needed
    assert needed is not None
    at, below = half_width(needed, 5, None, level), half_width(needed - 1, 5, None, level)
    assert at is not None
    assert below is not None
    assert at <= 0.01 < below


def test_an_unreachable_margin_is_said() -> None:
    """A margin of 0.01 % is beyond a hundred blocks."""
    assert power_of(48, 3, 5, 0.0001, 0.95).blocks_needed is None


def test_familywise_level_is_bonferronis_first_step() -> None:
    """Ten comparisons at 95 % need 99.5 % each; an empty family changes nothing."""
    assert familywise_level(0.95, 10) == pytest.approx(0.995)
    assert familywise_level(0.95, 0) == pytest.approx(0.95)
