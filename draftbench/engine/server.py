"""The embedded engine's server: `python -m draftbench.engine.server --model-path DIR ...`, in SGLang's contract."""

import asyncio
import json
import os
import signal
import socket
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from aiohttp import web

from draftbench.engine.http_engine_thread import EngineLike, EngineThread
from draftbench.engine.http_flags import ServerFlags, bind_loopback, parse_flags
from draftbench.engine.http_front import Front
from draftbench.engine.http_generate import ServedModel
from draftbench.engine.http_text import FileTokenizer
from draftbench.engine.interface import EngineSettings
from draftbench.errors import ModelError, exit_on_error

DEFAULT_CONTEXT_LENGTH = 8192


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the server and serve until a signal ends it."""
    stop_at_once_on_signals()
    flags = parse_flags(arguments)
    listener = bind_loopback(flags.host, flags.port)
    config = read_model_config(Path(flags.model_path))
    settings = engine_settings(flags, config)
    codec = FileTokenizer(Path(flags.model_path))
    engine = EngineThread(lambda: build_engine(settings))
    engine.start()
    front = Front(served_model(flags, settings, config, engine.description), engine, codec)
    asyncio.run(serve(front, listener))
    return 0


def build_engine(settings: EngineSettings) -> EngineLike:
    """The embedded engine; torch is imported only here, in the thread that will use it."""
    from draftbench.engine.engine import Engine

    return Engine(settings)


async def serve(front: Front, listener: socket.socket) -> None:
    """Answer requests for ever."""
    await start_listening(front, listener)
    await asyncio.Event().wait()


async def start_listening(front: Front, listener: socket.socket) -> None:
    """Answer requests from now on; a client that goes away cancels its handler."""
    front.engine.attach(asyncio.get_running_loop())
    runner = web.AppRunner(front.build_app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.SockSite(runner, listener, backlog=1024)
    await site.start()
    host, port = listener.getsockname()[:2]
    print(f"The server is fired up and ready to roll! http://{host}:{port}", flush=True)


def stop_at_once_on_signals() -> None:
    """TERM and INT end the process there and then, exit code 0: nothing is kept that would need saving."""

    def stop(number: int, _frame: FrameType | None) -> None:
        print(f"stopped by {signal.Signals(number).name}", flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def read_model_config(folder: Path) -> dict[str, Any]:
    """The target's config.json."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(config, dict) or not isinstance(config.get("vocab_size"), int):
        raise ModelError(f"{path}: no vocab_size; name the folder of a language model")
    return config


def engine_settings(flags: ServerFlags, config: dict[str, Any]) -> EngineSettings:
    """The engine's settings; the context is the flag's, else what the target declares, at most 8192."""
    declared = int(config.get("max_position_embeddings", DEFAULT_CONTEXT_LENGTH))
    tree = {} if flags.speculative_ddtree_topk is None else {"tree_top_k": flags.speculative_ddtree_topk}
    return EngineSettings(
        target=Path(flags.model_path),
        drafter=None if flags.method == "AR" else Path(str(flags.speculative_draft_model_path)),
        method=flags.method,
        draft_budget=flags.draft_budget,
        max_running_requests=flags.max_running_requests,
        context_length=flags.context_length or min(declared, DEFAULT_CONTEXT_LENGTH),
        dtype=flags.dtype,
        device=flags.device,
        threads=flags.threads,
        seed=flags.random_seed,
        prefix_reuse=not flags.disable_radix_cache,
        **tree,
    )


def served_model(
    flags: ServerFlags, settings: EngineSettings, config: dict[str, Any], description: dict[str, Any]
) -> ServedModel:
    """What the front must know of the model; flags left open are reported as the engine resolved them."""
    reported = flags.as_server_info() | {"context_length": settings.context_length}
    reported |= {name: description[name] for name in ("dtype", "device", "threads")}
    if flags.method != "AR":
        reported["speculative_num_draft_tokens"] = description["verify_width"]
        reported["speculative_ddtree_topk"] = description["tree_top_k"]
    return ServedModel(
        flags=reported,
        method=settings.method,
        context_length=settings.context_length,
        vocabulary=config["vocab_size"],
        incremental=flags.incremental_streaming_output,
        version=f"draftbench-{project_version()}",
        model_type=config.get("model_type"),
        architectures=config.get("architectures", ()),
    )


def project_version() -> str:
    """The version in pyproject.toml; the package is used from its repository, never installed."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    return str(project["project"]["version"])


if __name__ == "__main__":
    exit_on_error(main)
