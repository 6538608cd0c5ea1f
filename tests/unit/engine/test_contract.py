"""The front answers each request recorded from real SGLang in the same form; every difference is listed, with why."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engine.front_driving import WORDS, ServedFront, parse_events, served_front

RECORDINGS = Path(__file__).parents[2] / "data" / "sglang-recordings"
SERVERS = ("0.5.17-ar-h200", "0.5.17-dflash-h200", "0.5.17-dflash-incremental-h200", "0.5.23-ar-cpu")
AR_SERVERS = ("0.5.17-ar-h200", "0.5.23-ar-cpu")

NOT_SENT = {
    "storage_prefetch_wait": "times a tiered prefix cache, which this engine has not",
    "storage_staging_wait": "times a tiered prefix cache, which this engine has not",
    "weight_versions": "lists weight updates while serving, which this engine has not",
}
SENT_IN_ADDITION = {"first_token_latency": "0.5.23 sends it, 0.5.17 does not"}
DIFFERENT_STATUS = {
    ("0.5.17", "error_bad_param"): "0.5.17 answers an unknown sampling parameter with 500; 0.5.23's 400 is followed",
    (
        "0.5.17",
        "flush_busy",
    ): "the recorded request had ended on the fast GPU; refusing while busy is 0.5.23's recording",
    ("*", "chat_stream"): "the chat endpoints are not offered: 400",
    ("*", "chat_spec_details"): "the chat endpoints are not offered: 400",
}
FINISH_FORMS = (
    {"type": "str", "length": "int"},
    {"type": "str", "matched": "int"},
    {"type": "str", "matched": "str"},
)
SERVER_INFO_KEYS = (
    "model_path", "tokenizer_path", "served_model_name", "max_running_requests", "status", "max_total_num_tokens",
    "max_req_input_len", "version", "internal_states",
)  # fmt: skip
INTERNAL_STATE_KEYS = ("effective_max_running_requests_per_dp", "memory_usage")
MODEL_INFO_NOT_SENT = {"embedding": "settings of embedding models, which this server does not serve"}

GENERATING = ("generate", "generate_cached", "generate_sampled", "generate_stop", "generate_batch")
STREAMING = ("generate_stream", "generate_stream_ids", "incremental_probe")
SAME_ERRORS = ("error_negative_temperature", "error_too_long", "error_unknown_path")


def recorded(server: str, case: str) -> dict[str, Any]:
    """One recorded exchange."""
    document: dict[str, Any] = json.loads((RECORDINGS / f"{server}.json").read_text())["cases"][case]
    return document


def serve(server: str) -> Any:
    """A front configured as the recorded server was."""
    if "dflash" not in server:
        return served_front()
    script = {"method": "DFLASH", "draft_budget": 7, "depth": 7, "mean_yield": 2.0}
    return served_front(incremental="incremental" in server, **script)


async def ask(front: ServedFront, case: dict[str, Any]) -> tuple[int, str | None, bytes]:
    """Status, content type and body of the recorded request, asked here."""
    request = case["request"]
    if isinstance(request, dict) and request.get("input_ids") == "9000 times the id 100":
        request = request | {"input_ids": [100] * 9000}
    data = request.encode() if isinstance(request, str) else None if request is None else json.dumps(request).encode()
    async with front.session.request(case["method"], front.url + case["path"], data=data) as response:
        return response.status, response.headers.get("Content-Type"), await response.read()


def form(value: object) -> object:
    """The types inside a JSON value, key by key; a list's entries as the set of their forms."""
    if isinstance(value, dict):
        return {key: form(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(form(entry), sort_keys=True) for entry in value})
    return type(value).__name__


def comparable(body: dict[str, Any], dropped: dict[str, str]) -> object:
    """The form of a `/generate` body without the listed differences and without what depends on the prefix cache."""
    meta_info = {key: value for key, value in body["meta_info"].items() if key not in dropped}
    meta_info["cached_tokens_details"] = None
    reason = meta_info["finish_reason"]
    if reason is not None:  # a length or a stop, as the tokens fell
        assert form(reason) in FINISH_FORMS
        meta_info["finish_reason"] = "finished"
    return form(body | {"meta_info": meta_info})


