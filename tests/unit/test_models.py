"""Model facts from config.json and safetensors headers, declared facts, and the digest of a checkpoint."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from draftbench.checkpoint_files import model_digest, model_identity, read_header
from draftbench.config import DeclaredFact, ModelConfig
from draftbench.errors import ModelError
from draftbench.models import ModelFacts, evenly_spaced_layers, read_facts

DRAFTER = Path(__file__).resolve().parents[2] / "models" / "smollm2-135m-dflash"

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
}

QWEN35_TEXT = {
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "mamba_ssm_dtype": "float32",
}

DFLASH = {
    "architectures": ["DFlashDraftModel"],
    "hidden_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "num_target_layers": 36,
}


def write_checkpoint(folder: Path, config: dict[str, Any], tensors: dict[str, tuple[int, ...]] | None = None) -> Path:
    """Write config.json and, with tensors, one bf16 safetensors file of counting bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is not None:
        header, offset = {}, 0
        for name, shape in tensors.items():
            size = 2
            for side in shape:
                size *= side
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
        body = bytes(index % 251 for index in range(offset))
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    return folder


def facts_of(folder: Path, declared: dict[str, DeclaredFact] | None = None) -> ModelFacts:
    """Read the facts of a folder."""
    return read_facts(ModelConfig(name="model", path=folder.name, facts=declared), folder.parent, "target")


def test_llama_layout(tmp_path: Path) -> None:
    """SmolLM2-135M by hand: head size 576/9 = 64, KV 2 x 30 x 3 x 64 x 2 B = 23,040 B a token, no recurrent layer."""
    facts = facts_of(write_checkpoint(tmp_path / "m", LLAMA))
    assert facts.count("head_dim") == 64
    assert facts.count("kv_bytes_per_token") == 23_040
    assert (facts.count("attention_layers"), facts.count("recurrent_layers")) == (30, 0)
    assert facts.count("recurrent_state_bytes") == 0
    assert facts.is_hybrid is False
    assert facts.count("block_size") is None
    assert facts.source("layers") == "config.json, num_hidden_layers"


def test_qwen_hybrid_layout_nests_the_language_model(tmp_path: Path) -> None:
    """Qwen3.6-27B by hand: 64/4 = 16 attention layers, 48 recurrent ones.

    KV 2 x 16 x 4 x 256 x 2 B = 65,536 B a token.
    State 48 x (48 x 128 x 128 x 4 B + (2 x 16 x 128 + 48 x 128) x 3 x 2 B) = 48 x (3,145,728 + 61,440) B.
    """
    facts = facts_of(write_checkpoint(tmp_path / "m", {"model_type": "qwen3_5", "text_config": QWEN35_TEXT}))
    assert (facts.count("attention_layers"), facts.count("recurrent_layers")) == (16, 48)
    assert facts.count("kv_bytes_per_token") == 65_536
    assert facts.count("recurrent_state_bytes") == 153_944_064
    assert facts.is_hybrid is True
    assert facts.source("query_heads") == "config.json, text_config.num_attention_heads"


def test_layer_types_win_over_the_interval(tmp_path: Path) -> None:
    """Three linear layers and one full one are counted from the list; sliding attention is attention."""
    kinds = ["linear_attention"] * 3 + ["full_attention", "sliding_attention"]
    facts = facts_of(write_checkpoint(tmp_path / "m", {**QWEN35_TEXT, "layer_types": kinds}))
    assert (facts.count("attention_layers"), facts.count("recurrent_layers")) == (2, 3)


def test_recurrent_keys_without_a_count_are_unknown(tmp_path: Path) -> None:
    """A config with mamba keys but no layer list must not pass as a plain transformer."""
    facts = facts_of(write_checkpoint(tmp_path / "m", {**LLAMA, "mamba_d_state": 128}))
    assert facts.is_hybrid is None
    assert facts.count("kv_bytes_per_token") is None
    assert "no layer_types" in facts.source("recurrent_layers")


def test_weights_are_counted_from_headers(tmp_path: Path) -> None:
    """Tensors of 10 x 4 and 6 hold 46 parameters in 92 bytes; metadata is no tensor."""
    facts = facts_of(write_checkpoint(tmp_path / "m", LLAMA, {"a": (10, 4), "b": (6,)}))
    assert facts.count("parameters") == 46
    assert facts.count("weight_bytes") == 92
    assert facts.facts["bytes_per_parameter"].value == 2.0


def test_missing_weights_are_unknown_with_the_reason(tmp_path: Path) -> None:
    """A folder with config.json alone has unknown weights, not zero ones."""
    facts = facts_of(write_checkpoint(tmp_path / "m", LLAMA))
    assert facts.count("weight_bytes") is None
    assert facts.source("weight_bytes") == "no *.safetensors in the folder"


def test_shipped_drafter() -> None:
    """The drafter in models/: 2 layers, block 8 from the top level, mask 16, features of layers 1, 8, 15, 22, 28.

    Parameters by hand: fusion 5 x 576 x 576, two layers of q, o (576 x 576), k, v (576 x 192), MLP 3 x 576 x 1536,
    norms 2 x 576 + 2 x 64, and two final norms.
    """
    facts = read_facts(ModelConfig(name="d", path=DRAFTER.name), DRAFTER.parent, "drafter")
    layer = 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536 + 2 * 576 + 2 * 64
    assert facts.count("parameters") == 5 * 576 * 576 + 2 * layer + 2 * 576
    assert (facts.count("block_size"), facts.source("block_size")) == (8, "config.json, block_size (top level)")
    assert facts.count("mask_token_id") == 16
    assert facts.layers_of("feature_layers") == (1, 8, 15, 22, 28)
    assert facts.warnings == ()


