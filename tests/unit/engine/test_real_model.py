"""The default target and drafter in fp32: the exactness gate of the whole study, and logits against a plain model."""

from functools import cache
from pathlib import Path

import pytest
import torch

from draftbench.engine.interface import GenerationRequest, Method
from tests.unit.engine.engine_driving import Outcome, greedy, make_engine, run_prompts, run_requests
from tests.unit.engine.exactness_prompts import exactness_prompts
from tests.unit.engine.tiny_models import PlainTarget

NEW_TOKENS = 48
ARMS: list[tuple[Method, int | None]] = [("DFLASH", None), *(("DDTREE", budget) for budget in (4, 7, 15, 31))]
THREADS = 1  # more are many times slower wherever anything else uses a core


@cache
def _autoregressive(target: Path, count: int) -> list[list[int]]:
    """AR's tokens, one request at a time and without prefix reuse: the reference of every other run."""
    engine = make_engine(target, None, max_running_requests=1, prefix_reuse=False, threads=THREADS)
    return [outcome.ids for outcome in run_prompts(engine, exactness_prompts(target, count), greedy(NEW_TOKENS))]


def _check_arm(target: Path, drafter: Path, method: Method, budget: int | None, count: int) -> list[Outcome]:
    """Each prompt alone on a fresh server, then as its second request with four at once."""
    prompts, expected = exactness_prompts(target, count), _autoregressive(target, count)
    engine = make_engine(target, drafter, method, budget, max_running_requests=4, threads=THREADS)
    alone = run_prompts(engine, prompts, greedy(NEW_TOKENS), at_once=1)
    assert [outcome.ids for outcome in alone] == expected
    together = run_prompts(engine, prompts, greedy(NEW_TOKENS), at_once=4)
    assert [outcome.ids for outcome in together] == expected
    return alone


def _acceptance_length(outcomes: list[Outcome]) -> float:
    steps = sum(outcome.last.verify_steps for outcome in outcomes)
    return 1 + sum(outcome.last.accepted_drafts for outcome in outcomes) / steps


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("method", "budget"), ARMS)
def test_tokens_equal_autoregressive(real_target: Path, real_drafter: Path, method: Method, budget: int | None) -> None:
    """8 prompts of 48 tokens, one at a time, then again four at once: AR's tokens exactly; drafts do get accepted."""
    outcomes = _check_arm(real_target, real_drafter, method, budget, count=8)
    assert _acceptance_length(outcomes) > 1.4


@pytest.mark.exact
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("method", "budget"), [("AR", None), *ARMS])
def test_tokens_equal_autoregressive_on_forty_prompts(
    real_target: Path, real_drafter: Path, method: Method, budget: int | None
) -> None:
    """The same on 40 prompts; AR itself must not change on its second request or in a batch of four."""
    _check_arm(real_target, real_drafter, method, budget, count=40)


def test_chain_through_the_tree_gives_dflash_acceptance(real_target: Path, real_drafter: Path) -> None:
    """DDTREE at budget 7 with one candidate a slot takes the steps of DFLASH at block 8."""
    prompts = exactness_prompts(real_target, 2)
    chain = make_engine(real_target, real_drafter, "DFLASH", threads=THREADS)
    tree = make_engine(real_target, real_drafter, "DDTREE", 7, tree_top_k=1, threads=THREADS)
    found = [run_prompts(engine, prompts, greedy(32)) for engine in (chain, tree)]
    histograms = [[outcome.last.accept_histogram for outcome in outcomes] for outcomes in found]
    assert histograms[0] == histograms[1]
    assert _acceptance_length(found[0]) > 1.2


def test_logits_equal_the_plain_model(real_target: Path) -> None:
    """Packed, fused and cached against unfused `F.linear` over the whole sequence: the two best logits everywhere."""
    prompt = exactness_prompts(real_target, 2)[1]
    engine = make_engine(real_target, None, threads=THREADS)
    scoring = GenerationRequest("s", tuple(prompt), greedy(1), return_input_logprobs=True)
    scores = run_requests(engine, [scoring])["s"].events[0].input_logprobs
    assert scores is not None
    best = PlainTarget(real_target).run(prompt)[0].topk(2)
    found = torch.tensor([score.top2_logits for score in scores[1:]])
    torch.testing.assert_close(found, best.values[:-1], atol=5e-4, rtol=1e-5)
    assert [[token for _, token in score.top2] for score in scores[1:]] == best.indices[:-1].tolist()
