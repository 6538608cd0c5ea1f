"""What a `/generate` body asks for; defaults, ranges and messages are SGLang's."""

from typing import Any

import pytest

from draftbench.engine.http_requests import (
    PromptRequest,
    check_ids,
    check_length,
    check_logprobs,
    parse_generate,
)
from draftbench.engine.http_sampling import BadRequestError


def prompt_of(**body: Any) -> PromptRequest:
    """The only prompt of a body."""
    (prompt,) = parse_generate({"input_ids": [5, 6, 7]} | body).prompts
    return prompt


def refusal(body: object) -> BadRequestError:
    """How a body is refused."""
    with pytest.raises(BadRequestError) as caught:
        parse_generate(body)
    return caught.value


def test_unset_sampling_parameters_are_sglangs_defaults() -> None:
    """SamplingParams of SGLang 0.5.17: temperature 1, top_p 1, no top_k, 128 new tokens, EOS obeyed."""
    sampling = prompt_of().sampling

    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, -1)
    assert (sampling.max_new_tokens, sampling.ignore_eos, sampling.seed) == (128, False, None)


def test_given_sampling_parameters_reach_the_engine() -> None:
    """Each supported parameter under SGLang's name."""
    parameters = {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "max_new_tokens": 9, "stop_token_ids": [7, 8]}
    parameters |= {"ignore_eos": True, "sampling_seed": 3, "stop": "END", "skip_special_tokens": False}
    prompt = prompt_of(sampling_params=parameters)
    request = prompt.engine_request([5, 6, 7], 100)

    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_new_tokens) == (0.7, 0.9, 20, 9)
    assert (sampling.stop_token_ids, sampling.ignore_eos, sampling.seed) == (frozenset({7, 8}), True, 3)
    assert (prompt.stop_strings, prompt.skip_special_tokens) == (("END",), False)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"temperature": -0.5}, "temperature must be a non-negative finite number, got -0.5."),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0.0."),
        ({"top_k": 0}, "top_k must be -1 (disable) or at least 1, got 0."),
        ({"max_new_tokens": -1}, "max_new_tokens must be at least 0, got -1."),
        ({"max_new_tokens": 1.5}, "max_new_tokens must be an integer, got 1.5."),
        ({"temperature": "hot"}, "temperature must be a number, got 'hot'."),
        ({"stop": 5}, "stop must be a string or a list of strings."),
        ({"json_schema": "{}"}, "json_schema is not supported by this server."),
        ({"n": 2}, "n is not supported by this server."),
    ],
)
def test_a_bad_sampling_parameter_is_refused_by_name(parameters: dict[str, Any], message: str) -> None:
    """400 and one sentence that names the parameter."""
    error = refusal({"input_ids": [5], "sampling_params": parameters})

    assert (error.status, error.body) == (400, {"error": {"message": message}})


def test_parameters_that_ask_for_nothing_are_accepted() -> None:
    """Clients such as bench_serving send neutral values of what this server lacks."""
    neutral = {"n": 1, "min_p": 0.0, "repetition_penalty": 1.0, "frequency_penalty": 0, "regex": None}
    prompt = prompt_of(sampling_params=neutral, lora_path=None, image_data=[], return_routed_experts=False)

    assert prompt.sampling.max_new_tokens == 128


@pytest.mark.parametrize(
    "body",
    [[], {}, {"text": "a", "input_ids": [1]}, {"text": 5}, {"input_ids": ["a"]}, {"input_ids": [True]}, {"text": []}],
)
def test_a_body_without_one_usable_prompt_is_refused(body: object) -> None:
    """Not an object, neither or both prompts, wrong types, an empty batch."""
    assert refusal(body).status == 400


def test_what_the_server_lacks_is_refused_instead_of_ignored() -> None:
    """An image would otherwise be dropped in silence."""
    assert refusal({"text": "a", "image_data": "x.png"}).message == "image_data is not supported by this server."


