"""The server's command line, in SGLang's flag names, and what it resolves to."""

import argparse
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from draftbench.engine.interface import DataType, Device, Method
from draftbench.errors import ServerError

LOOPBACK_HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class ServerFlags:
    """The resolved command line; field names are SGLang's argument names."""

    model_path: str
    host: str
    port: int
    served_model_name: str
    speculative_algorithm: str | None
    speculative_draft_model_path: str | None
    draft_budget: int | None
    speculative_ddtree_topk: int | None
    max_running_requests: int
    context_length: int | None
    dtype: DataType
    device: Device
    threads: int | None
    random_seed: int
    incremental_streaming_output: bool
    disable_radix_cache: bool

    def __post_init__(self) -> None:
        assert self.max_running_requests >= 1
        assert self.draft_budget is None or self.draft_budget >= 1

    @property
    def method(self) -> Method:
        """How the server decodes: AR where no algorithm is named."""
        match self.speculative_algorithm:
            case None:
                return "AR"
            case "DFLASH":
                return "DFLASH"
            case "DDTREE":
                return "DDTREE"
            case other:
                raise AssertionError(other)

    def as_server_info(self) -> dict[str, Any]:
        """The flags as `/server_info` reports them, the draft budget in SGLang's two forms."""
        reported = asdict(self)
        budget = reported.pop("draft_budget")
        reported["speculative_num_draft_tokens"] = None if budget is None else budget + 1
        reported["speculative_ddtree_budget"] = budget if self.method == "DDTREE" else None
        return reported | {"tokenizer_path": self.model_path, "tp_size": 1, "stream_interval": 1}


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose mistakes are a ServerError, one line, instead of a usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise the mistake."""
        raise ServerError(f"{self.prog}: {message}; see {self.prog} --help", "unsupported_flag")


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say what is served and how it decodes."""
    parser.add_argument("--model-path", "--model", required=True, help="folder of the target")
    parser.add_argument("--served-model-name", help="the name in /v1/models; default: the model path")
    parser.add_argument("--speculative-algorithm", help="DFLASH or DDTREE; left out: no speculation")
    parser.add_argument("--speculative-draft-model-path", help="folder of the drafter")
    parser.add_argument("--speculative-num-draft-tokens", type=int, help="verify width in tokens, the root counted")
    parser.add_argument("--speculative-ddtree-budget", type=int, help="tree nodes, the root not counted")
    parser.add_argument("--speculative-ddtree-topk", type=int, help="candidates a depth in the tree")


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say where and how large the server runs."""
    parser.add_argument("--host", default="127.0.0.1", help="loopback only")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--max-running-requests", type=int, default=8, help="requests decoded together")
    parser.add_argument("--context-length", type=int, help="tokens; default: what the target declares")
    parser.add_argument("--dtype", default="auto", choices=("auto", "bfloat16", "float32"))
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--threads", type=int, help="CPU threads; default: PyTorch's own choice")
    parser.add_argument("--random-seed", type=int, default=0)
    parser.add_argument("--incremental-streaming-output", action="store_true")
    parser.add_argument("--disable-radix-cache", action="store_true", help="no prefix reuse")


def parse_flags(arguments: Sequence[str] | None, program: str = "draftbench.engine.server") -> ServerFlags:
    """The command line, resolved and checked; raises ServerError with one line."""
    parser = OneLineParser(prog=program, description=__doc__, allow_abbrev=False)
    add_model_flags(parser)
    add_run_flags(parser)
    flags = resolve_flags(parser.parse_args(arguments))
    check_folder("--model-path", flags.model_path)
    if flags.speculative_draft_model_path is not None:
        check_folder("--speculative-draft-model-path", flags.speculative_draft_model_path)
    return flags


def resolve_flags(parsed: argparse.Namespace) -> ServerFlags:
    """Cross-check parsed arguments; a chain's width and a tree's budget become one draft budget."""
    _check_values(parsed)
    return ServerFlags(
        model_path=parsed.model_path,
        host=parsed.host,
        port=parsed.port,
        served_model_name=parsed.served_model_name or parsed.model_path,
        speculative_algorithm=parsed.speculative_algorithm,
        speculative_draft_model_path=parsed.speculative_draft_model_path,
        draft_budget=_draft_budget(parsed),
        speculative_ddtree_topk=parsed.speculative_ddtree_topk,
        max_running_requests=parsed.max_running_requests,
        context_length=parsed.context_length,
        dtype=parsed.dtype,
        device=parsed.device,
        threads=parsed.threads,
        random_seed=parsed.random_seed,
        incremental_streaming_output=parsed.incremental_streaming_output,
        disable_radix_cache=parsed.disable_radix_cache,
    )


def check_folder(flag: str, path: str) -> None:
    """A model folder must exist and hold a config.json."""
    if not (Path(path) / "config.json").is_file():
        raise ServerError(f"{flag}: no config.json in {path}; name a checkpoint folder", "model")


def bind_loopback(host: str, port: int) -> socket.socket:
    """A bound, not yet listening socket, so that a taken port is seen before a model is loaded."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise ServerError(f"--port: cannot have {host}:{port} ({error.strerror}); choose another", "port") from error
    return listener


