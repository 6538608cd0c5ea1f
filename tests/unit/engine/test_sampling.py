"""The distribution that sampling settings define, and the sampler's use of its seed."""

import math

import numpy as np
import torch

from draftbench.engine.interface import SamplingSettings
from draftbench.engine.sampling import TokenSampler, filtered_probabilities

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3]))


def _settings(temperature: float = 1.0, top_p: float = 1.0, top_k: int = -1) -> SamplingSettings:
    return SamplingSettings(temperature, 8, top_p=top_p, top_k=top_k)


def test_temperature_sharpens_by_its_inverse_power() -> None:
    """At temperature 0.5 probabilities are squared and renormalised: 0.01, 0.16, 0.04, 0.09 over 0.30."""
    expected = np.array([0.01, 0.16, 0.04, 0.09]) / 0.30
    np.testing.assert_allclose(filtered_probabilities(LOGITS, _settings(0.5)), expected, rtol=1e-6)


def test_top_k_keeps_the_best() -> None:
    """Top 2 of 0.1, 0.4, 0.2, 0.3 leaves 4/7 and 3/7."""
    np.testing.assert_allclose(filtered_probabilities(LOGITS, _settings(top_k=2)), [0, 4 / 7, 0, 3 / 7], rtol=1e-6)


def test_top_p_keeps_the_token_that_crosses_the_threshold() -> None:
    """0.4 + 0.3 reaches 0.65; 0.2 begins beyond it and goes."""
    np.testing.assert_allclose(filtered_probabilities(LOGITS, _settings(top_p=0.65)), [0, 4 / 7, 0, 3 / 7], rtol=1e-6)


def test_top_p_below_the_best_probability_is_greedy() -> None:
    """One token always stays."""
    np.testing.assert_allclose(filtered_probabilities(LOGITS, _settings(top_p=0.01)), [0, 1, 0, 0])


def test_temperature_zero_takes_the_first_maximum() -> None:
    """Greedy is the argmax and draws nothing."""
    sampler = TokenSampler(_settings(0.0), seed=1)
    assert [sampler.choose(LOGITS) for _ in range(3)] == [1, 1, 1]


def test_same_seed_gives_the_same_tokens() -> None:
    """The n-th token depends on seed and logits alone."""
    first, second = (TokenSampler(_settings(), seed=5) for _ in range(2))
    drawn = [first.choose(LOGITS) for _ in range(50)]
    assert drawn == [second.choose(LOGITS) for _ in range(50)]
    assert len(set(drawn)) == 4


def test_draws_follow_the_distribution() -> None:
    """20,000 draws: each share within five standard errors."""
    sampler = TokenSampler(_settings(), seed=3)
    counts = np.bincount([sampler.choose(LOGITS) for _ in range(20_000)], minlength=4) / 20_000
    for share, probability in zip(counts, [0.1, 0.4, 0.2, 0.3], strict=True):
        assert abs(share - probability) < 5 * math.sqrt(probability * (1 - probability) / 20_000)
