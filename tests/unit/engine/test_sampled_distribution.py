"""Sampled output follows the target's own distribution (chi-square on a tiny pair, fixed seeds)."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from draftbench.engine.interface import GenerationRequest, Method, SamplingSettings
from tests.unit.engine.engine_driving import make_engine, run_requests
from tests.unit.engine.tiny_models import PlainTarget

PROMPT = (5, 1, 7, 3)
DRAWS = 1500
TEMPERATURE = 1.3


def _next_token(plain: PlainTarget, ids: list[int], temperature: float) -> npt.NDArray[np.float64]:
    probabilities: npt.NDArray[np.float64] = (plain.run(ids)[0][-1].double() / temperature).softmax(-1).numpy()
    return probabilities


def _exact_pairs(target: Path, temperature: float) -> npt.NDArray[np.float64]:
    """P(second token, third token) after the prompt, by summing over every first token: [12, 12]."""
    plain, pairs = PlainTarget(target), np.zeros((12, 12))
    for first, p_first in enumerate(_next_token(plain, [*PROMPT], temperature)):
        for second, p_second in enumerate(_next_token(plain, [*PROMPT, first], temperature)):
            pairs[second] += p_first * p_second * _next_token(plain, [*PROMPT, first, second], temperature)
    return pairs


def _p_value(counts: npt.NDArray[np.float64], probabilities: npt.NDArray[np.float64]) -> float:
    """Chi-square with cells of fewer than five expected draws pooled into one."""
    observed, expected = counts.ravel(), probabilities.ravel() * counts.sum()
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    kept = expected > 0
    return float(stats.chisquare(observed[kept], expected[kept]).pvalue)


@pytest.mark.parametrize(("method", "budget"), [("AR", None), ("DFLASH", None), ("DDTREE", 15)])
def test_tokens_of_verify_steps_follow_the_exact_distribution(
    target: Path, drafter: Path, method: Method, budget: int | None
) -> None:
    """Tokens 2 and 3 of 1,500 continuations; a colder distribution is rejected by the same test."""
    engine = make_engine(target, drafter, method, budget, max_running_requests=25, seed=11)
    requests = (
        GenerationRequest(str(n), PROMPT, SamplingSettings(TEMPERATURE, 3, ignore_eos=True)) for n in range(DRAWS)
    )
    counts = np.zeros((12, 12))
    for outcome in run_requests(engine, requests, at_once=25).values():
        counts[outcome.ids[1], outcome.ids[2]] += 1
    assert counts.sum() == DRAWS
    assert _p_value(counts, _exact_pairs(target, TEMPERATURE)) > 0.001
    assert _p_value(counts, _exact_pairs(target, 0.7 * TEMPERATURE)) < 1e-6
