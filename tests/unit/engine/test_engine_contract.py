"""What the engine promises its HTTP front: stops, aborts, refusals, counters, scores."""

import math
from pathlib import Path

import pytest
import torch

from draftbench.engine.interface import EngineSettings, GenerationRequest, RequestRefusedError, SamplingSettings
from draftbench.errors import ModelError
from tests.unit.engine.engine_driving import greedy, make_engine, run_prompts, run_requests
from tests.unit.engine.tiny_models import PlainTarget, write_drafter

PROMPT = (5, 1, 7, 3)


def test_generation_stops_at_an_end_token_and_emits_it(target: Path, drafter: Path) -> None:
    """A stop id taken from AR's own text ends every method there; the id counts as a completion token."""
    text = PlainTarget(target).greedy(list(PROMPT), 40)
    stop = text[12]
    ends = text.index(stop) + 1
    sampling = SamplingSettings(0.0, 40, stop_token_ids=frozenset({stop}))
    for method, budget in (("AR", None), ("DFLASH", None), ("DDTREE", 15)):
        last = run_prompts(make_engine(target, drafter, method, budget), [PROMPT], sampling)[0]
        first_eos = text.index(2) + 1 if 2 in text else 41
        wanted = min(ends, first_eos)
        assert last.ids == text[:wanted]
        assert (last.last.finish, last.last.matched_stop) == ("stop", text[wanted - 1])
        assert last.last.completion_tokens == wanted


def test_the_models_own_end_token_stops_unless_ignored(target: Path) -> None:
    """Token 2 ends by itself (config.json); `ignore_eos` runs on to the limit."""
    plain = PlainTarget(target)
    starts = [[a, b] for a in range(12) for b in range(12)]
    prompt = next(start for start in starts if 2 in plain.greedy(start, 20)[:-1])
    text = plain.greedy(prompt, 20)
    engine = make_engine(target, None)
    stopped = run_prompts(engine, [prompt], SamplingSettings(0.0, 20))[0]
    assert stopped.ids == text[: text.index(2) + 1]
    assert stopped.last.matched_stop == 2
    assert run_prompts(engine, [prompt], greedy(20))[0].ids == text


def test_counters_keep_the_full_run_of_a_step_that_the_limit_cut(target: Path, drafter: Path) -> None:
    """Every limit from 2 to 30: tokens are cut exactly, counted drafts are those of the uncut text's steps."""
    whole = run_prompts(make_engine(target, drafter, "DDTREE", 31), [PROMPT], greedy(60))[0]
    sizes = [len(event.new_ids) for event in whole.events]
    engine, cuts = make_engine(target, drafter, "DDTREE", 31), 0
    for limit in range(2, 31):
        last = run_prompts(engine, [PROMPT], greedy(limit))[0].last
        steps = next(count for count in range(len(sizes)) if sum(sizes[: count + 1]) >= limit)
        assert (last.finish, last.completion_tokens, last.verify_steps) == ("length", limit, steps)
        assert last.accepted_drafts == sum(sizes[1 : steps + 1]) - steps
        cuts += sum(sizes[: steps + 1]) > limit
    assert cuts > 0


def test_no_new_tokens_wanted_ends_after_prefill(target: Path) -> None:
    """`max_new_tokens` 0 emits nothing."""
    outcome = run_prompts(make_engine(target, None), [PROMPT], greedy(0))[0]
    assert (outcome.ids, outcome.last.finish, len(outcome.events)) == ([], "length", 1)


def test_abort_ends_running_and_waiting_requests_and_the_rest_is_unharmed(target: Path, drafter: Path) -> None:
    """One slot: `a` runs, `b` and `c` wait; a and b are aborted, c gets AR's tokens."""
    engine = make_engine(target, drafter, "DDTREE", 7, max_running_requests=1)
    for name in "abc":
        engine.submit(GenerationRequest(name, PROMPT, greedy(20)))
    engine.step()
    assert (engine.running_count, engine.waiting_count) == (1, 2)
    engine.abort("a")
    engine.abort("b")
    engine.abort("unknown")
    events = engine.step()
    while engine.has_work():
        events += engine.step()
    assert [event.finish for event in events if event.request_id in "ab"] == ["abort", "abort"]
    ids = [token for event in events if event.request_id == "c" for token in event.new_ids]
    assert ids == PlainTarget(target).greedy(list(PROMPT), 20)


def test_flush_is_refused_while_busy_and_forgets_prefixes(target: Path) -> None:
    """After a flush the same prompt is computed afresh."""
    engine = make_engine(target, None)
    engine.submit(GenerationRequest("a", PROMPT, greedy(5)))
    assert not engine.flush_cache()
    while engine.has_work():
        engine.step()
    assert engine.flush_cache()
    assert run_prompts(engine, [PROMPT], greedy(2))[0].last.cached_tokens == 0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (GenerationRequest("r", (), greedy(1)), "empty"),
        (GenerationRequest("r", (1,) * 600, greedy(1)), "longer than the model's context length"),
        (GenerationRequest("r", (1,) * 500, greedy(13)), "500 prompt tokens and 13 new ones"),
        (GenerationRequest("r", (12,), greedy(1)), "outside the vocabulary"),
        (GenerationRequest("r", (1,), greedy(1), return_top_logprobs=3), "only AR does"),
        (GenerationRequest("r", (1,), greedy(1), return_input_logprobs=True, input_logprobs_start=1), "0 to 0"),
    ],
)
def test_impossible_requests_are_refused(
    target: Path, drafter: Path, request_: GenerationRequest, message: str
) -> None:
    """One line that says what is allowed; the engine stays idle."""
    engine = make_engine(target, drafter, "DFLASH")
    with pytest.raises(RequestRefusedError, match=message):
        engine.submit(request_)
    assert not engine.has_work()


