"""The client against a real HTTP server."""

import socket

import pytest

from draftbench.load.client import Client, generate_body, parse_scores
from draftbench.load.stream import RequestError, parse_reply
from tests.unit.load.tiny_server import TinyServer, serving

BODY = generate_body("r1", [5, 6, 7, 8], 8, 0.0, 1.0)


async def test_a_streamed_request_comes_back_as_stamped_reads() -> None:
    """Reads are in order of time, after the send; parsed they are the server's tokens."""
    heard: list[int] = []
    async with serving(TinyServer()) as server, Client(server.url) as client:
        raw = await client.generate(BODY, heard.append)

    times = [read.time_ns for read in raw.reads]
    assert raw.sent_ns < times[0]
    assert times == sorted(times) == heard
    assert raw.done_ns >= times[-1]
    assert parse_reply(raw).output_ids == (11, 12, 13, 14, 15, 16, 17)


async def test_the_request_says_everything_that_decides_the_answer() -> None:
    """Ids, cap and temperature are explicit; nothing forbids the natural stop."""
    async with serving(TinyServer()) as server, Client(server.url) as client:
        await client.generate(BODY)

    sent = server.requests[0]
    assert sent["input_ids"] == [5, 6, 7, 8]
    assert sent["sampling_params"] == {"temperature": 0.0, "top_p": 1.0, "max_new_tokens": 8}
    assert sent["stream"] is True
    assert "ignore_eos" not in str(sent)


async def test_requests_one_after_the_other_share_a_connection() -> None:
    """No connect time inside a TTFT: the server sees one peer address."""
    async with serving(TinyServer(step_s=0)) as server, Client(server.url) as client:
        await client.open_connections(1)
        for _ in range(5):
            await client.generate(BODY)

    assert server.calls == 5
    assert len(server.peers) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("http_500", "http_status", "HTTP 500: Internal Server Error: out of luck"),
        ("html", "content_type", "text/html: <html>proxy"),
        ("cut", "truncated", "inside the reply"),
        ("cut_json", "truncated", "inside the reply"),
    ],
)
async def test_a_reply_that_is_no_whole_stream_is_named(fault: str, kind: str, message: str) -> None:
    """Status, content type and a connection that ends early are told apart."""
    async with serving(TinyServer(fault=fault)) as server, Client(server.url) as client:
        with pytest.raises(RequestError, match=message) as caught:
            await client.generate(BODY)

    assert caught.value.kind == kind


async def test_nobody_there_is_a_lost_connection() -> None:
    """A port without a server refuses at once."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(RequestError) as caught:
            await client.generate(BODY)

    assert caught.value.kind == "connection_lost"


async def test_a_refused_flush_is_an_answer_not_an_error() -> None:
    """HTTP 400 while requests run means: not flushed."""
    async with serving(TinyServer(flush_refusals=1)) as server, Client(server.url) as client:
        assert await client.flush_cache() is False
        assert await client.flush_cache() is True


async def test_scores_are_those_of_the_output_alone() -> None:
    """Position `start` has a score although SGLang leaves out the first position it is asked for."""
    async with serving(TinyServer(speculative=False)) as server, Client(server.url) as client:
        scores = await client.score([5, 6, 7, 8, 11, 12], 4, 10.0)

    assert [score.token for score in scores] == [11, 12]
    assert [(score.top1_token, score.top1_logprob) for score in scores] == [(11, -0.25), (12, -0.25)]
    assert [(score.top2_token, score.top2_logprob) for score in scores] == [(99, -1.5), (99, -1.5)]


def scored(*tokens: int) -> dict[str, object]:
    """A scoring reply for these tokens, the first without a score."""
    own = [[None if number == 0 else -0.5, token, None] for number, token in enumerate(tokens)]
    best = [None if number == 0 else [[-0.5, token, None], [-2, 9, None]] for number, token in enumerate(tokens)]
    return {"meta_info": {"input_token_logprobs": own, "input_top_logprobs": best}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (scored(8), "1 positions scored where 2"),
        ({"meta_info": {}}, "0 positions scored"),
        (scored(8, 12, 11), "token 12 was scored where 11"),
        (scored(11, 12), "lacks its two best"),
        ([], "0 positions"),
    ],
)
def test_scores_that_do_not_belong_to_the_tokens_are_refused(body: object, message: str) -> None:
    """Too few positions, other tokens, or a position without candidates never become a margin."""
    with pytest.raises(RequestError, match=message) as caught:
        parse_scores(body, [11, 12])

    assert caught.value.kind == "malformed"
