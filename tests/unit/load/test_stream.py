"""Streams become chunks, and every kind of broken stream is named."""

import json
from pathlib import Path

import pytest

from draftbench.load.stream import RawStream, Read, RequestError, parse_reply
from draftbench.records import ChunkRecord
from tests.unit.load.builders import DONE, MS, chunk_body, event, raw_stream

RECORDINGS = Path(__file__).parents[2] / "data" / "sglang-streams"


def recorded(name: str) -> RawStream:
    """A stream of real SGLang 0.5.17, line by line as it arrived."""
    lines = json.loads((RECORDINGS / f"{name}.json").read_text())["lines"]
    return RawStream(0, [Read(round(seconds * 1e9), f"{line}\n".encode()) for seconds, line in lines], 10**9)


@pytest.mark.parametrize("name", ["dflash-cumulative", "dflash-incremental"])
def test_real_dflash_streams_give_one_chunk_a_verify_step(name: str) -> None:
    """The recorded request has 24 tokens, 18 verify steps, histogram 13/4/1; so 19 chunks that sum to 24."""
    reply = parse_reply(recorded(name))

    assert reply.completion_tokens == 24
    assert len(reply.chunks) == 19
    assert sum(chunk.new_tokens for chunk in reply.chunks) == 24
    assert len(reply.output_ids) == 24
    assert reply.output_ids[:3] == (504, 5967, 8696)
    assert reply.speculation is not None
    assert reply.speculation.verify_steps == 18
    assert reply.speculation.accepted_drafts == 6
    assert reply.speculation.proposed_drafts == 126
    assert reply.speculation.accept_histogram == (13, 4, 1)
    assert (reply.prompt_tokens, reply.cached_tokens, reply.finish_reason) == (21, 4, "length")


def test_cumulative_and_incremental_streams_of_one_request_hold_the_same_tokens() -> None:
    """The mode of the stream is no part of the answer."""
    cumulative, incremental = (parse_reply(recorded(f"dflash-{mode}")) for mode in ("cumulative", "incremental"))

    assert cumulative.output_ids == incremental.output_ids
    assert [c.new_tokens for c in cumulative.chunks] == [c.new_tokens for c in incremental.chunks]


def test_a_real_autoregressive_stream_has_no_speculation() -> None:
    """AR servers send one token a chunk and no speculative field."""
    reply = parse_reply(recorded("ar-cumulative"))

    assert reply.speculation is None
    assert [chunk.new_tokens for chunk in reply.chunks] == [1] * 24


def test_an_event_counts_when_its_last_byte_came() -> None:
    """An event split over two reads has the second one's time; two events of one read share its time."""
    first, second, last = event(chunk_body([7], 1)), event(chunk_body([8, 9], 3)), event(chunk_body([5], 4, "stop"))
    reply = parse_reply(raw_stream(first[:9], first[9:] + second, last + DONE))

    assert reply.chunks == (ChunkRecord(20 * MS, 1), ChunkRecord(20 * MS, 2), ChunkRecord(30 * MS, 1))
    assert reply.output_ids == (7, 8, 9, 5)


def test_a_split_inside_the_blank_line_loses_nothing() -> None:
    """The end of an event may come byte by byte, also as CR LF."""
    data = event(chunk_body([7], 1, "stop")) + DONE
    crlf = data.replace(b"\n", b"\r\n")
    for stream in (data, crlf):
        reply = parse_reply(raw_stream(*(stream[place : place + 1] for place in range(len(stream)))))
        assert reply.output_ids == (7,)


def test_a_chunk_without_new_tokens_is_no_chunk() -> None:
    """A closing chunk that brings only the finish reason is not a step."""
    reply = parse_reply(raw_stream(event(chunk_body([7], 1)), event(chunk_body([], 1, "stop")), DONE))

    assert reply.chunks == (ChunkRecord(10 * MS, 1),)
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("first", [[7], [7, 8]], ids=["lost", "doubled"])
def test_ids_that_do_not_fit_their_count_stay_unequal_to_it(first: list[int]) -> None:
    """The identities compare ids with completion_tokens; the parser must not make them equal."""
    reply = parse_reply(raw_stream(event(chunk_body(first, 3)), event(chunk_body([9], 4, "stop")), DONE))

    assert reply.completion_tokens == 4
    assert len(reply.output_ids) == len(first) + 1


def test_comments_keep_a_connection_open_and_mean_nothing() -> None:
    """A line that begins with a colon is skipped."""
    reply = parse_reply(raw_stream(b": ping\n\n", event(chunk_body([7], 1, "stop")), DONE))

    assert reply.output_ids == (7,)


@pytest.mark.parametrize(
    ("reads", "kind", "message"),
    [
        ([], "truncated", "before \\[DONE\\]"),
        ([DONE], "truncated", "no chunk"),
        ([event(chunk_body([7], 1, "stop"))], "truncated", "before \\[DONE\\]"),
        ([event(chunk_body([7], 1)), DONE], "truncated", "no finish_reason"),
        ([event(chunk_body([7], 1))[:30]], "truncated", "inside an event"),
        ([event("{not json"), DONE], "malformed", "not JSON"),
        ([event("[1, 2]"), DONE], "malformed", "not a JSON object"),
        ([event({"text": "no meta"}), DONE], "malformed", "meta_info"),
        ([b"<html>\n\n"], "malformed", "not a data line"),
        ([event(chunk_body([7], 1, "stop")), DONE, event(chunk_body([8], 2))], "malformed", "after \\[DONE\\]"),
        ([event(chunk_body([7, 8], 2)), event(chunk_body([7], 1, "stop")), DONE], "malformed", "fell from 2 to 1"),
        ([event({"meta_info": chunk_body([7], 1)["meta_info"]}), DONE], "malformed", "lacks output_ids"),
        ([event(chunk_body([7], 1, "stop", prompt_tokens=None)), DONE], "malformed", "prompt_tokens is None"),
        ([event(chunk_body([7], 1, "stop", spec_verify_ct=1)), DONE], "malformed", "histogram"),
        ([event({"error": {"message": "out of memory"}}), DONE], "server_error", "out of memory"),
        ([event(chunk_body([7], 1, "abort")), DONE], "server_error", "aborted"),
    ],
)
def test_each_kind_of_broken_stream_is_named(reads: list[bytes], kind: str, message: str) -> None:
    """The kind decides the failure class, the message says what was seen."""
    with pytest.raises(RequestError, match=message) as caught:
        parse_reply(raw_stream(*reads))

    assert caught.value.kind == kind
