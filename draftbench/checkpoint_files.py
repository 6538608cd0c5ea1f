"""A checkpoint's files: config.json, safetensors headers, and a digest that tells two checkpoints apart."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from draftbench.config import ModelConfig
from draftbench.errors import ModelError

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)

_DIGEST_SAMPLES = 64
_DIGEST_SAMPLE_BYTES = 4096


def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json; raises ModelError where it cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{folder / 'config.json'}: cannot be read as JSON ({error}); fetch the model again") from None
    if not isinstance(config, dict):
        raise ModelError(f"{folder / 'config.json'}: is no JSON object; fetch the model again")
    return config


def read_header(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: an 8-byte little-endian length, then JSON.

    Raises ModelError for a file that is none, for example a Git LFS pointer.
    """
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if 8 + length > file.stat().st_size:
                raise ValueError("header longer than the file")
            header = json.loads(stream.read(length))
    except (OSError, ValueError, struct.error) as error:
        raise ModelError(f"{file}: is no safetensors file ({error}); fetch the model again") from None
    if not isinstance(header, dict):
        raise ModelError(f"{file}: is no safetensors file (header is no object); fetch the model again")
    return header


def model_digest(folder: Path) -> str:
    """Sha256 that tells two checkpoints apart without reading all weights, for the session hash.

    Covers config.json, tokenizer files, each safetensors file's size and header, and 64 evenly spaced samples of its
    bytes, since a retrained drafter has the same header.
    Raises ModelError where the folder holds no checkpoint.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: no config.json; run `make setup` or correct the path")
    state = hashlib.sha256()
    for file in [folder / "config.json", *(folder / name for name in _TOKENIZER_FILES)]:
        if file.is_file():
            state.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    for file in sorted(folder.glob("*.safetensors")):
        state.update(f"{file.name}\0{file.stat().st_size}\0".encode() + _sampled_digest(file))
    return state.hexdigest()


def _sampled_digest(file: Path) -> bytes:
    size = file.stat().st_size
    state = hashlib.sha256(json.dumps(read_header(file), sort_keys=True).encode())
    with file.open("rb") as stream:
        for sample in range(_DIGEST_SAMPLES):
            stream.seek(max(0, size - _DIGEST_SAMPLE_BYTES) * sample // (_DIGEST_SAMPLES - 1))
            state.update(stream.read(_DIGEST_SAMPLE_BYTES))
    return state.digest()


def model_identity(model: ModelConfig, root: Path) -> str:
    """Return what the session hash covers: the checkpoint's digest, or one of the declared facts where there is none.

    Raises ModelError where there is neither.
    """
    if (root / model.path / "config.json").is_file() or not model.facts:
        return model_digest(root / model.path)
    content = {name: fact.model_dump(mode="json")["value"] for name, fact in sorted(model.facts.items())}
    return "declared:" + hashlib.sha256(json.dumps([model.name, content]).encode()).hexdigest()