def assert_same_form(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Two `/generate` bodies have the same keys and types, the listed differences apart."""
    extra = {key: why for key, why in SENT_IN_ADDITION.items() if key not in theirs["meta_info"]}
    assert comparable(ours, extra) == comparable(theirs, NOT_SENT)
    assert NOT_SENT.keys() & ours["meta_info"].keys() == set()


def test_every_recorded_case_is_held_to_something() -> None:
    """A case added to the recordings cannot stay without a test."""
    other = {
        "generate_long_stream",
        "generate_logprob",
        "error_bad_json",
        "error_bad_param",
        "flush_busy",
        "flush_idle",
    }
    small = {"health", "health_generate", "metrics", "model_info", "server_info", "chat_stream", "chat_spec_details"}
    tested = {*GENERATING, *STREAMING, *SAME_ERRORS, *other, *small}
    for server in SERVERS:
        assert set(json.loads((RECORDINGS / f"{server}.json").read_text())["cases"]) == tested


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", GENERATING)
async def test_a_reply_has_the_recorded_form(server: str, name: str) -> None:
    """Status, content type, key sets and types of each whole reply are SGLang's."""
    case = recorded(server, name)
    async with serve(server) as front:
        status, content_type, raw = await ask(front, case)
    ours, theirs = json.loads(raw), json.loads(case["body"])

    assert (status, content_type) == (case["status"], case["headers"]["content-type"])
    assert type(ours) is type(theirs)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, list) else [(ours, theirs)]
    for mine, other in pairs:
        assert_same_form(mine, other)


@pytest.mark.parametrize("server", SERVERS)
async def test_a_stop_string_ends_a_reply_as_recorded(server: str) -> None:
    """The finish reason names the string, the text ends before it, the ids go on to the token that completes it."""
    case = recorded(server, "generate_stop")
    async with serve(server) as front:
        ours = json.loads((await ask(front, case))[2])
    theirs = json.loads(case["body"])

    for body in (ours, theirs):
        assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": "name"}
        assert body["meta_info"]["completion_tokens"] == len(body["output_ids"]) < 40
        assert "name" not in body["text"]
    assert ours["output_ids"][-1] == WORDS.index(" name")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", STREAMING)
async def test_a_stream_has_the_recorded_form(server: str, name: str) -> None:
    """Framing is SGLang's, and so are the keys and types of the first, a middle and the last chunk."""
    case = recorded(server, name)
    async with serve(server) as front:
        status, content_type, raw = await ask(front, case)
    ours = parse_events(raw)
    *lines, done = (line for _, line in case["lines"])
    theirs = [json.loads(line.removeprefix("data: ")) for line in lines]

    assert done == "data: [DONE]\n"
    assert (status, content_type) == (case["status"], case["headers"]["content-type"])
    for index in (0, 1, -1):
        assert_same_form(ours[index], theirs[index])


@pytest.mark.parametrize("server", SERVERS)
async def test_a_stream_that_was_cut_off_began_in_the_recorded_form(server: str) -> None:
    """The recording of the long stream ends early, for the client left; its first chunks are compared."""
    case = recorded(server, "generate_long_stream")
    async with serve(server) as front:
        ours = parse_events((await ask(front, case))[2])
    theirs = [json.loads(line.removeprefix("data: ")) for _, line in case["lines"]]

    for index in (0, 1, 2):
        assert_same_form(ours[index], theirs[index])


