"""The real front over a scripted engine, served on a loopback port for one test."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession, web

from draftbench.engine.http_engine_thread import EngineThread
from draftbench.engine.http_front import Front
from draftbench.engine.http_generate import ServedModel
from tests.fakes.scripted_engine import Script, ScriptedEngine

WORDS = ("", "", "", " user", " name", " age", " list", " =", " for", " in", " return", " def")
VOCABULARY = 49152


class WordCodec:
    """A tokenizer of a few words; encoding gives the text's bytes."""

    def encode(self, text: str) -> list[int]:
        """The UTF-8 bytes, from 100 on."""
        return [100 + byte for byte in text.encode()]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The words."""
        return "".join(WORDS[token] for token in ids)


@dataclass
class ServedFront:
    """A front that answers, with a session to ask it."""

    url: str
    session: ClientSession
    front: Front
    scripted: ScriptedEngine

    async def generate(self, **body: Any) -> Any:
        """The JSON reply of a `/generate` that must succeed."""
        async with self.session.post(f"{self.url}/generate", json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def stream(self, **body: Any) -> list[dict[str, Any]]:
        """The events of a streamed `/generate`, [DONE] checked and dropped."""
        async with self.session.post(f"{self.url}/generate", json={**body, "stream": True}) as response:
            return parse_events(await response.read())


def parse_events(raw: bytes) -> list[dict[str, Any]]:
    """The JSON of each server-sent event; the framing must be exact."""
    *events, done, rest = raw.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    assert all(event.startswith(b"data: {") for event in events)
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


@asynccontextmanager
async def served_front(
    incremental: bool = False, context_length: int = 8192, **script: Any
) -> AsyncIterator[ServedFront]:
    """Serve a scripted engine; `script` are fields of Script, by default AR over a few words, without natural stops."""
    settings = Script(**({"vocabulary": len(WORDS), "natural_stops": False} | script))
    scripted = ScriptedEngine(settings)
    engine = EngineThread(lambda: scripted)
    engine.start()
    engine.attach(asyncio.get_running_loop())
    flags = {"model_path": "/models/m", "tokenizer_path": "/models/m", "served_model_name": "m"}
    flags |= {"max_running_requests": settings.max_running_requests}
    method = settings.method
    model = ServedModel(flags, method, context_length, VOCABULARY, incremental, "test", "llama", ["LlamaForCausalLM"])
    front = Front(model, engine, WordCodec())
    runner = web.AppRunner(front.build_app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with ClientSession() as session:
            yield ServedFront(f"http://127.0.0.1:{port}", session, front, scripted)
    finally:
        await runner.cleanup()
