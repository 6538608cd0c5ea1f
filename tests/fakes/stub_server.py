"""A server in SGLang's contract without a model or torch, for workflow tests: `python tests/fakes/stub_server.py ...`.

It takes any SGLang launch flag, reports it in /server_info, and answers with scripted token streams.
Planted failures, comma-separated: `--stub-fail [NAME:]KIND[_concurrency_N][:FIRST[-LAST]][@FLAGS][#RID]`,
also from $DRAFTBENCH_STUB_FAIL. A failure holds only
  for the stub whose name is NAME, which is ar_tp1, dflash_tp2, ddtree-b16_tp4 and so on,
  while N or more calls of `/generate` are open,
  for the calls FIRST to LAST, counted from 1 (default: from the first on),
  where the stub's command line contains FLAGS, and for requests whose `rid` contains RID. Kinds:

die_at_start      print $DRAFTBENCH_STUB_DEATH_MESSAGE (or a default) and exit 1 before listening
slow_start        listen only after FIRST seconds
die               exit 1 at the request
hang              the engine stops for good at the request; the connection stays open
http_500 http_429 the request gets that status
truncated_json    the second chunk ends in mid-JSON and the connection closes
wrong_counts      completion_tokens is one too high in the last chunk
lost_chunk        the second chunk is never sent
flush_refused     /flush_cache is always 400
ignore_term       SIGTERM and SIGINT do nothing
"""

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import orjson
from aiohttp import web

from draftbench.engine.http_engine_thread import EngineThread
from draftbench.engine.http_flags import bind_loopback
from draftbench.engine.http_front import Front
from draftbench.engine.http_generate import ServedModel
from draftbench.engine.http_text import FileTokenizer, TextCodec
from draftbench.engine.interface import Method
from draftbench.engine.server import start_listening
from draftbench.errors import exit_on_error
from tests.fakes.scripted_engine import Script, ScriptedEngine

ALIASES = {"model": "model_path", "tp": "tp_size", "tensor_parallel_size": "tp_size", "dp": "dp_size"}
LAUNCH_DEFAULTS: dict[str, Any] = {
    "host": "127.0.0.1", "port": 30000, "tp_size": 1, "dp_size": 1, "max_running_requests": 48, "context_length": None,
    "dtype": "auto", "random_seed": 0, "disable_radix_cache": False, "incremental_streaming_output": False,
    "stream_interval": 1, "speculative_algorithm": None, "speculative_draft_model_path": None,
    "speculative_num_draft_tokens": None, "speculative_ddtree_budget": None, "mem_fraction_static": 0.85,
    "page_size": 1, "attention_backend": "triton", "disable_overlap_schedule": False, "device": "cuda",
}  # fmt: skip
UNKNOWN_MODEL = {"vocab_size": 1_000_000, "max_position_embeddings": 131_072}
RANK_PROGRAM = "import time; time.sleep(900)"  # a rank ends by itself, should a test ever lose it
DEATH_MESSAGE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@dataclass(frozen=True)
class PlantedFailure:
    """One failure and the requests that it hits."""

    kind: str
    first: int
    last: int | None
    request_id: str
    concurrency: int

    def hits(self, count: int, request_id: str, open_calls: int = 1) -> bool:
        """Whether the `count`-th request, of this id, with so many open calls, fails."""
        in_turn = self.first <= count and (self.last is None or count <= self.last)
        return in_turn and self.request_id in request_id and open_calls >= self.concurrency


def parse_failures(text: str, command_line: str, stub_name: str) -> list[PlantedFailure]:
    """The failures of `--stub-fail` that concern a stub of this name and command line."""
    pattern = re.compile(
        r"(?:([\w.-]+_tp\d+):)?([a-z_0-9]+?)(?:_concurrency_(\d+))?(?::(\d+)(?:-(\d+))?)?(?:@([^#]+))?(?:#(.+))?"
    )
    failures = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = pattern.fullmatch(entry)
        if match is None:
            raise SystemExit(f"stub: --stub-fail {entry!r} is not of the form that --help shows")
        name, kind, concurrency, first, last, flags, request_id = match.groups()
        if name in (None, stub_name) and (flags is None or flags in command_line):
            end = int(last) if last else None
            failures.append(PlantedFailure(kind, int(first or 1), end, request_id or "", int(concurrency or 1)))
    return failures


