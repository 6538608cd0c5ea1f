"""Random checkpoints small enough that a test can enumerate what they do, and a plain model to compare with.

`PlainTarget` and `plain_draft_logits` share no code with the engine: no cache, no packing, no fused projection.
"""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]

TARGET_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 12,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}
DRAFTER_CONFIG = {
    **TARGET_CONFIG,
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "rope_theta": 5000.0,
    "block_size": 5,
    "num_target_layers": 2,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 1]},
}


def _layer(prefix: str, generator: torch.Generator, head_norms: bool) -> Tensors:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * (1.6 / math.sqrt(shape[-1]))

    def gain(size: int) -> torch.Tensor:
        return 1 + 0.2 * torch.randn(size, generator=generator)

    tensors = {
        "input_layernorm.weight": gain(32),
        "self_attn.q_proj.weight": draw(32, 32),
        "self_attn.k_proj.weight": draw(16, 32),
        "self_attn.v_proj.weight": draw(16, 32),
        "self_attn.o_proj.weight": draw(32, 32),
        "post_attention_layernorm.weight": gain(32),
        "mlp.gate_proj.weight": draw(48, 32),
        "mlp.up_proj.weight": draw(48, 32),
        "mlp.down_proj.weight": draw(32, 48),
    }
    if head_norms:
        tensors |= {"self_attn.q_norm.weight": gain(8), "self_attn.k_norm.weight": gain(8)}
    return {prefix + name: tensor for name, tensor in tensors.items()}