@pytest.mark.parametrize("server", SERVERS)
async def test_chunks_are_cumulative_or_new_as_recorded(server: str) -> None:
    """Each chunk carries all ids so far, or with --incremental-streaming-output only the new ones."""
    case = recorded(server, "generate_stream")
    async with serve(server) as front:
        ours = parse_events((await ask(front, case))[2])
    theirs = [json.loads(line.removeprefix("data: ")) for _, line in case["lines"][:-1]]

    for chunks in (ours, theirs):
        lengths = [len(chunk["output_ids"]) for chunk in chunks]
        totals = [chunk["meta_info"]["completion_tokens"] for chunk in chunks]
        assert (sum(lengths) if "incremental" in server else lengths[-1]) == totals[-1] == 40
        assert (lengths == totals) == ("incremental" not in server)


@pytest.mark.parametrize("server", SERVERS)
async def test_logprobs_come_as_recorded_or_are_refused_as_recorded(server: str) -> None:
    """AR returns SGLang's lists; a DFLASH server refuses in SGLang's words."""
    case = recorded(server, "generate_logprob")
    async with serve(server) as front:
        status, _, raw = await ask(front, case)
    ours, theirs = json.loads(raw), json.loads(case["body"])

    assert status == case["status"]
    if server in AR_SERVERS:
        assert_same_form(ours, theirs)
        tops = ours["meta_info"]["output_top_logprobs"], theirs["meta_info"]["output_top_logprobs"]
        assert [[len(row) for row in top] for top in tops] == [[2] * 6] * 2
    else:
        assert ours == theirs


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", SAME_ERRORS)
async def test_an_error_is_the_recorded_one_word_for_word(server: str, name: str) -> None:
    """Negative temperature, a prompt beyond the context, an unknown path."""
    case = recorded(server, name)
    async with serve(server) as front:
        status, content_type, raw = await ask(front, case)

    assert (status, content_type) == (case["status"], case["headers"]["content-type"])
    assert json.loads(raw) == json.loads(case["body"])


async def test_an_unknown_sampling_parameter_is_refused_as_in_0_5_23() -> None:
    """The body is 0.5.23's word for word, the list of parameters included."""
    case = recorded("0.5.23-ar-cpu", "error_bad_param")
    async with serve("0.5.23-ar-cpu") as front:
        status, _, raw = await ask(front, case)

    assert (status, json.loads(raw)) == (400, json.loads(case["body"]))


@pytest.mark.parametrize("server", SERVERS)
async def test_bad_json_has_the_recorded_form(server: str) -> None:
    """The message names the fault in our words; keys, types and the fixed values are SGLang's."""
    case = recorded(server, "error_bad_json")
    async with serve(server) as front:
        status, content_type, raw = await ask(front, case)
    ours, theirs = json.loads(raw), json.loads(case["body"])

    assert (status, content_type) == (400, case["headers"]["content-type"])
    assert {**ours, "message": ""} == {**theirs, "message": ""}


@pytest.mark.parametrize("name", ["flush_idle", "health", "health_generate"])
async def test_a_plain_answer_is_the_recorded_one(name: str) -> None:
    """Status and body; SGLang sends these without a content type, aiohttp cannot."""
    case = recorded("0.5.23-ar-cpu", name)
    async with serve("0.5.23-ar-cpu") as front:
        status, _, raw = await ask(front, case)

    assert (status, raw.decode()) == (case["status"], case["body"])