def _check_values(parsed: argparse.Namespace) -> None:
    """Each range, and what goes with what."""
    if parsed.host not in LOOPBACK_HOSTS:
        raise ServerError(f"--host: {parsed.host} is not loopback; use 127.0.0.1", "unsupported_flag")
    if not 0 <= parsed.port <= 65535:
        raise ServerError(f"--port: {parsed.port} is outside 0 to 65535", "port")
    lowest = {"max_running_requests": 1, "context_length": 2, "threads": 1, "speculative_ddtree_topk": 1}
    for flag, low in lowest.items():
        value = getattr(parsed, flag)
        if value is not None and value < low:
            raise ServerError(f"--{flag.replace('_', '-')}: {value} is below {low}", "unsupported_flag")
    if parsed.speculative_algorithm is None:
        _check_no_speculation(parsed)
    elif parsed.speculative_algorithm not in ("DFLASH", "DDTREE"):
        raise ServerError(
            f"--speculative-algorithm: {parsed.speculative_algorithm} is not one of DFLASH, DDTREE", "unsupported_flag"
        )
    elif parsed.speculative_draft_model_path is None:
        raise ServerError(
            f"--speculative-draft-model-path: {parsed.speculative_algorithm} needs a drafter folder", "drafter"
        )


def _check_no_speculation(parsed: argparse.Namespace) -> None:
    """A drafting flag without an algorithm would be ignored in silence."""
    for name, value in vars(parsed).items():
        if name.startswith("speculative_") and value is not None:
            flag = f"--{name.replace('_', '-')}"
            raise ServerError(f"{flag}: needs --speculative-algorithm DFLASH or DDTREE", "unsupported_flag")


def _draft_budget(parsed: argparse.Namespace) -> int | None:
    """Draft tokens a step, the root not counted; None leaves it to the drafter's block size."""
    width, budget = parsed.speculative_num_draft_tokens, parsed.speculative_ddtree_budget
    if width is not None and width < 2:
        raise ServerError(
            f"--speculative-num-draft-tokens: {width} is below 2 (root and one draft)", "unsupported_flag"
        )
    if budget is not None and budget < 1:
        raise ServerError(f"--speculative-ddtree-budget: {budget} is below 1", "unsupported_flag")
    if budget is not None and parsed.speculative_algorithm != "DDTREE":
        raise ServerError("--speculative-ddtree-budget: only with --speculative-algorithm DDTREE", "unsupported_flag")
    if budget is not None and width is not None and width != budget + 1:
        raise ServerError(
            f"--speculative-num-draft-tokens: {width} is not --speculative-ddtree-budget + 1 = {budget + 1}",
            "unsupported_flag",
        )
    if parsed.speculative_algorithm == "DDTREE" and budget is None and width is None:
        raise ServerError("--speculative-ddtree-budget: needed with --speculative-algorithm DDTREE", "unsupported_flag")
    if budget is None and width is not None:
        return int(width) - 1
    return None if budget is None else int(budget)