def write_target(folder: Path, seed: int = 0) -> Path:
    """A two-layer Llama with a vocabulary of 12."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {"model.embed_tokens.weight": torch.randn(12, 32, generator=generator) * 0.5}
    for index in range(2):
        tensors |= _layer(f"model.layers.{index}.", generator, head_norms=False)
    tensors["model.norm.weight"] = torch.ones(32)
    return _write(folder, TARGET_CONFIG, tensors)


def write_drafter(folder: Path, seed: int = 1, **config: object) -> Path:
    """A two-layer DFlash drafter with blocks of 5."""
    generator = torch.Generator().manual_seed(seed)
    tensors: Tensors = {}
    for index in range(2):
        tensors |= _layer(f"layers.{index}.", generator, head_norms=True)
    tensors["fc.weight"] = torch.randn(32, 64, generator=generator) * 0.2
    tensors["hidden_norm.weight"] = 1 + 0.2 * torch.randn(32, generator=generator)
    tensors["norm.weight"] = 1 + 0.2 * torch.randn(32, generator=generator)
    return _write(folder, {**DRAFTER_CONFIG, **config}, tensors)


def _write(folder: Path, config: dict[str, object], tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    save_file(tensors, folder / "model.safetensors")
    return folder


def _norm(rows: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return rows / torch.sqrt((rows * rows).mean(-1, keepdim=True) + epsilon) * weight


def _rotate(heads: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """`heads` [tokens, heads, size]: each pair (i, i + size/2) turned by position * theta^(-2i/size)."""
    half = heads.shape[-1] // 2
    angle = positions[:, None, None].double() * theta ** (-torch.arange(half).double() * 2 / heads.shape[-1])
    first, second = heads[..., :half].double(), heads[..., half:].double()
    turned = (first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin())
    return torch.cat(turned, -1).to(heads.dtype)


def _attention(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Each head by itself, softmax written out; returns [tokens, heads * size]."""
    group = queries.shape[1] // keys.shape[1]
    outputs = []
    for head in range(queries.shape[1]):
        scores = queries[:, head] @ keys[:, head // group].T / math.sqrt(queries.shape[-1])
        weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
        outputs.append(weights @ values[:, head // group])
    return torch.cat(outputs, -1)


def _mlp(rows: torch.Tensor, tensors: Tensors, prefix: str) -> torch.Tensor:
    gate = F.silu(F.linear(rows, tensors[prefix + "mlp.gate_proj.weight"]))
    return F.linear(
        gate * F.linear(rows, tensors[prefix + "mlp.up_proj.weight"]), tensors[prefix + "mlp.down_proj.weight"]
    )


class PlainTarget:
    """A Llama over whole sequences, straight from the checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}

    def _heads(self, rows: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(rows, self.tensors[name]).view(len(rows), -1, self.config["head_dim"])

    def run(self, ids: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Logits of every position [tokens, vocabulary] and the residual stream after each layer."""
        config, tensors = self.config, self.tensors
        hidden = tensors["model.embed_tokens.weight"][torch.tensor(ids)]
        positions = torch.arange(len(ids))
        visible = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
        epsilon, streams = config["rms_norm_eps"], []
        for index in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{index}."
            normed = _norm(hidden, tensors[prefix + "input_layernorm.weight"], epsilon)
            queries, keys, values = (self._heads(normed, f"{prefix}self_attn.{part}_proj.weight") for part in "qkv")
            queries, keys = (_rotate(part, positions, config["rope_theta"]) for part in (queries, keys))
            attended = _attention(queries, keys, values, visible)
            hidden = hidden + F.linear(attended, tensors[prefix + "self_attn.o_proj.weight"])
            normed = _norm(hidden, tensors[prefix + "post_attention_layernorm.weight"], epsilon)
            hidden = hidden + _mlp(normed, tensors, prefix)
            streams.append(hidden)
        normed = _norm(hidden, tensors["model.norm.weight"], epsilon)
        return normed @ tensors["model.embed_tokens.weight"].T, streams

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """The next `count` argmax tokens, the whole sequence run again for each."""
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.run(ids)[0][-1].argmax()))
        return ids[len(prompt) :]


def plain_draft_logits(target: PlainTarget, drafter_folder: Path, committed: list[int], anchor: int) -> torch.Tensor:
    """DFlash's slot distributions as logits [block - 1, vocabulary], from whole sequences and without any cache."""
    config = json.loads((drafter_folder / "config.json").read_text())
    tensors = load_file(drafter_folder / "model.safetensors")
    epsilon, theta, size = config["rms_norm_eps"], config["rope_theta"], config["head_dim"]
    streams = target.run(committed)[1]
    features = torch.cat([streams[layer] for layer in config["dflash_config"]["target_layer_ids"]], -1)
    context = _norm(F.linear(features, tensors["fc.weight"]), tensors["hidden_norm.weight"], epsilon)
    block = [anchor] + [config["dflash_config"]["mask_token_id"]] * (config["block_size"] - 1)
    hidden = target.tensors["model.embed_tokens.weight"][torch.tensor(block)]
    before, inside = torch.arange(len(committed)), torch.arange(len(block)) + len(committed)
    for index in range(config["num_hidden_layers"]):
        prefix = f"layers.{index}."
        normed = _norm(hidden, tensors[prefix + "input_layernorm.weight"], epsilon)

        def heads(rows: torch.Tensor, part: str, prefix: str = prefix) -> torch.Tensor:
            return F.linear(rows, tensors[f"{prefix}self_attn.{part}_proj.weight"]).view(len(rows), -1, size)

        def keys_of(rows: torch.Tensor, positions: torch.Tensor, prefix: str = prefix) -> torch.Tensor:
            scaled = _norm(heads(rows, "k", prefix), tensors[prefix + "self_attn.k_norm.weight"], epsilon)
            return _rotate(scaled, positions, theta)

        queries = _norm(heads(normed, "q"), tensors[prefix + "self_attn.q_norm.weight"], epsilon)
        keys = torch.cat((keys_of(context, before), keys_of(normed, inside)))
        values = torch.cat((heads(context, "v"), heads(normed, "v")))
        everything = torch.ones(len(block), len(keys), dtype=torch.bool)
        attended = _attention(_rotate(queries, inside, theta), keys, values, everything)
        hidden = hidden + F.linear(attended, tensors[prefix + "self_attn.o_proj.weight"])
        hidden = hidden + _mlp(
            _norm(hidden, tensors[prefix + "post_attention_layernorm.weight"], epsilon), tensors, prefix
        )
    normed = _norm(hidden, tensors["norm.weight"], epsilon)
    return (normed @ target.tensors["model.embed_tokens.weight"].T)[1:]