def test_a_batch_has_one_request_a_prompt() -> None:
    """Per-prompt lists are taken apart, one rid heads the ids."""
    body = parse_generate(
        {"input_ids": [[1], [2, 3]], "rid": "r", "sampling_params": [{"max_new_tokens": 1}, {"max_new_tokens": 2}]}
    )

    assert body.is_batch
    assert [prompt.input_ids for prompt in body.prompts] == [(1,), (2, 3)]
    assert [prompt.request_id for prompt in body.prompts] == ["r_0", "r_1"]
    assert [prompt.sampling.max_new_tokens for prompt in body.prompts] == [1, 2]


def test_a_list_of_another_length_than_the_batch_is_refused() -> None:
    """Three prompts, two rids."""
    assert "rid has 2 entries" in refusal({"text": ["a", "b", "c"], "rid": ["x", "y"]}).message


def test_two_prompts_of_one_id_are_refused() -> None:
    """Their outputs could not be told apart."""
    assert refusal({"text": ["a", "b"], "rid": ["x", "x"]}).status == 400


def test_ids_are_made_where_none_are_given() -> None:
    """Two calls never share an id."""
    assert prompt_of().request_id != prompt_of().request_id


def test_prompt_and_answer_may_fill_the_context_exactly() -> None:
    """SGLang 0.5.23 refuses above the context, not at it: 60 + 40 fits 100, 60 + 41 does not."""
    check_length(prompt_of(sampling_params={"max_new_tokens": 40}), 60, 100)

    with pytest.raises(BadRequestError, match="You requested a total of 101 tokens: 60 tokens from the input"):
        check_length(prompt_of(sampling_params={"max_new_tokens": 41}), 60, 100)


def test_a_prompt_that_fills_the_context_is_too_long() -> None:
    """One token of room is needed."""
    with pytest.raises(BadRequestError, match=r"The input \(100 tokens\) is longer"):
        check_length(prompt_of(), 100, 100)


def test_an_unset_answer_length_is_cut_to_the_room() -> None:
    """128 by default, 40 where the context leaves 40."""
    prompt = prompt_of()
    check_length(prompt, 60, 100)

    assert prompt.engine_request([1] * 60, 100).sampling.max_new_tokens == 40


@pytest.mark.parametrize("ids", [[], [49152], [-1]])
def test_ids_outside_the_vocabulary_are_refused(ids: list[int]) -> None:
    """Before they reach the embedding."""
    with pytest.raises(BadRequestError):
        check_ids(ids, 49152)


@pytest.mark.parametrize("method", ["DFLASH", "DDTREE"])
def test_logprobs_of_a_drafting_server_are_refused_in_sglangs_words(method: str) -> None:
    """The recorded sentence, with the method's own name."""
    with pytest.raises(BadRequestError) as caught:
        check_logprobs(prompt_of(return_logprob=True), 3, method)

    assert caught.value.message == f"{method} speculative decoding does not support return_logprob yet."


def test_input_scores_begin_behind_logprob_start_len() -> None:
    """SGLang's first entry is never scored, so the engine scores from the next position on."""
    request = prompt_of(return_logprob=True, logprob_start_len=0, top_logprobs_num=2).engine_request([5, 6, 7], 100)
    assert (request.return_input_logprobs, request.input_logprobs_start, request.return_top_logprobs) == (True, 1, 2)

    last = prompt_of(return_logprob=True, logprob_start_len=2).engine_request([5, 6, 7], 100)
    assert (last.return_input_logprobs, last.return_top_logprobs) == (False, 1)

    unset = prompt_of(return_logprob=True).engine_request([5, 6, 7], 100)
    assert not unset.return_input_logprobs


@pytest.mark.parametrize(("start", "top"), [(3, 1), (0, 3)])
def test_input_scores_that_cannot_be_had_are_refused(start: int, top: int) -> None:
    """A start behind the prompt; more candidates than the engine keeps."""
    with pytest.raises(BadRequestError):
        check_logprobs(prompt_of(return_logprob=True, logprob_start_len=start, top_logprobs_num=top), 3, "AR")
