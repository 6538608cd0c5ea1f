"""Model facts: sizes of a checkpoint from its config.json and safetensors headers, or declared; no weights are read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftbench.checkpoint_files import read_config, read_header
from draftbench.config import DeclaredFact, ModelConfig
from draftbench.config.models import FACT_NAMES
from draftbench.errors import ModelError

FactValue = int | float | str | bool | tuple[int, ...]

CACHE_BYTES = 2
"""Bytes of a KV cache value: bfloat16, the default of SGLang and of the embedded engine where it uses bfloat16."""

FALLBACK_BLOCK_SIZE = 16
"""What SGLang takes for a DFlash drafter whose config.json names no block size."""

_RECURRENT_HINTS = ("linear_", "mamba", "ssm_", "rwkv", "gdn")
"""Beginnings of config keys that only models with recurrent layers have."""


@dataclass(frozen=True)
class Fact:
    """A number and where it was read; `value` None = unknown, `source` then says why."""

    value: FactValue | None
    source: str


@dataclass(frozen=True)
class ModelFacts:
    """Sizes of one model by the names in `FACT_NAMES`; `warnings` are sentences for the plan."""

    name: str
    origin: str
    facts: Mapping[str, Fact]
    warnings: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        assert set(self.facts) == FACT_NAMES

    def count(self, name: str) -> int | None:
        """Return a whole number, or None where it is unknown."""
        value = self.facts[name].value
        return int(value) if isinstance(value, int | float) else None

    def layers_of(self, name: str) -> tuple[int, ...] | None:
        """Return a list of layer numbers, or None where it is unknown."""
        value = self.facts[name].value
        return value if isinstance(value, tuple) else None

    def source(self, name: str) -> str:
        """Return where the fact was read, or why it is unknown."""
        return self.facts[name].source

    @property
    def is_hybrid(self) -> bool | None:
        """Whether some layers are recurrent; None where that is unknown."""
        recurrent = self.count("recurrent_layers")
        return None if recurrent is None else recurrent > 0


def read_facts(model: ModelConfig, root: Path, key: str) -> ModelFacts:
    """Read the facts from the checkpoint; where there is none, take the declared ones.

    `key` is the config section (target, drafter), for the error line.
    Raises ModelError, one line, for a path without config.json and without declared facts.
    """
    declared = model.facts or {}
    folder = root / model.path
    if (folder / "config.json").is_file():
        return _facts_of_checkpoint(folder, model, declared)
    if declared:
        facts = {name: _declared(declared.get(name)) for name in FACT_NAMES}
        return _finish(model.name, "declared in the config", facts, [])
    raise ModelError(f"{key}.path {model.path}: no config.json; run `make setup` or correct the path")


def _declared(fact: DeclaredFact | None) -> Fact:
    if fact is None:
        return Fact(None, "not declared")
    return Fact(fact.value, fact.source)


def _facts_of_checkpoint(folder: Path, model: ModelConfig, declared: Mapping[str, DeclaredFact]) -> ModelFacts:
    warnings: list[str] = []
    facts = facts_of_config(read_config(folder), warnings) | _sizes_of_weights(folder)
    for name, wanted in declared.items():
        read = facts[name].value
        if read is None:
            facts[name] = _declared(wanted)
        elif wanted.value is not None and _declared(wanted).value != read:
            warnings.append(f"{name}: the config declares {wanted.value}, the checkpoint says {read}, which is used")
    return _finish(model.name, "read from the checkpoint", facts, warnings)


def facts_of_config(config: Mapping[str, Any], warnings: list[str]) -> dict[str, Fact]:
    """Facts that config.json alone gives, for Llama, Qwen2, Qwen3, Qwen3.5/3.6 and DFlash drafters.

    Multimodal configs hold the language model in `text_config`.
    """
    nested = config.get("text_config")
    text: Mapping[str, Any] = nested if isinstance(nested, dict) else config
    place = "config.json, text_config." if text is nested else "config.json, "
    facts = {name: Fact(None, "config.json has no such key") for name in FACT_NAMES}
    for name, key in _PLAIN_KEYS.items():
        if isinstance(text.get(key), int):
            facts[name] = Fact(text[key], place + key)
    facts |= _head_facts(text, facts, place) | _layer_kinds(text, facts["layers"].value, place)
    facts["recurrent_state_bytes"] = _recurrent_state(text, facts["recurrent_layers"].value)
    facts |= _drafter_facts(config, facts["layers"].value, warnings)
    return facts


_PLAIN_KEYS = {
    "layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "query_heads": "num_attention_heads",
    "vocabulary": "vocab_size",
    "context_length": "max_position_embeddings",
}


def _head_facts(text: Mapping[str, Any], facts: Mapping[str, Fact], place: str) -> dict[str, Fact]:
    heads, hidden = facts["query_heads"].value, facts["hidden_size"].value
    found: dict[str, Fact] = {}
    if isinstance(text.get("num_key_value_heads"), int):
        found["kv_heads"] = Fact(text["num_key_value_heads"], place + "num_key_value_heads")
    elif isinstance(heads, int):
        found["kv_heads"] = Fact(heads, "no num_key_value_heads, so as many as query heads")
    if isinstance(text.get("head_dim"), int):
        found["head_dim"] = Fact(text["head_dim"], place + "head_dim")
    elif isinstance(heads, int) and isinstance(hidden, int):
        found["head_dim"] = Fact(hidden // heads, "no head_dim, so hidden_size / num_attention_heads")
    return found


def _layer_kinds(text: Mapping[str, Any], layers: FactValue | None, place: str) -> dict[str, Fact]:
    kinds, interval = text.get("layer_types"), text.get("full_attention_interval")
    if isinstance(kinds, list) and kinds:
        attention = sum(kind in ("full_attention", "sliding_attention", "attention") for kind in kinds)
        total, source = len(kinds), place + "layer_types"
    elif isinstance(interval, int) and interval > 0 and isinstance(layers, int):
        attention, total, source = layers // interval, layers, place + "full_attention_interval"
    elif any(key.startswith(_RECURRENT_HINTS) for key in text):
        unknown = Fact(None, "config.json has keys of recurrent layers, but no layer_types to count them by")
        return {"attention_layers": unknown, "recurrent_layers": unknown}
    elif isinstance(layers, int):
        attention, total, source = layers, layers, "no layer_types and no keys of recurrent layers"
    else:
        return {}
    return {"attention_layers": Fact(attention, source), "recurrent_layers": Fact(total - attention, source)}


def _recurrent_state(text: Mapping[str, Any], recurrent: FactValue | None) -> Fact:
    """State of one sequence: per layer a value-heads x key-dim x value-dim matrix and the convolution's last inputs.

    Source: the gated delta rule layers of Qwen3-Next and Qwen3.5, as SGLang's mamba pool sizes them.
    """
    if recurrent == 0:
        return Fact(0, "no recurrent layers")
    keys = ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
    if not isinstance(recurrent, int) or not all(isinstance(text.get(key), int) for key in keys):
        return Fact(None, "config.json lacks the sizes of a gated delta rule layer")
    key_heads, value_heads, key_dim, value_dim = (text[key] for key in keys)
    state_width = 4 if text.get("mamba_ssm_dtype", "float32") == "float32" else 2
    matrix = value_heads * key_dim * value_dim * state_width
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    convolution = channels * (text.get("linear_conv_kernel_dim", 4) - 1) * CACHE_BYTES
    source = (
        f"{recurrent} layers x ({value_heads} heads x {key_dim} x {value_dim} x {state_width} B "
        f"+ convolution {convolution} B)"
    )
    return Fact(recurrent * (matrix + convolution), source)


def _drafter_facts(config: Mapping[str, Any], layers: FactValue | None, warnings: list[str]) -> dict[str, Fact]:
    inner = config.get("dflash_config")
    if not isinstance(inner, dict) and not any("DFlash" in str(name) for name in config.get("architectures") or ()):
        not_a_drafter = Fact(None, "no block drafter")
        return {"block_size": not_a_drafter, "mask_token_id": not_a_drafter, "feature_layers": not_a_drafter}
    inner = inner if isinstance(inner, dict) else {}
    return {
        "block_size": _block_size(config, inner, warnings),
        "mask_token_id": _mask_token(config, inner, warnings),
        "feature_layers": _feature_layers(config, inner, layers, warnings),
    }


def _block_size(config: Mapping[str, Any], inner: Mapping[str, Any], warnings: list[str]) -> Fact:
    """Block size by SGLang's rule: top-level key, else the one in dflash_config, else 16."""
    top, nested = config.get("block_size"), inner.get("block_size")
    if isinstance(top, int):
        if isinstance(nested, int) and nested != top:
            warnings.append(
                f"block_size is {top} at the top of config.json and {nested} in dflash_config; {top} is used"
            )
        return Fact(top, "config.json, block_size (top level)")
    if isinstance(nested, int):
        return Fact(nested, "config.json, dflash_config.block_size")
    warnings.append(
        f"config.json names no block_size; {FALLBACK_BLOCK_SIZE} is taken, as SGLang does: "
        "check it against the drafter's card, a wrong block costs acceptance without an error"
    )
    return Fact(FALLBACK_BLOCK_SIZE, "fallback: config.json names none")