async def test_a_flush_while_busy_is_refused_as_recorded() -> None:
    """400 and SGLang's text while a request runs."""
    case = recorded("0.5.23-ar-cpu", "flush_busy")
    async with served_front(step_seconds=0.02) as front:
        body = {"input_ids": [5], "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}, "stream": True}
        async with front.session.post(f"{front.url}/generate", json=body) as running:
            await running.content.readline()
            status, _, raw = await ask(front, case)

    assert (status, raw.decode()) == (case["status"], case["body"]) == (400, "Flush cache failed.\n")


@pytest.mark.parametrize("name", ["chat_stream", "chat_spec_details"])
async def test_chat_is_refused_with_a_reason(name: str) -> None:
    """A listed difference: 400 with SGLang's error form instead of a chat reply."""
    async with serve("0.5.23-ar-cpu") as front:
        status, _, raw = await ask(front, recorded("0.5.23-ar-cpu", name))

    assert status == 400
    assert "/v1/chat/completions is not offered" in json.loads(raw)["error"]["message"]


@pytest.mark.parametrize("server", SERVERS)
async def test_every_other_status_is_the_recorded_one(server: str) -> None:
    """Only the listed cases differ in status, and those do differ."""
    cases = json.loads((RECORDINGS / f"{server}.json").read_text())["cases"]
    listed = {name for version, name in DIFFERENT_STATUS if version == "*" or server.startswith(version)}
    async with serve(server) as front:
        statuses = {name: (await ask(front, case))[0] for name, case in cases.items() if name != "flush_busy"}

    different = {name for name, status in statuses.items() if status != cases[name]["status"]}
    assert different == listed - {"flush_busy"}


@pytest.mark.parametrize("server", SERVERS)
async def test_server_info_has_what_clients_read(server: str) -> None:
    """The keys that clients and the parity gate read are there, with SGLang's types; `engine` is ours."""
    theirs = json.loads(recorded(server, "server_info")["body"])
    async with serve(server) as front:
        ours = json.loads((await ask(front, recorded(server, "server_info")))[2])
        also = json.loads((await ask(front, {"method": "GET", "path": "/get_server_info", "request": None}))[2])

    assert ours.keys() == also.keys()
    for key in SERVER_INFO_KEYS:
        assert key in theirs
        assert theirs[key] is None or type(ours[key]) is type(theirs[key]), key
    for key in INTERNAL_STATE_KEYS:
        assert type(ours["internal_states"][0][key]) is type(theirs["internal_states"][0][key])
    assert type(ours["internal_states"][0]["memory_usage"]["token_capacity"]) is int


@pytest.mark.parametrize("server", SERVERS)
async def test_model_info_has_the_recorded_form(server: str) -> None:
    """Keys and types are SGLang's, the listed difference apart; 0.5.17 sends fewer."""
    theirs = json.loads(recorded(server, "model_info")["body"])
    async with serve(server) as front:
        ours = json.loads((await ask(front, recorded(server, "model_info")))[2])

    missing = theirs.keys() - ours.keys()
    assert missing == MODEL_INFO_NOT_SENT.keys() & theirs.keys()
    shared = theirs.keys() & ours.keys()
    assert form({key: ours[key] for key in shared}) == form({key: theirs[key] for key in shared})


def metric_families(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and label names of each metric in a Prometheus text."""
    kinds = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE"))
    labels: dict[str, set[str]] = {name: set() for name in kinds}
    for line in text.splitlines():
        name = line.split("{")[0].removesuffix("_sum").removesuffix("_count")
        if name in labels and "{" in line:
            labels[name] |= {pair.split("=")[0] for pair in line.split("{")[1].split("}")[0].split(",")}
    return {name: (kind, frozenset(labels[name])) for name, kind in kinds.items()}


async def test_metrics_have_sglangs_names_types_and_labels() -> None:
    """Each metric of ours exists in the recording with the same type and labels."""
    case = recorded("0.5.17-dflash-h200", "metrics")
    theirs = metric_families(case["body"])
    async with serve("0.5.17-dflash-h200") as front:
        await front.generate(input_ids=[5], sampling_params={"max_new_tokens": 8})
        await front.stream(input_ids=[5], sampling_params={"max_new_tokens": 8})
        await ask(front, recorded("0.5.17-dflash-h200", "health"))
        _, content_type, raw = await ask(front, case)
    ours = metric_families(raw.decode())
    no_abort_recorded = {"sglang:num_aborted_requests_total"}

    assert content_type == case["headers"]["content-type"]
    assert ours.keys() - theirs.keys() == no_abort_recorded
    assert {name: ours[name] for name in ours.keys() - no_abort_recorded} == {
        name: theirs[name] for name in ours.keys() - no_abort_recorded
    }
    for needed in ("num_running_reqs", "num_queue_reqs", "generation_tokens_total", "spec_accept_length"):
        assert f"sglang:{needed}" in ours
