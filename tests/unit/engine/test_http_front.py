"""The endpoints beyond what the recordings show: batches in streams, aborts, lost clients, identities under load."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.unit.engine.front_driving import parse_events, served_front

DRAFTING = {"method": "DDTREE", "draft_budget": 15, "depth": 7, "mean_yield": 2.5}
FOREVER = {"max_new_tokens": 8000, "ignore_eos": True}


async def until_idle(front: Any) -> None:
    """Wait until the engine has nothing left; the test's own timeout bounds it."""
    while not await front.engine.flush_cache():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("incremental", [True, False])
async def test_identities_hold_for_each_of_many_streams(incremental: bool) -> None:
    """Prompt tokens are the ids sent, chunk tokens sum up, chunks - 1 = steps, the histogram's moments agree."""
    async with served_front(incremental=incremental, max_running_requests=3, **DRAFTING) as served:
        prompts = [[5, 6, 7 + index] for index in range(8)]
        asked = [
            served.stream(input_ids=ids, rid=f"r{ids[-1]}", sampling_params={"max_new_tokens": 60}) for ids in prompts
        ]
        streams = await asyncio.gather(*asked)

    for ids, chunks in zip(prompts, streams, strict=True):
        last = chunks[-1]["meta_info"]
        counts = [chunk["meta_info"]["completion_tokens"] for chunk in chunks]
        new = [after - before for before, after in zip([0, *counts], counts, strict=False)]
        carried = [len(chunk["output_ids"]) for chunk in chunks]
        assert carried == (new if incremental else counts)
        assert {chunk["meta_info"]["id"] for chunk in chunks} == {f"r{ids[-1]}"}
        assert (last["prompt_tokens"], sum(new)) == (3, last["completion_tokens"])
        assert len(chunks) - 1 == last["spec_verify_ct"] == sum(last["spec_accept_histogram"])
        moment = sum(run * steps for run, steps in enumerate(last["spec_accept_histogram"]))
        assert moment == last["spec_accepted_drafts"]
        assert last["spec_proposed_drafts"] == 15 * last["spec_verify_ct"]
        assert not any("spec_verify_ct" in chunk["meta_info"] for chunk in chunks[:-1])


async def test_streamed_and_whole_replies_say_the_same() -> None:
    """Same ids, same text, same acceptance."""
    body = {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 30, "temperature": 0}}
    async with served_front(prefix_reuse=False, **DRAFTING) as served:
        whole = await served.generate(**body)
        streamed = (await served.stream(**body))[-1]

    assert (whole["text"], whole["output_ids"]) == (streamed["text"], streamed["output_ids"])
    keys = ("spec_accept_histogram", "completion_tokens", "finish_reason")
    assert [whole["meta_info"][key] for key in keys] == [streamed["meta_info"][key] for key in keys]


async def test_a_streamed_batch_tells_its_prompts_apart() -> None:
    """Each chunk has its prompt's index; each prompt has its own finish."""
    async with served_front() as served:
        chunks = await served.stream(text=["a", "b", "c"], sampling_params={"max_new_tokens": 4})

    assert Counter(chunk["index"] for chunk in chunks) == {0: 4, 1: 4, 2: 4}
    finished = [chunk["index"] for chunk in chunks if chunk["meta_info"]["finish_reason"]]
    assert sorted(finished) == [0, 1, 2]


async def test_a_batch_comes_back_in_the_order_of_its_prompts() -> None:
    """Even where the first prompt takes longest."""
    parameters = [{"max_new_tokens": count} for count in (9, 5, 1)]
    async with served_front() as served:
        replies = await served.generate(input_ids=[[5], [6], [7]], sampling_params=parameters)

    assert [reply["meta_info"]["completion_tokens"] for reply in replies] == [9, 5, 1]


async def test_a_refused_stream_is_one_error_event() -> None:
    """As SGLang: HTTP 200, the error as the only event, then [DONE]; nothing is started."""
    async with served_front(context_length=10) as served:
        (only,) = await served.stream(input_ids=[5] * 10, sampling_params={"max_new_tokens": 1})
        assert served.scripted.waiting_count == served.scripted.running_count == 0

    assert only["error"]["message"] == "The input (10 tokens) is longer than the model's context length (10 tokens)."
    assert only["error"]["code"] == 400


async def test_one_bad_prompt_refuses_its_whole_batch() -> None:
    """No prompt of it runs on unseen."""
    async with served_front() as served:
        async with served.session.post(f"{served.url}/generate", json={"input_ids": [[5], [99999]]}) as response:
            assert response.status == 400
        assert not served.scripted.has_work()


