"""The stub server: SGLang's flags and contract without a model, deterministic, and failing as planted."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.scripted_engine import acceptance_probability
from tests.fakes.stub_server import parse_failures, parse_launch_flags

STUB = Path(__file__).parents[2] / "fakes" / "stub_server.py"
DDTREE = ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "/no/drafter"]
DDTREE += ["--speculative-ddtree-budget", "16"]
FAST = ["--stub-step-ms", "0.2", "--stub-prefill-ms", "0.2"]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Stub:
    """A stub process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(self.url + path) as response:
            return json.load(response)

    def status(self, path: str) -> int:
        """The status at a path."""
        try:
            with urllib.request.urlopen(self.url + path) as response:
                code: int = response.status
                return code
        except urllib.error.HTTPError as error:
            return error.code

    def raw(self, timeout: float = 60, **body: Any) -> bytes:
        """The bytes of a streamed `/generate`."""
        request = urllib.request.Request(f"{self.url}/generate", json.dumps({**body, "stream": True}).encode())
        with urllib.request.urlopen(request, timeout=timeout) as response:
            content: bytes = response.read()
            return content

    def stream(self, **body: Any) -> list[dict[str, Any]]:
        """The chunks of a streamed `/generate`."""
        *events, _done, _rest = self.raw(**body).split(b"\n\n")
        return [json.loads(event.removeprefix(b"data: ")) for event in events]


@contextmanager
def stub(*arguments: str, model: str = "/no/model", **environment: str) -> Iterator[Stub]:
    """A running stub; killed at the end if it still runs."""
    port = free_port()
    command = [sys.executable, str(STUB), "--model-path", model, "--port", str(port), *FAST, *arguments]
    process = subprocess.Popen(command, env=os.environ | environment, cwd="/")
    try:
        while True:  # bounded by the test's timeout
            assert process.poll() is None
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                break
            except urllib.error.URLError:
                time.sleep(0.05)
        yield Stub(process, port)
    finally:
        process.kill()
        process.wait()


def ids_of(chunks: list[dict[str, Any]]) -> list[int]:
    """All ids of a stream with incremental chunks."""
    return [token for chunk in chunks for token in chunk["output_ids"]]


def greedy(tokens: int, **more: Any) -> dict[str, Any]:
    """Greedy sampling parameters."""
    return {"sampling_params": {"max_new_tokens": tokens, "temperature": 0} | more}


def test_any_launch_flag_is_taken_and_reported() -> None:
    """Known, unknown, with several values, as a switch, under an alias."""
    flags = [
        "--tp",
        "4",
        "--cuda-graph-bs",
        "1",
        "2",
        "4",
        "--mem-fraction-static=0.8",
        "--enable-metrics",
        "--new-flag",
        "x",
    ]
    with stub(*flags) as running:
        info = running.get("/server_info")

    assert (info["tp_size"], info["cuda_graph_bs"], info["mem_fraction_static"]) == (4, [1, 2, 4], 0.8)
    assert (info["enable_metrics"], info["new_flag"], info["version"], info["status"]) == (True, "x", "0.5.17", "ready")


def test_identities_hold_and_all_methods_say_the_same() -> None:
    """Prompt tokens, chunk sums, steps and histogram agree; AR and DDTREE give the same greedy tokens."""
    answers = {}
    for name, flags in {"AR": [], "DDTREE": DDTREE}.items():
        with stub("--incremental-streaming-output", *flags) as running:
            assert running.status("/health_generate") == 200
            for seed in range(3):
                chunks = running.stream(input_ids=[5, 6, 7 + seed], **greedy(80))
                last = chunks[-1]["meta_info"]
                assert last["prompt_tokens"] == 3
                assert len(ids_of(chunks)) == last["completion_tokens"]
                steps = last.get("spec_verify_ct", last["completion_tokens"] - 1)
                assert len(chunks) - 1 == steps
                if name == "DDTREE":
                    histogram = last["spec_accept_histogram"]
                    assert sum(histogram) == steps
                    assert sum(run * count for run, count in enumerate(histogram)) == last["spec_accepted_drafts"]
                    assert last["spec_proposed_drafts"] == 16 * steps
                answers[name, seed] = ids_of(chunks)

    for seed in range(3):
        assert answers["AR", seed] == answers["DDTREE", seed]
    assert answers["AR", 0] != answers["AR", 1]


def test_the_yield_is_the_configured_one() -> None:
    """Four requests of 800 tokens at yield 3: the mean lies within a tenth of it."""
    with stub(*DDTREE, "--stub-yield", "3") as running:
        lasts = [running.stream(input_ids=[seed], **greedy(800, ignore_eos=True))[-1]["meta_info"] for seed in range(4)]

    tokens = sum(last["completion_tokens"] - 1 for last in lasts)
    steps = sum(last["spec_verify_ct"] for last in lasts)
    assert tokens / steps == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize(("mean", "depth", "chance"), [(0.24, 2, 0.2), (0.875, 3, 0.5), (4.0, 4, 1.0)])
def test_the_chance_of_acceptance_gives_the_mean_run(mean: float, depth: int, chance: float) -> None:
    """0.2 + 0.04 = 0.24; 0.5 + 0.25 + 0.125 = 0.875; certainty gives the whole depth."""
    assert acceptance_probability(mean, depth) == pytest.approx(chance, abs=1e-9)


def test_two_stubs_answer_alike() -> None:
    """Replays are deterministic over processes, acceptance included."""
    replies = []
    for _ in range(2):
        with stub(*DDTREE) as running:
            last = running.stream(input_ids=[9, 9], **greedy(50))[-1]
            replies.append((last["output_ids"], last["meta_info"]["spec_accept_histogram"]))

    assert replies[0] == replies[1]