@pytest.mark.parametrize(
    ("keys", "block_size", "rule", "warned"),
    [
        ({"block_size": 8}, 8, "top level", False),
        ({"dflash_config": {"block_size": 10}}, 10, "dflash_config.block_size", False),
        ({"block_size": 8, "dflash_config": {"block_size": 10}}, 8, "top level", True),
        ({}, 16, "fallback", True),
    ],
)
def test_block_size_is_found_by_rule(
    tmp_path: Path, keys: dict[str, Any], block_size: int, rule: str, warned: bool
) -> None:
    """Top level first, then dflash_config, else 16 as SGLang does; a fallback or a contradiction is a warning."""
    facts = facts_of(write_checkpoint(tmp_path / "m", {**DFLASH, **keys}))
    assert facts.count("block_size") == block_size
    assert rule in facts.source("block_size")
    assert any("block_size" in warning for warning in facts.warnings) is warned


def test_missing_feature_layers_follow_z_labs_spacing(tmp_path: Path) -> None:
    """Published pairs: 36 target layers with 5 give 1,9,17,25,33; 24 give 1,6,11,16,21; one layer is the middle one."""
    facts = facts_of(write_checkpoint(tmp_path / "m", DFLASH))
    assert facts.layers_of("feature_layers") == (1, 9, 17, 25, 33)
    assert evenly_spaced_layers(24, 5) == (1, 6, 11, 16, 21)
    assert evenly_spaced_layers(30, 3) == (1, 14, 27)
    assert evenly_spaced_layers(36, 1) == (18,)


def test_declared_facts_stand_in_for_a_missing_checkpoint(tmp_path: Path) -> None:
    """Declared numbers keep their source, null stays unknown with its reason, the rest is `not declared`."""
    declared = {
        "attention_layers": DeclaredFact(value=16, source="card"),
        "kv_heads": DeclaredFact(value=4, source="card"),
        "head_dim": DeclaredFact(value=256, source="card"),
        "parameters": DeclaredFact(value=1000, source="card"),
        "bytes_per_parameter": DeclaredFact(value=2, source="bf16"),
        "vocabulary": DeclaredFact(value=None, source="card does not say"),
    }
    facts = facts_of(tmp_path / "absent", declared)
    assert facts.origin == "declared in the config"
    assert facts.count("kv_bytes_per_token") == 65_536
    assert facts.count("weight_bytes") == 2000
    assert (facts.count("vocabulary"), facts.source("vocabulary")) == (None, "card does not say")
    assert facts.source("layers") == "not declared"


def test_checkpoint_wins_over_a_declaration_and_says_so(tmp_path: Path) -> None:
    """A declared number that the checkpoint contradicts is a warning; one that it lacks is filled in."""
    declared = {
        "layers": DeclaredFact(value=31, source="memory"),
        "weight_bytes": DeclaredFact(value=7, source="memory"),
    }
    facts = facts_of(write_checkpoint(tmp_path / "m", LLAMA), declared)
    assert facts.count("layers") == 30
    assert facts.count("weight_bytes") == 7
    assert facts.warnings == ("layers: the config declares 31, the checkpoint says 30, which is used",)


def test_a_path_without_checkpoint_is_one_line(tmp_path: Path) -> None:
    """The line names the key, the path and what to do."""
    model = ModelConfig(name="model", path="models/absent")
    with pytest.raises(ModelError) as raised:
        read_facts(model, tmp_path, "target")
    assert str(raised.value) == ("target.path models/absent: no config.json; run `make setup` or correct the path")


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", struct.pack("<Q", 9) + b"{}"]
)
def test_a_file_that_is_no_safetensors_is_one_line(tmp_path: Path, content: bytes) -> None:
    """Empty files, Git LFS pointers and cut files are named."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(ModelError, match="is no safetensors file"):
        read_header(file)


def test_broken_config_is_one_line(tmp_path: Path) -> None:
    """A config.json that is no JSON is named."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json: cannot be read as JSON"):
        facts_of(tmp_path / "m")


def test_digest_sees_weights_config_and_tokenizer(tmp_path: Path) -> None:
    """Another weight of the same shape, another config or another tokenizer is another checkpoint; a copy is not."""
    tensors = {"a": (64, 64)}
    first = model_digest(write_checkpoint(tmp_path / "a", LLAMA, tensors))
    assert model_digest(write_checkpoint(tmp_path / "b", LLAMA, tensors)) == first
    retrained = write_checkpoint(tmp_path / "c", LLAMA, tensors)
    content = bytearray((retrained / "model.safetensors").read_bytes())
    (retrained / "model.safetensors").write_bytes(content[:-8192] + bytes(b ^ 1 for b in content[-8192:]))
    other_config = write_checkpoint(tmp_path / "d", {**LLAMA, "rope_theta": 1.0}, tensors)
    other_tokenizer = write_checkpoint(tmp_path / "e", LLAMA, tensors)
    (other_tokenizer / "tokenizer.json").write_text("{}")
    assert len({first, *map(model_digest, (retrained, other_config, other_tokenizer))}) == 4


def test_identity_of_a_declared_model_changes_with_its_values_only(tmp_path: Path) -> None:
    """A reworded source is the same model; another number is not; neither folder nor facts is an error."""

    def identity(value: int, source: str) -> str:
        facts = {"layers": DeclaredFact(value=value, source=source)}
        return model_identity(ModelConfig(name="m", path="absent", facts=facts), tmp_path)

    assert identity(64, "card") == identity(64, "the card")
    assert identity(64, "card") != identity(63, "card")
    with pytest.raises(ModelError, match=r"no config\.json"):
        model_identity(ModelConfig(name="m", path="absent"), tmp_path)
