"""Bodies and `meta_info`; expected numbers are SGLang's recorded ones or counted by hand."""

from typing import Any

from draftbench.engine.http_request_state import (
    RequestClock,
    RequestState,
    StepOutput,
    speculation_fields,
    trimmed,
)
from draftbench.engine.http_requests import parse_generate
from draftbench.engine.http_text import trim_at_stop
from draftbench.engine.interface import InputLogprob, OutputLogprob, TokenEvent
from tests.unit.engine.front_driving import WordCodec


def event(new_ids: tuple[int, ...], total: int, **more: Any) -> TokenEvent:
    """An event of one request with a prompt of three tokens."""
    fields = {"finish": None, "matched_stop": None, "cached_tokens": 0, "prompt_tokens": 3} | more
    return TokenEvent("r", new_ids, completion_tokens=total, **fields)


def state_of(incremental: bool = False, received: float = 10.0, **body: Any) -> RequestState:
    """The state of a fresh request, dispatched half a second after it came."""
    (prompt,) = parse_generate({"input_ids": [5, 6, 7], "rid": "r"} | body).prompts
    return RequestState(prompt, [5, 6, 7], WordCodec(), RequestClock(received, received + 0.5), incremental)


def test_acceptance_fields_are_those_sglang_computed() -> None:
    """0.5.17's recorded request: 40 tokens, 21 steps of 7 drafts, 18 accepted, histogram 9 8 2 2."""
    finished = event(
        (75,), 40, finish="length", verify_steps=21, accepted_drafts=18, proposed_drafts=147,
        accept_histogram=(9, 8, 2, 2, 0, 0, 0, 0),
    )  # fmt: skip

    assert speculation_fields(finished) == {
        "spec_accept_rate": 0.12244897959183673,
        "spec_accept_length": 1.9047619047619047,
        "spec_num_correct_drafts": 18,
        "spec_num_proposed_drafts": 147,
        "spec_verify_ct": 21,
        "spec_accepted_drafts": 18,
        "spec_proposed_drafts": 147,
        "spec_correct_drafts_histogram": [9, 8, 2, 2],
        "spec_accept_histogram": [9, 8, 2, 2],
    }


def test_without_a_verify_step_there_is_no_acceptance() -> None:
    """AR, and a request that ended with its prefill: missing, not 0."""
    assert speculation_fields(event((5,), 1, finish="length")) == {}


def test_times_are_those_of_the_steps() -> None:
    """Received at 10, dispatched 10.5, first step 11 to 12, last step ends at 16 with 5 tokens."""
    state = state_of()
    first = state.advance(StepOutput(event((3,), 1), None, 11.0, 12.0))["meta_info"]
    last = state.advance(StepOutput(event((4, 5, 6, 7), 5, finish="length"), None, 15.0, 16.0))["meta_info"]

    assert first["queue_time"] == last["queue_time"] == 0.5
    assert first["prefill_finished_time"] - first["forward_entry_time"] == 1.0
    assert "e2e_latency" not in first
    assert (last["e2e_latency"], last["first_token_latency"]) == (6.0, 2.0)
    assert last["decode_throughput"] == 1.0  # 4 tokens after the first, in 16 - 12 seconds


def test_whole_chunks_repeat_and_incremental_chunks_do_not() -> None:
    """Ids 3, then 4 and 5: words " user", " name", " age"."""
    steps = [event((3,), 1), event((4, 5), 3, finish="length")]
    bodies = {
        mode: [state.advance(StepOutput(step, None, 0, 1)) for step in steps]
        for mode, state in {True: state_of(incremental=True), False: state_of()}.items()
    }

    assert [(body["text"], body["output_ids"]) for body in bodies[True]] == [(" user", [3]), (" name age", [4, 5])]
    assert [body["text"] for body in bodies[False]] == [" user", " user name age"]
    assert bodies[False][1]["output_ids"] == [3, 4, 5]


def test_an_end_token_is_counted_but_not_shown() -> None:
    """The id stays in output_ids and completion_tokens; the text ends before it."""
    state = state_of(sampling_params={"stop_token_ids": [4]})
    body = state.advance(StepOutput(event((3, 4), 2, finish="stop", matched_stop=4), None, 0, 1))

    assert (body["text"], body["output_ids"]) == (" user", [3, 4])
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": 4}


def test_text_that_may_be_a_stop_string_waits() -> None:
    """Stop "name age": " name" is shown only up to the space while it may still come, then trimmed away."""
    state = state_of(incremental=True, sampling_params={"stop": "name age"})
    held = state.advance(StepOutput(event((3, 4), 2), None, 0, 1))
    ended = state.advance(StepOutput(event((5,), 3, finish="stop"), "name age", 1, 2))

    assert (held["text"], held["output_ids"]) == (" user ", [3, 4])
    assert (ended["text"], ended["output_ids"]) == ("", [5])
    assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": "name age"}


def test_held_text_is_shown_when_the_stop_string_does_not_come() -> None:
    """Incremental pieces add up to the whole text."""
    state = state_of(incremental=True, sampling_params={"stop": "name age"})
    steps = [event((3, 4), 2), event((6,), 3), event((4,), 4, finish="length")]

    assert "".join(state.advance(StepOutput(step, None, 0, 1))["text"] for step in steps) == " user name list name"


def test_logprobs_are_lists_of_value_id_and_no_text() -> None:
    """The token at logprob_start_len comes first, unscored; candidates are cut to the number asked for."""
    state = state_of(return_logprob=True, logprob_start_len=1, top_logprobs_num=1)
    scored = (InputLogprob(2, 7, -0.5, ((-0.5, 7), (-1.5, 8)), (4.0, 3.0)),)
    chosen = (OutputLogprob(3, -0.25, ((-0.25, 3), (-2.0, 4))),)
    step = event((3,), 1, finish="length", input_logprobs=scored, output_logprobs=chosen)
    meta_info = state.advance(StepOutput(step, None, 0, 1))["meta_info"]

    assert meta_info["input_token_logprobs"] == [(None, 6, None), (-0.5, 7, None)]
    assert meta_info["input_top_logprobs"] == [None, [(-0.5, 7, None)]]
    assert meta_info["output_token_logprobs"] == [(-0.25, 3, None)]
    assert meta_info["output_top_logprobs"] == [[(-0.25, 3, None)]]
    assert meta_info["output_token_logprobs_length"] == 1


def test_an_aborted_wait_has_no_first_token_time() -> None:
    """A request that never ran has no forward entry; the field is missing."""
    meta_info = state_of().advance(StepOutput(event((), 0, finish="abort"), None, 0, 12.0))["meta_info"]

    assert meta_info["finish_reason"]["type"] == "abort"
    assert not meta_info.keys() & {"forward_entry_time", "first_token_latency", "decode_throughput"}


def test_trimming() -> None:
    """A stop string is cut, or kept where asked; empty upper bins go, inner ones stay."""
    assert trim_at_stop("a END b", "END", keep_stop=False) == "a "
    assert trim_at_stop("a END b", "END", keep_stop=True) == "a END"
    assert trimmed((1, 0, 2, 0, 0)) == [1, 0, 2]