def _mask_token(config: Mapping[str, Any], inner: Mapping[str, Any], warnings: list[str]) -> Fact:
    for where, holder in (("dflash_config.", inner), ("", config)):
        if isinstance(holder.get("mask_token_id"), int):
            return Fact(holder["mask_token_id"], f"config.json, {where}mask_token_id")
    warnings.append("config.json names no mask_token_id; the engine will pick one, and a wrong one costs acceptance")
    return Fact(None, "config.json names none")


def _feature_layers(
    config: Mapping[str, Any], inner: Mapping[str, Any], layers: FactValue | None, warnings: list[str]
) -> Fact:
    for where, holder in (("dflash_config.", inner), ("", config)):
        listed = holder.get("target_layer_ids")
        if isinstance(listed, list) and all(isinstance(layer, int) for layer in listed):
            return Fact(tuple(listed), f"config.json, {where}target_layer_ids")
    target_layers = config.get("num_target_layers")
    if not isinstance(target_layers, int) or not isinstance(layers, int):
        return Fact(None, "config.json names neither target_layer_ids nor num_target_layers")
    warnings.append("config.json names no target_layer_ids; z-lab's even spacing is taken")
    return Fact(evenly_spaced_layers(target_layers, layers), "rule: evenly spaced from 1 to L - 3")