def parse_launch_flags(arguments: Sequence[str]) -> dict[str, Any]:
    """Any `--flag`, `--flag value ...` or `--flag=value` as a dict; values read as JSON where they are JSON."""
    flags: dict[str, Any] = {}
    name = ""
    for argument in arguments:
        if argument.startswith("--"):
            flag, _, value = argument[2:].partition("=")
            name = ALIASES.get(flag.replace("-", "_"), flag.replace("-", "_"))
            flags[name] = read_value(value) if value else True
        elif flags.get(name) is True:
            flags[name] = read_value(argument)
        else:
            earlier = flags.get(name)
            flags[name] = [*(earlier if isinstance(earlier, list) else [earlier]), read_value(argument)]
    return flags


def read_value(text: str) -> Any:
    """A number, boolean or JSON document, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def stub_parser() -> argparse.ArgumentParser:
    """The stub's own options."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--stub-step-ms", type=float, help="decode step; default by method and verify width")
    parser.add_argument("--stub-prefill-ms", type=float, default=2.0, help="prefill of one request")
    parser.add_argument("--stub-yield", type=float, help="mean tokens a verify step; default by method and budget")
    parser.add_argument("--stub-ranks", type=int, default=0, help="child processes, as SGLang's ranks")
    parser.add_argument("--stub-fail", default="", help="planted failures")
    parser.add_argument("--stub-version", default="0.5.17", help="the SGLang version to report")
    return parser


def scripted_from(flags: Mapping[str, Any], options: argparse.Namespace, model: Mapping[str, Any]) -> Script:
    """The engine's script; without explicit values a plausible speed-up by method and budget."""
    budget = draft_budget(flags)
    method = scripted_method(flags)
    depth = min(budget, 15)
    default_yield = {"AR": 1.0, "DFLASH": 2.0, "DDTREE": 2.0 + min(1.5, budget / 24)}[method]
    return Script(
        method=method,
        draft_budget=budget,
        depth=depth,
        mean_yield=min(options.stub_yield or default_yield, 1 + depth),
        step_seconds=(options.stub_step_ms or (4.0 if method == "AR" else 4.5 + 0.02 * budget)) / 1000,
        prefill_seconds=options.stub_prefill_ms / 1000,
        max_running_requests=flags["max_running_requests"] or 48,
        vocabulary=model["vocab_size"],
        seed=flags["random_seed"],
        prefix_reuse=not flags["disable_radix_cache"],
    )


def scripted_method(flags: Mapping[str, Any]) -> Method:
    """Every algorithm but DDTREE drafts a chain, as DFLASH does."""
    match flags["speculative_algorithm"]:
        case None:
            return "AR"
        case "DDTREE":
            return "DDTREE"
        case _:
            return "DFLASH"


def draft_budget(flags: Mapping[str, Any]) -> int:
    """Draft tokens a step, the root not counted."""
    if flags["speculative_algorithm"] is None:
        return 0
    if flags["speculative_ddtree_budget"] is not None:
        return int(flags["speculative_ddtree_budget"])
    return int(flags["speculative_num_draft_tokens"] or 8) - 1


def read_model(path: str) -> dict[str, Any]:
    """The model's config.json where there is one."""
    file = Path(path) / "config.json"
    return UNKNOWN_MODEL | (json.loads(file.read_text()) if file.is_file() else {})


