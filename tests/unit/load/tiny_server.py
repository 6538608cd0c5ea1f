"""A small SGLang-like server for tests of the client: real HTTP, scripted tokens, one fault at a time."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.unit.load.builders import DONE, chunk_body, event

STEP_TOKENS = (2, 1, 3)
"""Tokens of the verify steps after the prefill's one: 7 tokens in all, 3 accepted drafts."""


STATES = [{"last_gen_throughput": 354.9, "effective_max_running_requests_per_dp": 48}]


@dataclass
class TinyServer:
    """Answers every prompt with ids 11 to 17 in four chunks; `fault` names what goes wrong, in `faulty_call` alone."""

    speculative: bool = True
    cumulative: bool = False
    fault: str = ""
    faulty_call: int = 1
    flush_refusals: int = 0
    step_s: float = 0.002
    calls: int = 0
    flushes: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    peers: set[object] = field(default_factory=set)
    url: str = ""

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """`/generate`, streamed, or scored where log-probabilities are asked for."""
        body = await request.json()
        self.peers.add(request.transport.get_extra_info("peername") if request.transport else None)
        if body.get("return_logprob"):
            return self._scores(body)
        self.calls += 1
        self.requests.append(body)
        fault = self.fault if self.calls == self.faulty_call else ""
        if fault == "http_500":
            return web.Response(status=500, text="Internal Server Error:\n out of luck")
        if fault == "html":
            return web.Response(text="<html>proxy</html>", content_type="text/html")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for data in self._events(len(body["input_ids"]), fault):
            if fault == "hang":
                await asyncio.sleep(3600)
            await response.write(data)
            await asyncio.sleep(self.step_s)
        if fault in {"cut", "cut_json"} and request.transport is not None:
            request.transport.close()
        return response

    def _events(self, prompt_tokens: int, fault: str) -> list[bytes]:
        bodies, ids = [], [11]
        for tokens in (0, *STEP_TOKENS) if self.speculative else (0, *[1] * 6):
            new = ids[-1:] if not tokens else list(range(ids[-1] + 1, ids[-1] + 1 + tokens))
            ids = ids + new if tokens else ids
            bodies.append(chunk_body(ids if self.cumulative else new, len(ids), prompt_tokens=prompt_tokens))
        bodies[-1]["meta_info"] |= {"finish_reason": {"type": "stop", "matched": 2}} | self._speculation()
        if fault == "wrong_prompt_count":
            bodies[-1]["meta_info"]["prompt_tokens"] += 1
        if fault == "no_speculation":
            bodies[-1]["meta_info"].pop("spec_verify_ct")
        if fault == "cached":
            bodies[-1]["meta_info"]["cached_tokens"] = prompt_tokens
        events = [event(body) for body in bodies]
        if fault == "cut":
            return events[:2]
        if fault == "cut_json":
            return [events[0], events[1][:20]]
        if fault == "bad_json":
            return [events[0], event("{nonsense"), DONE]
        return events if fault == "no_done" else [*events, DONE]

    def _speculation(self) -> dict[str, Any]:
        if not self.speculative:
            return {}
        return {
            "spec_verify_ct": 3,
            "spec_num_correct_drafts": 3,
            "spec_num_proposed_drafts": 21,
            "spec_correct_drafts_histogram": [1, 1, 1],
        }

    def _scores(self, body: dict[str, Any]) -> web.Response:
        """SGLang's form: nothing at the first position asked for, then own token and the two best."""
        ids, start = body["input_ids"], body["logprob_start_len"]
        own = [[None if number == 0 else -0.25, token, None] for number, token in enumerate(ids[start:])]
        best = [None if n == 0 else [[-0.25, token, None], [-1.5, 99, None]] for n, token in enumerate(ids[start:])]
        meta = {"input_token_logprobs": own, "input_top_logprobs": best}
        return web.json_response({"output_ids": [1], "meta_info": meta})

    async def flush(self, _request: web.Request) -> web.Response:
        """`/flush_cache`, refused as often as asked."""
        self.flushes += 1
        refused = self.flushes <= self.flush_refusals
        return web.Response(status=400 if refused else 200, text="Flush cache failed." if refused else "Cache flushed.")

    @staticmethod
    async def well(_request: web.Request) -> web.Response:
        """`/health` and `/model_info`."""
        return web.json_response({})

    @staticmethod
    async def info(_request: web.Request) -> web.Response:
        """`/server_info`."""
        settings = {"version": "0.5.17", "page_size": 1, "api_key": "sesame", "internal_states": STATES}
        return web.Response(text=json.dumps(settings), content_type="application/json")


@asynccontextmanager
async def serving(server: TinyServer) -> AsyncIterator[TinyServer]:
    """The server on a free port, for as long as the block runs."""
    app = web.Application()
    app.add_routes(
        [
            web.post("/generate", server.generate),
            web.post("/flush_cache", server.flush),
            web.get("/health", server.well),
            web.get("/model_info", server.well),
            web.get("/server_info", server.info),
        ]
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@contextmanager
def served_in_thread(server: TinyServer) -> Iterator[TinyServer]:
    """The server on a loop of its own, for code that starts its own loop."""
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        async with serving(server):
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        stop.set()
        thread.join(10)