async def test_an_id_in_use_is_refused() -> None:
    """And free again after its request."""
    async with served_front(step_seconds=0.01) as served:
        body = {"input_ids": [5], "rid": "same", "sampling_params": FOREVER, "stream": True}
        async with served.session.post(f"{served.url}/generate", json=body) as first:
            await first.content.readline()
            async with served.session.post(f"{served.url}/generate", json={"input_ids": [5], "rid": "same"}) as second:
                assert second.status == 400
                assert "Duplicate request ID" in (await second.json())["error"]["message"]
        await until_idle(served.front)
        assert (await served.generate(input_ids=[5], rid="same"))["meta_info"]["id"] == "same"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_slot(stream: bool) -> None:
    """The request ends although thousands of tokens are left."""
    async with served_front(step_seconds=0.005) as served:
        body = {"input_ids": [5], "sampling_params": FOREVER, "stream": stream}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), served.session.post(f"{served.url}/generate", json=body) as response:
                await response.read()
        assert served.front.metrics.generation_tokens.total() == 0
        await until_idle(served.front)


@pytest.mark.parametrize("body", [{"rid": "job"}, {"rid": "", "abort_all": True}])
async def test_abort_request_ends_what_it_names(body: dict[str, Any]) -> None:
    """By the beginning of the id, or all; the stream ends with reason "abort"."""
    async with served_front(step_seconds=0.005) as served:
        asked = asyncio.create_task(served.stream(input_ids=[5], rid="job-1", sampling_params=FOREVER))
        while not served.scripted.running_count:
            await asyncio.sleep(0.01)
        async with served.session.post(f"{served.url}/abort_request", json=body) as response:
            assert response.status == 200
        chunks = await asked

    assert chunks[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    assert chunks[-1]["meta_info"]["completion_tokens"] < 8000


async def test_an_abort_without_a_name_ends_nothing() -> None:
    """An empty id is not the beginning of every id."""
    async with served_front(step_seconds=0.005) as served:
        asked = asyncio.create_task(served.stream(input_ids=[5], sampling_params={"max_new_tokens": 20}))
        async with served.session.post(f"{served.url}/abort_request", json={"rid": ""}) as response:
            assert response.status == 200
        assert (await asked)[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 20}


async def test_health_generate_really_generates_and_is_not_counted() -> None:
    """The engine took a step; the metrics show no request."""
    async with served_front() as served:
        async with served.session.get(f"{served.url}/health_generate") as response:
            assert response.status == 200
        assert served.front.metrics.requests.total() == 0
        served.scripted.hanging = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), served.session.get(f"{served.url}/health_generate"):
                pass


async def test_a_flush_forgets_prefixes() -> None:
    """A prompt of 130 tokens is found again up to 128 (blocks of 64), and no more after a flush by GET or POST."""
    body = {"input_ids": [5] * 130, "sampling_params": {"max_new_tokens": 1}}
    async with served_front() as served:
        cached = []
        for method in ("GET", "POST"):
            replies = [await served.generate(**body) for _ in range(2)]
            cached += [reply["meta_info"]["cached_tokens"] for reply in replies]
            async with served.session.request(method, f"{served.url}/flush_cache") as response:
                assert response.status == 200

    assert cached == [0, 128, 0, 128]


async def test_models_names_the_served_model() -> None:
    """With the context length that clients plan by."""
    async with (
        served_front(context_length=2048) as served,
        served.session.get(f"{served.url}/v1/models") as response,
    ):
        (card,) = (await response.json())["data"]

    assert (card["id"], card["max_model_len"]) == ("m", 2048)


async def test_a_wrong_method_on_a_path_is_405() -> None:
    """And counted under its path."""
    async with served_front() as served:
        async with served.session.get(f"{served.url}/generate") as response:
            assert (response.status, await response.json()) == (405, {"detail": "Method Not Allowed"})
        assert served.front.metrics.http_responses[("/generate", "GET", 405)] == 1


async def test_events_are_framed_however_the_chunks_are_split() -> None:
    """The raw stream is `data: {...}` and a blank line for each event, [DONE] last, and nothing else."""
    async with served_front() as served:
        body = {"input_ids": [5], "sampling_params": {"max_new_tokens": 3}, "stream": True}
        async with served.session.post(f"{served.url}/generate", json=body) as response:
            raw = await response.read()
            assert response.headers["Transfer-Encoding"] == "chunked"

    assert len(parse_events(raw)) == 3
