"""fp32 and greedy on a tiny random pair: every method gives AR's tokens, whatever else the engine does meanwhile."""

from pathlib import Path

import pytest

from draftbench.engine.engine import Engine
from draftbench.engine.interface import GenerationRequest, Method, SamplingSettings
from tests.unit.engine.engine_driving import Outcome, greedy, make_engine, run_prompts, run_requests
from tests.unit.engine.tiny_models import PlainTarget

ARMS: list[tuple[Method, int | None]] = [("DFLASH", None), ("DFLASH", 2), *(("DDTREE", b) for b in (1, 4, 7, 15, 31))]
PROMPTS = [[5, 1, 7, 3], [4], [11, 10, 9, 8, 7, 6, 5, 4, 3, 1], [0, 0, 6, 6, 1, 1, 7], [5, 1, 7, 9, 9], [8, 8, 8]]
LENGTHS = [30, 7, 41, 1, 22, 15]


@pytest.fixture(scope="module")
def expected(target: Path) -> list[list[int]]:
    """The plain model's greedy continuations, 41 tokens each."""
    plain = PlainTarget(target)
    return [plain.greedy(prompt, 41) for prompt in PROMPTS]


def _mixed_requests() -> list[GenerationRequest]:
    """Different prompts and lengths: requests join and leave at any step."""
    return [
        GenerationRequest(f"r{index}", tuple(prompt), greedy(length))
        for index, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True))
    ]


def _check_identities(outcome: Outcome) -> None:
    last = outcome.last
    assert sum(last.accept_histogram) == last.verify_steps
    assert sum(accepted * steps for accepted, steps in enumerate(last.accept_histogram)) == last.accepted_drafts
    assert last.completion_tokens == len(outcome.ids) == sum(len(event.new_ids) for event in outcome.events)
    assert 1 + last.verify_steps + last.accepted_drafts >= last.completion_tokens
    assert len(outcome.events) == 1 + last.verify_steps


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize(("method", "budget"), ARMS)
def test_tokens_are_those_of_autoregressive_decoding(
    target: Path, drafter: Path, expected: list[list[int]], method: Method, budget: int | None, at_once: int
) -> None:
    """First pass and second pass on the same engine, where prompts come from reused prefixes."""
    engine = make_engine(target, drafter, method, budget, max_running_requests=at_once)
    first, second = (run_requests(engine, _mixed_requests(), at_once) for _ in range(2))
    for index, length in enumerate(LENGTHS):
        for outcomes in (first, second):
            assert outcomes[f"r{index}"].ids == expected[index][:length]
            _check_identities(outcomes[f"r{index}"])
    assert sum(outcome.last.accepted_drafts for outcome in first.values()) > 0


@pytest.mark.parametrize(("method", "budget"), [("DFLASH", None), ("DDTREE", 7)])
def test_batching_and_prefix_reuse_leave_acceptance_unchanged(
    target: Path, drafter: Path, method: Method, budget: int
) -> None:
    """The verify steps of each request are the same alone, in a batch, and with its prompt reused."""
    alone = make_engine(target, drafter, method, budget, max_running_requests=1, prefix_reuse=False)
    batched = make_engine(target, drafter, method, budget, max_running_requests=4)
    passes = [run_requests(alone, _mixed_requests())]
    passes += [run_requests(batched, _mixed_requests(), 4) for _ in range(2)]
    histograms = [[found[f"r{index}"].last.accept_histogram for index in range(len(PROMPTS))] for found in passes]
    assert histograms[0] == histograms[1] == histograms[2]


def test_chain_forced_through_the_tree_path_gives_dflash_acceptance(target: Path, drafter: Path) -> None:
    """DDTREE with one candidate a slot and budget block - 1 takes DFLASH's steps exactly."""
    chain = run_requests(make_engine(target, drafter, "DFLASH"), _mixed_requests())
    tree = run_requests(make_engine(target, drafter, "DDTREE", 4, tree_top_k=1), _mixed_requests())
    for request_id, outcome in chain.items():
        assert tree[request_id].ids == outcome.ids
        assert tree[request_id].last.accept_histogram == outcome.last.accept_histogram
        assert tree[request_id].last.proposed_drafts == outcome.last.proposed_drafts
    assert sum(outcome.last.accepted_drafts for outcome in chain.values()) > 0


def test_a_larger_tree_accepts_no_less(target: Path, drafter: Path) -> None:
    """Every tree contains the smaller ones: on the same text the steps only get fewer."""
    steps = []
    for budget in (1, 4, 7, 15, 31):
        outcomes = run_prompts(make_engine(target, drafter, "DDTREE", budget), PROMPTS, greedy(60))
        steps.append(sum(outcome.last.verify_steps for outcome in outcomes))
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < steps[0]


@pytest.mark.parametrize(("method", "budget"), [("AR", None), ("DFLASH", None), ("DDTREE", 15)])
def test_second_turn_reuses_the_first_and_its_own_reply(
    target: Path, drafter: Path, method: Method, budget: int | None
) -> None:
    """A prompt made of prompt, reply and two new tokens finds all but the reply's last token cached, unchanged."""
    engine = make_engine(target, drafter, method, budget, max_running_requests=1)
    reply = run_prompts(engine, [PROMPTS[2]], greedy(21))[0].ids
    longer = [*PROMPTS[2], *reply, 4, 9]
    again = run_prompts(engine, [longer], greedy(30))[0]
    assert again.last.cached_tokens >= len(PROMPTS[2]) + 20
    assert again.ids == PlainTarget(target).greedy(longer, 30)


def test_the_last_prompt_token_is_never_cached(target: Path) -> None:
    """The same prompt again reuses all but one token, since its logits are needed."""
    engine = make_engine(target, None)
    cached = [run_prompts(engine, [PROMPTS[2]], greedy(3))[0].last.cached_tokens for _ in range(2)]
    assert cached == [0, len(PROMPTS[2]) - 1]


def _sampled(count: int, seed: int) -> SamplingSettings:
    return SamplingSettings(1.0, count, seed=seed, ignore_eos=True)


@pytest.mark.parametrize(("method", "budget"), [("DFLASH", None), ("DDTREE", 15)])
def test_sampled_tokens_follow_the_seed_not_the_method(
    target: Path, drafter: Path, method: Method, budget: int
) -> None:
    """One uniform number a token: the same seed gives AR's sampled tokens, batched or not."""
    engines: list[tuple[Engine, int]] = [
        (make_engine(target, None), 1),
        (make_engine(target, drafter, method, budget), 4),
    ]
    found = []
    for engine, at_once in engines:
        requests = [GenerationRequest(f"r{n}", tuple(p), _sampled(40, n)) for n, p in enumerate(PROMPTS)]
        found.append({name: outcome.ids for name, outcome in run_requests(engine, requests, at_once).items()})
    assert found[0] == found[1]
