"""Milliseconds a decode step of the embedded engine, by method, dtype and threads, on random SmolLM2-sized weights.

Random weights accept almost no draft, so these are the costs of a step alone, free of any model download:
`python benchmarks/engine_steps.py [--device cuda] [--threads 1 2] [--prompt 250]`.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from draftbench.engine.engine import Engine  # noqa: E402
from draftbench.engine.interface import EngineSettings, GenerationRequest, SamplingSettings  # noqa: E402

DRAFTER = ROOT / "models" / "smollm2-135m-dflash"
ARMS = [("AR", None), ("DFLASH", None), ("DDTREE", 7), ("DDTREE", 15), ("DDTREE", 31)]
COPIED = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size")


def write_random_target(folder: Path, layers: int = 30) -> Path:
    """A Llama of the drafter's sizes and 30 layers."""
    drafter = json.loads((DRAFTER / "config.json").read_text())
    config = {key: drafter[key] for key in (*COPIED, "rope_theta", "rms_norm_eps", "max_position_embeddings")}
    config |= {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    hidden, wide, keys = config["hidden_size"], config["intermediate_size"], 64 * config["num_key_value_heads"]
    shapes = {
        **{
            f"self_attn.{part}_proj": (rows, hidden)
            for part, rows in zip("qkvo", (hidden, keys, keys, hidden), strict=True)
        },
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
    }
    tensors = {"model.embed_tokens.weight": torch.randn(config["vocab_size"], hidden) * 0.02}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= {f"{prefix}{name}.weight": torch.randn(*shape) * 0.02 for name, shape in shapes.items()}
        tensors |= {
            f"{prefix}{name}.weight": torch.ones(hidden) for name in ("input_layernorm", "post_attention_layernorm")
        }
    save_file(tensors | {"model.norm.weight": torch.ones(hidden)}, folder / "model.safetensors")
    return folder


def step_times(engine: Engine, prompt: int, requests: int, steps: int) -> list[float]:
    """Sorted milliseconds of `steps` decode steps after six to warm up."""
    for index in range(requests):
        ids = tuple(100 + (7 * index + position) % 4000 for position in range(prompt))
        engine.submit(GenerationRequest(str(index), ids, SamplingSettings(0.0, 8 * (steps + 6), ignore_eos=True)))
    while engine.waiting_count:
        engine.step()
    times = []
    for _ in range(steps + 6):
        started = time.perf_counter()
        engine.step()
        times.append(1e3 * (time.perf_counter() - started))
    return sorted(times[6:])


def main() -> None:
    """Print one line a setting."""
    parser = argparse.ArgumentParser(description="Decode step times of the embedded engine.")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--requests", nargs="+", type=int, default=[1])
    parser.add_argument("--prompt", type=int, default=250, help="prompt tokens")
    parser.add_argument("--steps", type=int, default=24)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        target = write_random_target(Path(scratch))
        for dtype in chosen.dtypes:
            for threads in chosen.threads:
                for requests in chosen.requests:
                    report(target, chosen, dtype, threads, requests)


def report(target: Path, chosen: argparse.Namespace, dtype: str, threads: int, requests: int) -> None:
    """Every arm in one setting, with its ratio to AR."""
    baseline = None
    for method, budget in ARMS:
        drafter = None if method == "AR" else DRAFTER
        settings = EngineSettings(
            target, drafter, method, budget, requests, dtype=dtype, device=chosen.device, threads=threads
        )
        times = step_times(Engine(settings), chosen.prompt, requests, chosen.steps)
        median = times[len(times) // 2]
        baseline = baseline or median
        where = f"{chosen.device} {dtype} threads {threads} requests {requests}"
        name = method if budget is None else f"{method} {budget}"
        print(
            f"{where}  {name:10}  min {times[0]:6.1f}  median {median:6.1f} ms  {median / baseline:.2f} x AR",
            flush=True,
        )


if __name__ == "__main__":
    main()
