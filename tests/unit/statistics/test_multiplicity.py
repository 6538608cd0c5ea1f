"""Holm's procedure."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from draftbench.statistics.multiplicity import holm_levels


@pytest.mark.parametrize("seed", range(20))
def test_rejections_agree_with_statsmodels(seed: int) -> None:
    """A comparison is rejected where its p is at most its level: Holm's own decisions."""
    p_values = list(np.random.default_rng(seed).uniform(size=12) ** 5)
    levels = holm_levels(p_values, 0.05)
    ours = [p <= level for p, level in zip(p_values, levels, strict=True) if level is not None]
    assert ours == list(multipletests(p_values, alpha=0.05, method="holm")[0])


def test_levels_by_hand() -> None:
    """Three tests at 0.06: 0.02 and 0.03 for the two rejected; the third keeps 0.06, the last step."""
    assert holm_levels([0.5, 0.001, 0.025], 0.06) == pytest.approx([0.06, 0.02, 0.03])


def test_after_the_first_failure_all_share_its_level() -> None:
    """0.04 > 0.06/3 stops the procedure, so 0.05 is judged at 0.02 too, not at 0.03."""
    assert holm_levels([0.05, 0.04, 0.9], 0.06) == pytest.approx([0.02, 0.02, 0.02])


def test_untested_comparisons_count_in_the_family() -> None:
    """A comparison that could not be tested still was planned."""
    assert holm_levels([0.001, None], 0.05) == [pytest.approx(0.025), None]
