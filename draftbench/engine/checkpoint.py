"""Reading target and drafter checkpoints: their configs, checked against each other, and their tensors."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from draftbench.errors import ModelError

DEFAULT_BLOCK_SIZE = 16
"""What SGLang assumes for a DFlash drafter whose config names no block size."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a stack of pre-norm decoder layers with grouped-query attention."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    norm_epsilon: float
    rope_theta: float

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads


@dataclass(frozen=True)
class TargetConfig:
    """A Llama target."""

    shape: ModelShape
    context_length: int
    eos_token_ids: frozenset[int]
    tied_head: bool


@dataclass(frozen=True)
class DrafterConfig:
    """A DFlash drafter in z-lab's layout; each `*_rule` says where the value beside it was found."""

    shape: ModelShape
    block_size: int
    block_size_rule: str
    feature_layers: tuple[int, ...]
    feature_layers_rule: str
    mask_token_id: int


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint folder; raises ModelError if it is missing or malformed."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); is the checkpoint folder complete?") from error
    except ValueError as error:
        raise ModelError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(document, dict):
        raise ModelError(f"{path}: a JSON object was expected")
    return document


def _shape(config: dict[str, Any], path: Path) -> ModelShape:
    try:
        heads = int(config["num_attention_heads"])
        shape = ModelShape(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            intermediate=int(config["intermediate_size"]),
            vocabulary=int(config["vocab_size"]),
            norm_epsilon=float(config["rms_norm_eps"]),
            rope_theta=_rope_theta(config, path),
        )
    except KeyError as error:
        raise ModelError(f"{path}: key {error} is missing") from error
    if shape.heads % shape.kv_heads:
        raise ModelError(f"{path}: {shape.heads} attention heads do not divide by {shape.kv_heads} KV heads")
    return shape


def _rope_theta(config: dict[str, Any], path: Path) -> float:
    parameters = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or parameters
    if scaling.get("rope_type", scaling.get("type", "default")) != "default":
        raise ModelError(f"{path}: rope_scaling {scaling} is not supported by the embedded engine")
    return float(config.get("rope_theta") or parameters.get("rope_theta", 10000.0))


def _refuse_unsupported(config: dict[str, Any], path: Path, architecture: str) -> None:
    found = (config.get("architectures") or ["none"])[0]
    if found != architecture:
        raise ModelError(f"{path}: architecture {found} is not supported here; the embedded engine runs {architecture}")
    biased = [key for key in ("attention_bias", "mlp_bias") if config.get(key)]
    if biased:
        raise ModelError(f"{path}: {biased[0]} is not supported by the embedded engine")
    if config.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{path}: hidden_act {config['hidden_act']} is not supported by the embedded engine")


def read_target_config(folder: Path) -> TargetConfig:
    """Raises ModelError unless `folder` holds a plain Llama checkpoint."""
    path = folder / "config.json"
    config = read_json(path)
    _refuse_unsupported(config, path, "LlamaForCausalLM")
    generation = folder / "generation_config.json"
    eos = (read_json(generation) if generation.exists() else {}).get("eos_token_id", config.get("eos_token_id"))
    ends = [] if eos is None else eos if isinstance(eos, list) else [eos]
    return TargetConfig(
        shape=_shape(config, path),
        context_length=int(config.get("max_position_embeddings", 2048)),
        eos_token_ids=frozenset(int(token) for token in ends),
        tied_head=bool(config.get("tie_word_embeddings", False)),
    )


def evenly_spaced_layers(target_layers: int, drafter_layers: int) -> tuple[int, ...]:
    """z-lab's default feature layers: the middle one, or evenly spaced from 1 to target_layers - 3."""
    if drafter_layers == 1:
        return (target_layers // 2,)
    step = (target_layers - 4) / (drafter_layers - 1)
    return tuple(round(1 + index * step) for index in range(drafter_layers))


def _block_size(config: dict[str, Any], nested: dict[str, Any]) -> tuple[int, str]:
    if config.get("block_size") is not None:
        return int(config["block_size"]), "config.json: block_size"
    if nested.get("block_size") is not None:
        return int(nested["block_size"]), "config.json: dflash_config.block_size"
    return DEFAULT_BLOCK_SIZE, f"no block_size in config.json: SGLang's default {DEFAULT_BLOCK_SIZE}, may be wrong"


def _feature_layers(nested: dict[str, Any], target_layers: int, drafter_layers: int) -> tuple[tuple[int, ...], str]:
    if nested.get("target_layer_ids"):
        return tuple(nested["target_layer_ids"]), "config.json: dflash_config.target_layer_ids"
    return evenly_spaced_layers(target_layers, drafter_layers), "no target_layer_ids in config.json: evenly spaced"


def read_drafter_config(folder: Path, target: TargetConfig) -> DrafterConfig:
    """Raises ModelError unless `folder` holds a DFlash drafter that fits the target."""
    path = folder / "config.json"
    config = read_json(path)
    _refuse_unsupported(config, path, "DFlashDraftModel")
    nested = config.get("dflash_config") or {}
    shape = _shape(config, path)
    if nested.get("mask_token_id") is None:
        raise ModelError(f"{path}: dflash_config.mask_token_id is missing; no drafter can be run without it")
    if "sliding_attention" in (config.get("layer_types") or []):
        raise ModelError(f"{path}: sliding-window layers are not supported by the embedded engine")
    block_size, block_rule = _block_size(config, nested)
    layers, layers_rule = _feature_layers(nested, target.shape.layers, shape.layers)
    drafter = DrafterConfig(shape, block_size, block_rule, layers, layers_rule, int(nested["mask_token_id"]))
    _check_pair(drafter, target, path)
    return drafter


def _check_pair(drafter: DrafterConfig, target: TargetConfig, path: Path) -> None:
    if drafter.shape.hidden != target.shape.hidden:
        raise ModelError(f"{path}: hidden_size {drafter.shape.hidden} is not the target's {target.shape.hidden}")
    if drafter.block_size < 2:
        raise ModelError(f"{path}: block_size {drafter.block_size} leaves no draft token; at least 2")
    if not 0 <= drafter.mask_token_id < target.shape.vocabulary:
        raise ModelError(f"{path}: mask_token_id {drafter.mask_token_id} is outside the target's vocabulary")
    outside = [layer for layer in drafter.feature_layers if not 0 <= layer < target.shape.layers]
    if outside:
        raise ModelError(f"{path}: target_layer_ids {outside} are outside the target's {target.shape.layers} layers")


class Weights:
    """The tensors of one checkpoint folder, cast to one dtype and moved to one device when asked for."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device) -> None:
        self._folder, self._dtype, self._device = folder, dtype, device
        self._files = _tensor_files(folder)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def get(self, name: str) -> torch.Tensor:
        """One tensor; raises ModelError if the checkpoint lacks it."""
        if name not in self._files:
            raise ModelError(f"{self._folder}: tensor {name} is missing")
        with safe_open(self._files[name], framework="pt") as stored:
            return stored.get_tensor(name).to(device=self._device, dtype=self._dtype)

    def stacked(self, *names: str) -> torch.Tensor:
        """Several projections of one input, stacked by rows into one."""
        return torch.cat([self.get(name) for name in names])


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Which safetensors file holds each tensor."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as stored:
                found.update(dict.fromkeys(stored.keys(), path))
        except Exception as error:  # safetensors raises its own type for a cut file
            raise ModelError(f"{path}: not a readable safetensors file ({error})") from error
    if not found:
        raise ModelError(f"{folder}: no *.safetensors file")
    return found
