"""Reading checkpoint folders: rules for missing keys, and one clear line for each mistake."""

import json
from pathlib import Path

import pytest

from draftbench.engine.checkpoint import evenly_spaced_layers, read_drafter_config, read_target_config
from draftbench.engine.engine import Engine
from draftbench.engine.interface import EngineSettings
from draftbench.errors import ModelError
from tests.unit.engine.tiny_models import DRAFTER_CONFIG, TARGET_CONFIG, write_drafter, write_target


@pytest.mark.parametrize(
    ("target_layers", "drafter_layers", "expected"),
    [
        (36, 5, (1, 9, 17, 25, 33)),
        (24, 5, (1, 6, 11, 16, 21)),
        (30, 3, (1, 14, 27)),
        (30, 5, (1, 8, 14, 20, 27)),
        (30, 1, (15,)),
    ],
)
def test_default_feature_layers_are_those_of_published_drafters(
    target_layers: int, drafter_layers: int, expected: tuple[int, ...]
) -> None:
    """Qwen3-4B, Qwen2.5-0.5B and SmolLM2-135M as z-lab's rule gives them."""
    assert evenly_spaced_layers(target_layers, drafter_layers) == expected


def test_block_size_may_stand_in_dflash_config(tmp_path: Path) -> None:
    """The nested key counts where the top one is missing, and the rule says so."""
    target = read_target_config(write_target(tmp_path / "target"))
    nested = {**DRAFTER_CONFIG["dflash_config"], "block_size": 9}  # type: ignore[dict-item]
    folder = write_drafter(tmp_path / "drafter", block_size=None, dflash_config=nested)
    drafter = read_drafter_config(folder, target)
    assert (drafter.block_size, drafter.block_size_rule) == (9, "config.json: dflash_config.block_size")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "hidden_size 64 is not the target's 32"),
        ({"block_size": 1}, "leaves no draft token"),
        ({"dflash_config": {}}, "mask_token_id is missing"),
        ({"dflash_config": {"mask_token_id": 40}}, "outside the target's vocabulary"),
        ({"dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2]}}, r"target_layer_ids \[2\] are outside"),
        ({"layer_types": ["sliding_attention"]}, "sliding-window"),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "runs DFlashDraftModel"),
        ({"num_attention_heads": 3}, "do not divide"),
        ({"rms_norm_eps": None}, "'rms_norm_eps' is missing"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling"),
    ],
)
def test_a_drafter_that_cannot_run_is_one_clear_line(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    """Each mistake names the file and the key."""
    target = read_target_config(write_target(tmp_path / "target"))
    folder = write_drafter(tmp_path / "drafter", **changes)
    with pytest.raises(ModelError, match=message) as caught:
        read_drafter_config(folder, target)
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_broken_files_are_one_clear_line(tmp_path: Path) -> None:
    """No folder, no config, malformed config, no tensors, a cut file, a missing tensor."""

    def load(target: Path) -> None:
        Engine(
            EngineSettings(
                target, None, "AR", None, max_running_requests=1, context_length=64, dtype="float32", threads=1
            )
        )

    folder = write_target(tmp_path / "target")
    weights, config = folder / "model.safetensors", folder / "config.json"
    with pytest.raises(ModelError, match="no such target folder"):
        load(tmp_path / "nowhere")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    with pytest.raises(ModelError, match="not a readable safetensors file"):
        load(folder)
    weights.unlink()
    with pytest.raises(ModelError, match=r"no \*\.safetensors"):
        load(folder)
    weights.write_bytes(whole)
    config.write_text(json.dumps({**TARGET_CONFIG, "num_hidden_layers": 3}))
    with pytest.raises(ModelError, match=r"tensor model\.layers\.2\.\S+ is missing"):
        load(folder)
    config.write_text("{")
    with pytest.raises(ModelError, match="not valid JSON"):
        load(folder)
    config.unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        load(folder)
