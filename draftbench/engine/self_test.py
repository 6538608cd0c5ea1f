"""Which dtype, device and thread count to run with: a rule where one is known, else a test of about two seconds.

Several arms of one comparison must run alike, and a test on a busy machine may come out differently each time.
So its outcome is remembered for this processor, PyTorch and model shape; `python -m draftbench.engine.self_test
--target DIR --again` tests anew.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import torch

from draftbench.engine.checkpoint import ModelShape, read_target_config
from draftbench.engine.interface import DataType, Device
from draftbench.engine.linear import Linear, make_linear, packing_works
from draftbench.errors import ModelError, exit_on_error

PROBE_LAYERS = 6
"""Enough layers that their weights do not stay in the core's own cache."""
PROBE_ROWS = (1, 16)
"""A decode step and a verify pass."""
THREAD_GAIN = 0.8
"""More threads must take at most this share of the time: they cost the client and the HTTP front their core."""


@dataclass(frozen=True)
class Numerics:
    """How an engine computes, and why."""

    device: str
    dtype: str
    threads: int
    packed: bool
    reason: str

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as PyTorch has it."""
        return torch.bfloat16 if self.dtype == "bfloat16" else torch.float32


MEMORY = Path(__file__).resolve().parents[2] / ".cache" / "engine-self-test"


def resolve_numerics(
    device: Device, dtype: DataType, threads: int | None, shape: ModelShape, memory: Path = MEMORY
) -> Numerics:
    """Explicit values stay; "auto" and None are decided here. Raises ModelError if CUDA is asked for and absent.

    Sets the process's thread count, which oneDNN's packing depends on.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ModelError("device cuda: PyTorch sees no CUDA GPU; use device cpu or auto")
    if device != "cpu" and torch.cuda.is_available():
        chosen = "bfloat16" if dtype == "auto" else dtype
        return Numerics("cuda", chosen, threads or torch.get_num_threads(), False, "CUDA present")
    if dtype != "auto" and threads is not None:
        return _resolve_cpu(dtype, threads, shape)
    return _remembered(memory, dtype, threads, shape)


def _remembered(memory: Path, dtype: DataType, threads: int | None, shape: ModelShape) -> Numerics:
    """The outcome of an earlier test in the same conditions, else that of a new one."""
    conditions = [torch.__version__, _processor(), _cores(), dtype, threads, astuple(shape)]
    digest = hashlib.sha256(json.dumps(conditions).encode()).hexdigest()[:16]
    path = memory / f"{digest}.json"
    try:
        numerics = Numerics(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        numerics = _resolve_cpu(dtype, threads, shape)
        _write_atomically(path, json.dumps(asdict(numerics)))
    torch.set_num_threads(numerics.threads)
    return numerics


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(path)


def _processor() -> str:
    """The processor's name as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _resolve_cpu(dtype: DataType, threads: int | None, shape: ModelShape) -> Numerics:
    torch.set_num_threads(threads or 1)
    reasons = []
    chosen = dtype
    if dtype == "auto":
        chosen, reason = _choose_dtype(shape)
        reasons.append(reason)
    numerics_dtype = torch.bfloat16 if chosen == "bfloat16" else torch.float32
    if threads is None:
        threads, reason = _choose_threads(shape, numerics_dtype)
        reasons.append(reason)
    torch.set_num_threads(threads)
    packed = packing_works(numerics_dtype, torch.device("cpu"))
    return Numerics("cpu", chosen, threads, packed, "; ".join(reasons) or "as set")


def has_bfloat16_instructions() -> bool:
    """Whether the CPU multiplies bf16 in hardware (AMX or AVX512-BF16); elsewhere bf16 is emulated and slow."""
    read = getattr(torch.cpu, "get_capabilities", None)
    capabilities = read() if read is not None else {}
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


def _choose_dtype(shape: ModelShape) -> tuple[DataType, str]:
    if not has_bfloat16_instructions():
        return "float32", "float32: the CPU has no bf16 instructions"
    bf16, fp32 = (_probe_seconds(shape, dtype) for dtype in (torch.bfloat16, torch.float32))
    times = f"{bf16 * 1e3:.1f} ms in bf16, {fp32 * 1e3:.1f} ms in fp32"
    return ("bfloat16", f"bfloat16: {times}") if bf16 < fp32 else ("float32", f"float32: {times}")


def _choose_threads(shape: ModelShape, dtype: torch.dtype) -> tuple[int, str]:
    """The smallest power of two that more threads do not clearly beat, one core being left to the client.

    A thread that shares its core stalls all others at every barrier: on two cores, two threads decoded at 56 ms a
    token beside the client, with single cells at 165 ms.
    """
    cores = max(1, _cores() - 1)
    best, best_seconds = 1, _probe_seconds(shape, dtype)
    tried, candidate = [f"1: {best_seconds * 1e3:.1f} ms"], 2
    while candidate <= cores:
        torch.set_num_threads(candidate)
        seconds = _probe_seconds(shape, dtype)
        tried.append(f"{candidate}: {seconds * 1e3:.1f} ms")
        if seconds < THREAD_GAIN * best_seconds:
            best, best_seconds = candidate, seconds
        candidate *= 2
    return best, f"{best} of {_cores()} cores, one left to the client ({', '.join(tried)})"


def _probe_seconds(shape: ModelShape, dtype: torch.dtype, repeats: int = 9) -> float:
    """Median time of the probe's linear layers, one decode step and one verify pass together."""
    with torch.inference_mode():
        layers = _probe_layers(shape, dtype, packing_works(dtype, torch.device("cpu")))
        inputs = {
            (rows, width): torch.ones(rows, width, dtype=dtype)
            for rows in PROBE_ROWS
            for width in (shape.hidden, shape.intermediate)
        }

        def once() -> None:
            for rows in PROBE_ROWS:
                for layer, width in layers:
                    layer(inputs[rows, width])

        once()
        return sorted(_seconds(once) for _ in range(repeats))[repeats // 2]


def _probe_layers(shape: ModelShape, dtype: torch.dtype, packed: bool) -> list[tuple[Linear, int]]:
    """Linear layers in the target's sizes, each with the width of its input."""
    qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    sizes = [(qkv, shape.hidden), (2 * shape.intermediate, shape.hidden), (shape.hidden, shape.intermediate)]
    every = sizes * min(PROBE_LAYERS, shape.layers) + [(shape.vocabulary, shape.hidden)]
    return [(make_linear(torch.full(size, 0.01, dtype=dtype), packed), size[1]) for size in every]


def _seconds(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> int:
    """Command line: print the resolved settings for a target as one JSON line."""
    parser = argparse.ArgumentParser(description="Choose dtype, device and threads for this machine.")
    parser.add_argument("--target", type=Path, required=True, help="checkpoint folder of the target")
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--again", action="store_true", help="forget what earlier tests found")
    arguments = parser.parse_args()
    if arguments.again:
        shutil.rmtree(MEMORY, ignore_errors=True)
    shape = read_target_config(arguments.target).shape
    print(json.dumps(asdict(resolve_numerics(arguments.device, arguments.dtype, None, shape))))
    return 0


if __name__ == "__main__":
    exit_on_error(main)