def stub_name(flags: Mapping[str, Any]) -> str:
    """Method, budget of a tree, and tensor parallelism: ar_tp1, dflash_tp2, ddtree-b16_tp4."""
    method = scripted_method(flags)
    arm = f"ddtree-b{draft_budget(flags)}" if method == "DDTREE" else method.lower()
    return f"{arm}_tp{flags['tp_size']}"


class ByteCodec:
    """A stand-in tokenizer: text becomes its bytes, ids become words."""

    def encode(self, text: str) -> list[int]:
        """The UTF-8 bytes."""
        return list(text.encode())

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """One word an id."""
        return "".join(f" w{token}" for token in ids if token > 2 or not skip_special_tokens)


@dataclass
class Timeline:
    """JSON lines of what this stub did, appended to $DRAFTBENCH_TIMELINE; nothing without it."""

    flags: Mapping[str, Any]
    path: str | None = field(default_factory=lambda: os.environ.get("DRAFTBENCH_TIMELINE"))

    def write(self, event: str, **details: Any) -> None:
        """Append one line in one write."""
        if not self.path:
            return
        entry = {
            "event": event,
            "name": stub_name(self.flags),
            "time": time.time(),
            "pid": os.getpid(),
            "port": self.flags["port"],
            "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "tp_size": self.flags["tp_size"],
            "speculative_algorithm": self.flags["speculative_algorithm"],
            "draft_budget": draft_budget(self.flags),
        }
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, orjson.dumps(entry | details) + b"\n")
        os.close(descriptor)