def test_a_request_id_in_use_is_refused(target: Path) -> None:
    """Two live requests cannot share an id; a finished one may be used again."""
    engine = make_engine(target, None)
    request = GenerationRequest("a", PROMPT, greedy(2))
    engine.submit(request)
    with pytest.raises(RequestRefusedError, match="in use"):
        engine.submit(request)
    while engine.has_work():
        engine.step()
    engine.submit(request)


@pytest.mark.parametrize(
    "values", [{"temperature": -0.1}, {"temperature": math.nan}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": 0}]
)
def test_impossible_sampling_is_refused(values: dict[str, float]) -> None:
    """Each names the allowed range."""
    with pytest.raises(RequestRefusedError, match="must be"):
        SamplingSettings(**{"temperature": 1.0, "max_new_tokens": 4, **values})  # type: ignore[arg-type]


def test_the_context_can_be_filled_to_its_last_token(target: Path, drafter: Path) -> None:
    """Prompt and output together reach 512, with a verify window that would run beyond it."""
    prompt = [(7 * index + index // 5) % 12 for index in range(480)]
    plain = run_prompts(make_engine(target, None), [prompt], greedy(32))[0]
    tree = run_prompts(make_engine(target, drafter, "DDTREE", 31), [prompt], greedy(32))[0]
    assert len(plain.ids) == 32
    assert tree.ids == plain.ids


def test_output_logprobs_are_those_of_the_plain_model(target: Path) -> None:
    """Chosen token and two best, for each output token."""
    request = GenerationRequest("r", PROMPT, greedy(6), return_top_logprobs=2)
    outcome = run_requests(make_engine(target, None), [request])["r"]
    logprobs = PlainTarget(target).run([*PROMPT, *outcome.ids])[0].log_softmax(-1)
    scored = [entry for event in outcome.events for entry in event.output_logprobs or ()]
    assert [entry.token_id for entry in scored] == outcome.ids
    for offset, entry in enumerate(scored):
        best = logprobs[len(PROMPT) - 1 + offset].topk(2)
        assert [token for _, token in entry.top] == best.indices.tolist()
        assert [value for value, _ in entry.top] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert entry.logprob == pytest.approx(entry.top[0][0])


@pytest.mark.parametrize("start", [0, 1, 150, 299])
@pytest.mark.parametrize(("method", "budget"), [("AR", None), ("DDTREE", 7)])
def test_prompt_scores_are_those_of_the_plain_model(
    target: Path, drafter: Path, method: str, budget: int | None, start: int
) -> None:
    """From `start` on, over chunk borders, and also when the same prompt is already cached."""
    prompt = tuple((index * index + 3 * index) % 12 for index in range(300))
    logits = PlainTarget(target).run(list(prompt))[0]
    logprobs = logits.log_softmax(-1)
    engine = make_engine(target, drafter, method, budget)  # type: ignore[arg-type]
    run_prompts(engine, [prompt], greedy(1))
    scoring = GenerationRequest("s", prompt, greedy(1), return_input_logprobs=True, input_logprobs_start=start)
    event = run_requests(engine, [scoring])["s"].events[0]
    assert event.cached_tokens == max(0, start - 1)
    assert event.input_logprobs is not None
    assert [score.position for score in event.input_logprobs] == list(range(start, 300))
    for score in event.input_logprobs:
        assert score.token_id == prompt[score.position]
        if score.position == 0:
            assert (score.logprob, score.top2) == (None, ())
            continue
        row = score.position - 1
        assert score.logprob == pytest.approx(float(logprobs[row, score.token_id]), abs=1e-4)
        assert score.top2_logits == pytest.approx(tuple(logits[row].topk(2).values.tolist()), abs=1e-4)
        assert [token for _, token in score.top2] == logits[row].topk(2).indices.tolist()


def test_description_names_the_rule_behind_the_block_size(target: Path, tmp_path: Path) -> None:
    """A drafter that names no block size gets SGLang's 16, and the description says that it is a guess."""
    silent = write_drafter(tmp_path / "silent", block_size=None)
    described = make_engine(target, silent, "DFLASH").describe()
    assert (described["block_size"], described["draft_budget"], described["verify_width"]) == (16, 15, 16)
    assert "no block_size" in described["block_size_rule"]
    stated = make_engine(target, write_drafter(tmp_path / "stated"), "DDTREE", 7).describe()
    assert (stated["block_size"], stated["block_size_rule"], stated["verify_width"]) == (
        5,
        "config.json: block_size",
        8,
    )


def test_settings_that_contradict_each_other_are_refused(target: Path, drafter: Path) -> None:
    """Too long a context, a chain longer than the block, a method without its drafter, AR with a budget."""
    with pytest.raises(ModelError, match="exceeds the target's 512"):
        make_engine(target, None, context_length=1024)
    with pytest.raises(ModelError, match="block of 4 drafts"):
        make_engine(target, drafter, "DFLASH", 5)
    with pytest.raises(AssertionError, match="needs a drafter"):
        EngineSettings(target, None, "DDTREE", 7, max_running_requests=1)
    with pytest.raises(AssertionError, match="no draft budget"):
        EngineSettings(target, None, "AR", 7, max_running_requests=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA GPU")
def test_cuda_without_a_gpu_is_one_clear_line(target: Path) -> None:
    """Asking for what is not there names the alternative."""
    with pytest.raises(ModelError, match="use device cpu or auto"):
        make_engine(target, None, device="cuda")
