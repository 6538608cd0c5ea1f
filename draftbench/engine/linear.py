"""Linear layers with weights packed once for oneDNN, where the CPU build of PyTorch has it.

Packing matters more than anything else on a CPU: without it a bf16 step takes 1.5 times as long.
The operators are private to PyTorch (they serve its compiler), so their use is guarded by a check at start-up.
"""

import torch
import torch.nn.functional as F  # noqa: N812  (the field's own name for it)


class PlainLinear:
    """A bias-free linear layer by `F.linear`."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """[rows, inputs] -> [rows, outputs]."""
        return F.linear(rows, self._weight)

    def plus(self, rows: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The result plus `other`."""
        return F.linear(rows, self._weight) + other


class PackedLinear:
    """A bias-free linear layer by oneDNN, with its weight in oneDNN's own blocked layout."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
        self._run = torch.ops.mkldnn._linear_pointwise.default
        self._run_binary = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """[rows, inputs] -> [rows, outputs]."""
        return self._run(rows, self._weight, None, "none", [], "")

    def plus(self, rows: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """The result plus `other`, added before rounding."""
        return self._run_binary(rows, other, self._weight, None, "add")


Linear = PlainLinear | PackedLinear


def make_linear(weight: torch.Tensor, packed: bool) -> Linear:
    """A linear layer for `weight` [outputs, inputs]."""
    return PackedLinear(weight) if packed else PlainLinear(weight)


def packing_works(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this build of PyTorch packs weights of `dtype` and computes with them rightly."""
    if device.type != "cpu":
        return False
    weight = torch.linspace(-1, 1, 64 * 32).reshape(64, 32).to(dtype)
    rows = torch.linspace(-1, 1, 4 * 32).reshape(4, 32).to(dtype)
    try:
        packed = PackedLinear(weight)
        results = packed(rows), packed.plus(rows, torch.ones(4, 64, dtype=dtype)) - 1
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    expected = rows.float() @ weight.float().T
    return all(torch.allclose(result.float(), expected, atol=0.15, rtol=0.02) for result in results)