def test_the_timeline_tells_start_ready_and_exit(tmp_path: Path) -> None:
    """One JSON line each, with pid, port, GPUs and arm; the ranks end with the stub."""
    path = tmp_path / "timeline.jsonl"
    environment = {"DRAFTBENCH_TIMELINE": str(path), "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    with stub("--tp", "2", "--stub-ranks", "2", *DDTREE, **environment) as running:
        children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait() == 0
        lines = [json.loads(line) for line in path.read_text().splitlines()]

    assert len(children) == 2
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert [line["event"] for line in lines] == ["start", "ready", "exit"]
    assert {line["pid"] for line in lines} == {running.process.pid}
    assert {line["cuda_visible_devices"] for line in lines} == {"GPU-a,GPU-b"}
    assert {line["name"] for line in lines} == {"ddtree-b16_tp2"}
    assert (lines[0]["tp_size"], lines[0]["draft_budget"]) == (2, 16)


def test_a_death_at_start_prints_its_message_and_exits_1() -> None:
    """Before it listens; the message can be set."""
    environment = os.environ | {"DRAFTBENCH_STUB_FAIL": "die_at_start", "DRAFTBENCH_STUB_DEATH_MESSAGE": "NCCL error 5"}
    command = [sys.executable, str(STUB), "--model-path", "/no/model", "--port", str(free_port())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (1, "NCCL error 5\n")


def test_a_death_at_a_request_is_exit_code_1() -> None:
    """The first request is served, the second ends the process."""
    with stub("--stub-fail", "die:2") as running:
        assert running.stream(input_ids=[5], **greedy(3))
        with pytest.raises(OSError, match="closed connection"):
            running.stream(input_ids=[5], **greedy(3))
        assert running.process.wait() == 1


@pytest.mark.parametrize(("kind", "status"), [("http_500", 500), ("http_429", 429)])
def test_a_planted_status_holds_for_the_planted_requests(kind: str, status: int) -> None:
    """The second request alone."""
    with stub("--stub-fail", f"{kind}:2-2") as running:
        assert running.stream(input_ids=[5], **greedy(3))
        with pytest.raises(urllib.error.HTTPError) as caught:
            running.stream(input_ids=[5], **greedy(3))
        assert running.stream(input_ids=[5], **greedy(3))

    assert caught.value.code == status


def test_spoilt_streams_break_what_they_say() -> None:
    """A count one too high, a chunk missing, JSON cut off; each by the request's rid."""
    failures = "wrong_counts#counts,lost_chunk#lost,truncated_json#cut"
    with stub("--incremental-streaming-output", "--stub-fail", failures) as running:
        good = running.stream(input_ids=[5], rid="good", **greedy(20))
        wrong = running.stream(input_ids=[5], rid="counts", **greedy(20))
        lost = running.stream(input_ids=[5], rid="lost", **greedy(20))
        with pytest.raises(http.client.IncompleteRead) as cut:
            running.raw(input_ids=[5], rid="cut", **greedy(20))

    whole, half = cut.value.partial.split(b"\n\n")
    assert json.loads(whole.removeprefix(b"data: "))
    with pytest.raises(json.JSONDecodeError):
        json.loads(half.removeprefix(b"data: "))
    count = good[-1]["meta_info"]["completion_tokens"]
    assert len(ids_of(good)) == count
    assert (len(ids_of(wrong)), wrong[-1]["meta_info"]["completion_tokens"]) == (count, count + 1)
    assert len(ids_of(lost)) == lost[-1]["meta_info"]["completion_tokens"] - 1


def test_a_hang_leaves_the_connection_open_and_health_answering() -> None:
    """As a stuck GPU: /health is 200, nothing is generated."""
    with stub("--stub-fail", "hang:1") as running:
        with pytest.raises(TimeoutError):
            running.raw(timeout=0.5, input_ids=[5], **greedy(3))
        assert running.status("/health") == 200
        assert running.process.poll() is None


def test_a_planted_flush_refusal_is_400() -> None:
    """Though nothing runs."""
    with stub("--stub-fail", "flush_refused") as running:
        assert running.status("/flush_cache") == 400


def test_a_stub_may_ignore_its_end() -> None:
    """Only KILL ends it."""
    with stub("--stub-fail", "ignore_term") as running:
        running.process.terminate()
        assert running.stream(input_ids=[5], **greedy(3))
        assert running.process.poll() is None


def test_failures_concern_the_named_command_lines() -> None:
    """A name, `@` and the command line, `#` and the request's id, the request's turn, open calls."""
    text = "die:3@DDTREE, http_500:2-4#code, hang@DFLASH, ddtree-b8_tp1:http_429_concurrency_4, ar_tp1:die_at_start"
    failures = parse_failures(text, "--speculative-algorithm DDTREE", "ddtree-b8_tp1")

    assert [failure.kind for failure in failures] == ["die", "http_500", "http_429"]
    assert [failures[2].hits(1, "", open_calls) for open_calls in (1, 3, 4)] == [False, False, True]
    assert [failures[0].hits(count, "") for count in (2, 3, 9)] == [False, True, True]
    assert [failures[1].hits(count, "code-1") for count in (1, 2, 4, 5)] == [False, True, True, False]
    assert not failures[1].hits(3, "json-1")


def test_launch_flags_are_read_as_json_where_they_are() -> None:
    """Numbers, booleans, documents and plain words; a repeated flag's last values count."""
    flags = parse_launch_flags(["--a", "1", "--b", "true", "--c", '{"x": [1]}', "--d", "word", "--e", "--a", "2", "3"])

    assert flags == {"a": [2, 3], "b": True, "c": {"x": [1]}, "d": "word", "e": True}
