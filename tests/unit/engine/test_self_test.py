"""How dtype and threads are resolved."""

import json
from pathlib import Path

import pytest
import torch

from draftbench.engine.checkpoint import ModelShape
from draftbench.engine.linear import PackedLinear, PlainLinear, packing_works
from draftbench.engine.self_test import has_bfloat16_instructions, resolve_numerics

SHAPE = ModelShape(2, 32, 4, 2, 8, 48, 12, 1e-5, 1e4)


def test_explicit_values_stay_and_nothing_is_remembered(tmp_path: Path) -> None:
    """No test runs where nothing is left open."""
    numerics = resolve_numerics("cpu", "float32", 1, SHAPE, tmp_path)
    assert (numerics.device, numerics.dtype, numerics.threads, numerics.reason) == ("cpu", "float32", 1, "as set")
    assert list(tmp_path.iterdir()) == []


def test_open_values_are_decided_once(tmp_path: Path) -> None:
    """The second launch takes over what the first found, word for word, and a damaged memory is made anew."""
    first = resolve_numerics("cpu", "auto", None, SHAPE, tmp_path)
    (memory,) = tmp_path.iterdir()
    planted = json.loads(memory.read_text()) | {"reason": "from an earlier launch"}
    memory.write_text(json.dumps(planted))
    assert resolve_numerics("cpu", "auto", None, SHAPE, tmp_path).reason == "from an earlier launch"
    memory.write_text("{")
    assert resolve_numerics("cpu", "auto", None, SHAPE, tmp_path).reason.startswith(first.dtype)


def test_another_model_is_tested_by_itself(tmp_path: Path) -> None:
    """What suits one model's sizes says nothing of another's."""
    resolve_numerics("cpu", "float32", None, SHAPE, tmp_path)
    resolve_numerics("cpu", "float32", None, ModelShape(2, 64, 4, 2, 16, 48, 12, 1e-5, 1e4), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(has_bfloat16_instructions(), reason="this CPU has bf16 instructions")
def test_no_bf16_instructions_means_float32(tmp_path: Path) -> None:
    """Emulated bf16 is never chosen."""
    assert resolve_numerics("cpu", "auto", 1, SHAPE, tmp_path).dtype == "float32"


@pytest.mark.parametrize("rows", [1, 7, 33])
@pytest.mark.skipif(not packing_works(torch.float32, torch.device("cpu")), reason="PyTorch packs no weights here")
def test_packed_and_plain_layers_agree(rows: int) -> None:
    """Product and fused sum, for widths that fill no vector register."""
    generator = torch.Generator().manual_seed(rows)
    weight, inputs = torch.randn(45, 37, generator=generator), torch.randn(rows, 37, generator=generator)
    other = torch.randn(rows, 45, generator=generator)
    packed, plain = PackedLinear(weight), PlainLinear(weight)
    torch.testing.assert_close(packed(inputs), plain(inputs), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(packed.plus(inputs, other), inputs @ weight.T + other, atol=1e-5, rtol=1e-5)
