"""The server as a process: start-up mistakes, signals, and the whole way from HTTP to the model and back."""

import json
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
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from draftbench.engine.server import project_version
from tests.unit.engine.engine_driving import greedy, make_engine, run_prompts
from tests.unit.engine.tiny_models import write_drafter, write_target

ROOT = Path(__file__).parents[3]
REAL_TARGET = ROOT / ".cache" / "models" / "SmolLM2-135M-Instruct-q4_1-dequantised"
REAL_DRAFTER = ROOT / "models" / "smollm2-135m-dflash"
RECORDINGS = ROOT / "tests" / "data" / "sglang-recordings"
WORDS = ["<s>", "a", "<end>", "<mask>", "b", "c", "d", "e", "f", "g", "h", "i"]


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of twelve one-letter words for the tiny target."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny target with its tokenizer, and a tiny drafter."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("target", "drafter")}
    write_target(folders["target"])
    write_drafter(folders["drafter"])
    write_tokenizer(folders["target"])
    return folders


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def command(*arguments: str) -> list[str]:
    """The server's command line."""
    return [sys.executable, "-m", "draftbench.engine.server", *arguments]


class Served:
    """A server process that answers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(self.url + path) as response:
            return json.load(response)

    def generate(self, **body: Any) -> Any:
        """The reply of `/generate`."""
        request = urllib.request.Request(f"{self.url}/generate", json.dumps(body).encode())
        with urllib.request.urlopen(request) as response:
            return json.load(response)


@contextmanager
def serving(*arguments: str) -> Iterator[Served]:
    """A running server; killed at the end if it still runs."""
    port = free_port()
    process = subprocess.Popen(command("--port", str(port), *arguments), cwd=ROOT)
    try:
        served = Served(process, port)
        while True:  # bounded by the test's timeout
            assert process.poll() is None
            try:
                urllib.request.urlopen(f"{served.url}/health_generate").close()
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        yield served
    finally:
        process.kill()
        process.wait()


def drafting(tiny: dict[str, Path], method: str, budget: int) -> list[str]:
    """Flags of a drafting server on the tiny models."""
    width = str(budget + 1)
    drafter = ["--speculative-draft-model-path", str(tiny["drafter"])]
    return ["--speculative-algorithm", method, *drafter, "--speculative-num-draft-tokens", width]


def tiny_flags(tiny: dict[str, Path]) -> list[str]:
    """Flags of any server on the tiny target."""
    sizes = ["--context-length", "256", "--max-running-requests", "3"]
    return ["--model-path", str(tiny["target"]), *sizes, "--dtype", "float32", "--threads", "1"]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (["--model-path", "/no/such"], "--model-path: no config.json in /no/such"),
        (["--no-such-flag"], "unrecognized arguments"),
        (["--speculative-algorithm", "DFLASH"], "DFLASH needs a drafter folder"),
    ],
)
def test_a_mistake_at_start_up_is_one_line_and_exit_code_1(
    tiny: dict[str, Path], wrong: list[str], expected: str
) -> None:
    """No traceback, nothing on stdout."""
    done = subprocess.run(
        command(*tiny_flags(tiny), "--port", str(free_port()), *wrong),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("draftbench: ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_budget_beyond_the_drafters_block_is_one_line(tiny: dict[str, Path]) -> None:
    """Blocks of 5 hold 4 drafts; a chain of 7 is refused by the engine, in its thread."""
    wrong = drafting(tiny, "DFLASH", 7)
    done = subprocess.run(
        command(*tiny_flags(tiny), "--port", str(free_port()), *wrong),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("draftbench: ")
    assert "7" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_taken_port_is_one_line(tiny: dict[str, Path]) -> None:
    """Seen before the models are loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            command(*tiny_flags(tiny), "--port", port), cwd=ROOT, capture_output=True, text=True, check=False
        )

    assert done.returncode == 1
    assert f"--port: cannot have 127.0.0.1:{port}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_signal_ends_the_server_with_exit_code_0_in_the_middle_of_a_request(tiny: dict[str, Path]) -> None:
    """The client's connection breaks; the port is free at once."""
    with serving(*tiny_flags(tiny)) as served:
        port = int(served.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = json.dumps({"input_ids": [4], "sampling_params": {"ignore_eos": True}, "stream": True}).encode()
            head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            assert client.recv(10)
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait() == 0
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize(("method", "budget"), [("AR", None), ("DDTREE", 7)])
def test_the_server_says_what_the_engine_says(tiny: dict[str, Path], method: Any, budget: int | None) -> None:
    """The same tokens, text and acceptance as from the engine directly; /server_info shows what was resolved."""
    drafter = tiny["drafter"] if budget else None
    engine = make_engine(tiny["target"], drafter, method, budget, max_running_requests=3, context_length=256)
    prompts = [[4, 5, 6], [7, 8]]
    expected = run_prompts(engine, prompts, greedy(20))

    with serving(*tiny_flags(tiny), *(drafting(tiny, method, budget) if budget else [])) as served:
        sampling = {"max_new_tokens": 20, "temperature": 0, "ignore_eos": True}
        replies = [served.generate(input_ids=prompt, sampling_params=sampling) for prompt in prompts]
        as_text = served.generate(text="bcd", sampling_params=sampling)
        info = served.get("/server_info")
        model = served.get("/model_info")

    assert [reply["output_ids"] for reply in replies] == [list(outcome.ids) for outcome in expected]
    assert as_text["output_ids"] == replies[0]["output_ids"]
    assert as_text["text"] == "".join(WORDS[token] for token in as_text["output_ids"])
    assert [reply["meta_info"].get("spec_verify_ct", 0) for reply in replies] == [
        outcome.last.verify_steps for outcome in expected
    ]
    assert info["engine"]["method"] == method
    assert (info["dtype"], info["device"], info["context_length"]) == ("float32", "cpu", 256)
    assert info["speculative_num_draft_tokens"] == (None if budget is None else budget + 1)
    assert info["version"] == f"draftbench-{project_version()}"
    assert (model["model_type"], model["architectures"]) == ("llama", ["LlamaForCausalLM"])


@pytest.mark.slow
@pytest.mark.skipif(not REAL_TARGET.is_dir(), reason="the default target is not prepared (make setup)")
def test_the_real_models_give_what_sglang_gave_on_an_h200() -> None:
    """SGLang 0.5.17's recorded DFLASH reply: the same 40 tokens, text, steps and acceptance histogram in fp32."""
    case = json.loads((RECORDINGS / "0.5.17-dflash-h200.json").read_text())["cases"]["generate_cached"]
    theirs = json.loads(case["body"])
    drafter = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", str(REAL_DRAFTER)]
    sizes = ["--context-length", "512", "--max-running-requests", "2", "--dtype", "float32"]
    with serving("--model-path", str(REAL_TARGET), *drafter, *sizes) as served:
        ours = served.generate(**case["request"])

    assert (ours["text"], ours["output_ids"]) == (theirs["text"], theirs["output_ids"])
    for key in ("prompt_tokens", "completion_tokens", "spec_verify_ct", "spec_accept_histogram", "spec_accept_length"):
        assert ours["meta_info"][key] == theirs["meta_info"][key]