class StubFront(Front):
    """The real front with planted failures."""

    def __init__(
        self,
        model: ServedModel,
        engine: EngineThread,
        codec: TextCodec,
        scripted: ScriptedEngine,
        failures: Sequence[PlantedFailure],
        timeline: Timeline,
    ) -> None:
        super().__init__(model, engine, codec)
        self._scripted = scripted
        self._failures = failures
        self._timeline = timeline
        self._calls = 0
        self._open_calls = 0

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """`/generate`, unless a failure is planted for this call."""
        self._calls += 1
        self._open_calls += 1
        try:
            refusal = await self._planted(request, self._calls) if self._failures else None
            return await super().generate(request) if refusal is None else refusal
        finally:
            self._open_calls -= 1

    def encode_chunk(self, request: web.Request, body: Mapping[str, Any]) -> bytes:
        """One server-sent event, spoilt where that is planted."""
        kind = request.get("stub_failure")
        chunk = super().encode_chunk(request, body)
        if kind is None:
            return chunk
        request["stub_chunks"] = request.get("stub_chunks", 0) + 1
        second = request["stub_chunks"] == 2
        if kind == "wrong_counts" and body["meta_info"]["finish_reason"] is not None:
            meta_info = body["meta_info"]
            wrong = meta_info | {"completion_tokens": meta_info["completion_tokens"] + 1}
            return super().encode_chunk(request, {**body, "meta_info": wrong})
        if kind == "lost_chunk" and second:
            return b""
        if kind == "truncated_json" and second:
            assert request.transport is not None
            asyncio.get_running_loop().call_soon(request.transport.close)
            return chunk[: len(chunk) // 2]
        return chunk

    async def _planted(self, request: web.Request, count: int) -> web.Response | None:
        """Let the failures of the `count`-th call happen; the response where there is one."""
        request_id = await self._request_id(request)
        for failure in self._failures:
            if failure.hits(count, request_id, self._open_calls):
                refusal = self._plant(failure.kind, request)
                if refusal is not None:
                    return refusal
        return None

    def _plant(self, kind: str, request: web.Request) -> web.Response | None:
        """Let a failure happen; the response where the failure is one."""
        match kind:
            case "die":
                self._timeline.write("exit", reason="planted")
                print("stub: planted death", file=sys.stderr, flush=True)
                os._exit(1)
            case "hang":
                self._scripted.hanging = True
            case "http_500":
                return web.Response(text="Internal Server Error", status=500)
            case "http_429":
                return web.json_response({"error": {"message": "The request queue is full."}}, status=429)
            case "truncated_json" | "wrong_counts" | "lost_chunk":
                request["stub_failure"] = kind
        return None

    async def _request_id(self, request: web.Request) -> str:
        """The `rid` of a request, empty where it has none."""
        try:
            return str(orjson.loads(await request.read()).get("rid") or "")
        except (orjson.JSONDecodeError, AttributeError):
            return ""


def served_model(flags: Mapping[str, Any], options: argparse.Namespace, model: Mapping[str, Any]) -> ServedModel:
    """The front's view of the stub; `/server_info` reports SGLang's defaults and whatever flags were given."""
    budget = draft_budget(flags)
    speculates = flags["speculative_algorithm"] is not None
    resolved = {
        "served_model_name": flags.get("served_model_name") or flags["model_path"],
        "tokenizer_path": flags["model_path"],
        "speculative_num_draft_tokens": budget + 1 if speculates else None,
        "max_running_requests": flags["max_running_requests"] or 48,
    }
    return ServedModel(
        flags={**flags, **resolved},
        method=scripted_method(flags),
        context_length=flags["context_length"] or model["max_position_embeddings"],
        vocabulary=model["vocab_size"],
        incremental=flags["incremental_streaming_output"],
        version=options.stub_version,
        model_type=model.get("model_type"),
        architectures=model.get("architectures", ()),
    )


def end_with(timeline: Timeline, ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """On TERM and INT: stop the ranks, note the end, exit 0."""

    def stop(number: int, _frame: object) -> None:
        for rank in ranks:
            rank.kill()
            rank.wait()
        timeline.write("exit", reason=signal.Signals(number).name)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def fail_at_start(failures: Sequence[PlantedFailure], timeline: Timeline) -> None:
    """The planted failures of start-up."""
    for failure in failures:
        match failure.kind:
            case "die_at_start":
                print(os.environ.get("DRAFTBENCH_STUB_DEATH_MESSAGE", DEATH_MESSAGE), file=sys.stderr, flush=True)
                timeline.write("exit", reason="planted")
                os._exit(1)
            case "slow_start":
                time.sleep(failure.first)
            case "ignore_term":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                signal.signal(signal.SIGINT, signal.SIG_IGN)


async def run(front: StubFront, listener: socket.socket, timeline: Timeline) -> None:
    """Serve; the timeline says when it could first be reached."""
    await start_listening(front, listener)
    timeline.write("ready")
    await asyncio.Event().wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the stub and serve until a signal ends it."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options, launch_arguments = stub_parser().parse_known_args(arguments)
    flags = LAUNCH_DEFAULTS | parse_launch_flags(launch_arguments)
    if "model_path" not in flags:
        raise SystemExit("stub: --model-path is required")
    planted = f"{options.stub_fail},{os.environ.get('DRAFTBENCH_STUB_FAIL', '')}"
    failures = parse_failures(planted, " ".join(arguments), stub_name(flags))
    timeline = Timeline(flags)
    timeline.write("start", arguments=list(arguments))
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK_PROGRAM, f"stub-rank-{rank}"])
        for rank in range(options.stub_ranks)
    ]
    end_with(timeline, ranks)
    fail_at_start(failures, timeline)
    listener = bind_loopback(flags["host"], flags["port"])
    model = read_model(flags["model_path"])
    scripted = ScriptedEngine(scripted_from(flags, options, model))
    scripted.flush_refused = any(failure.kind == "flush_refused" for failure in failures)
    engine = EngineThread(lambda: scripted)
    engine.start()
    folder = Path(flags["model_path"])
    codec: TextCodec = FileTokenizer(folder) if (folder / "tokenizer.json").is_file() else ByteCodec()
    front = StubFront(served_model(flags, options, model), engine, codec, scripted, failures, timeline)
    asyncio.run(run(front, listener, timeline))
    return 0


if __name__ == "__main__":
    exit_on_error(main)