def evenly_spaced_layers(target_layers: int, drafter_layers: int) -> tuple[int, ...]:
    """Target layers whose outputs a DFlash drafter reads when its config names none (z-lab's `model.py`)."""
    if drafter_layers == 1:
        return (target_layers // 2,)
    step = (target_layers - 4) / (drafter_layers - 1)
    return tuple(round(1 + index * step) for index in range(drafter_layers))


def _sizes_of_weights(folder: Path) -> dict[str, Fact]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        unknown = Fact(None, "no *.safetensors in the folder")
        return {"parameters": unknown, "weight_bytes": unknown}
    tensors = [tensor for file in files for name, tensor in read_header(file).items() if name != "__metadata__"]
    source = f"headers of {len(files)} safetensors file{'s' if len(files) > 1 else ''}"
    return {
        "parameters": Fact(sum(math.prod(tensor["shape"]) for tensor in tensors), source),
        "weight_bytes": Fact(sum(tensor["data_offsets"][1] - tensor["data_offsets"][0] for tensor in tensors), source),
    }


def _finish(name: str, origin: str, facts: dict[str, Fact], warnings: Sequence[str]) -> ModelFacts:
    """Derive what the other facts determine, where it is not known already."""

    def derive(name: str, needed: Sequence[str], value: Any, source: str) -> None:
        inputs = [facts[other].value for other in needed]
        if facts[name].value is None and all(isinstance(item, int | float) for item in inputs):
            facts[name] = Fact(value(*inputs), source)

    derive(
        "kv_bytes_per_token",
        ("attention_layers", "kv_heads", "head_dim"),
        lambda layers, heads, width: 2 * layers * heads * width * CACHE_BYTES,
        f"2 x attention layers x KV heads x head size x {CACHE_BYTES} B",
    )
    if facts["recurrent_state_bytes"].value is None and facts["recurrent_layers"].value == 0:
        facts["recurrent_state_bytes"] = Fact(0, "no recurrent layers")
    derive(
        "bytes_per_parameter", ("weight_bytes", "parameters"), lambda size, count: size / count, "weights / parameters"
    )
    derive(
        "weight_bytes",
        ("parameters", "bytes_per_parameter"),
        lambda count, width: round(count * width),
        "parameters x bytes a parameter",
    )
    return ModelFacts(name, origin, facts, tuple(warnings))
