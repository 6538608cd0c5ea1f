"""One attention for target and drafter: rows of several requests together, each over its own cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812

from draftbench.engine.checkpoint import ModelShape


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one request in a forward pass.

    `cache` is [layers, 2 * kv_heads, capacity, head_dim]; the rows' keys and values are written from `start` on.
    `mask` is additive, [group * length, start + length], or None where every row sees everything.
    """

    cache: torch.Tensor
    start: int
    length: int
    mask: torch.Tensor | None


class RotaryTable:
    """Cosines and signed sines of rotary embeddings in the two-halves layout of Hugging Face, [positions, head_dim]."""

    def __init__(self, shape: ModelShape, positions: int, dtype: torch.dtype, device: torch.device) -> None:
        half = shape.head_dim // 2
        frequencies = shape.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
        sines = angles.sin()
        self._half = half
        self._cosines = torch.cat((angles.cos(), angles.cos()), dim=-1).to(device=device, dtype=dtype)
        self._sines = torch.cat((-sines, sines), dim=-1).to(device=device, dtype=dtype)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines of `positions` [rows], each [rows, 1, head_dim]."""
        return self._cosines[positions].unsqueeze(1), self._sines[positions].unsqueeze(1)

    def rotate(self, heads: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """`heads` [rows, heads, head_dim] turned by the rows' angles."""
        cosines, sines = angles
        return torch.addcmul(heads * cosines, heads.roll(self._half, -1), sines)


def additive_mask(
    visible: npt.NDArray[np.bool_], start: int, group: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """The mask of rows that see all `start` committed tokens and each other as `visible` [rows, rows] says.

    Repeated for each of the `group` query heads that share a KV head: [group * rows, start + rows].
    """
    rows = len(visible)
    mask = torch.zeros(group, rows, start + rows, dtype=dtype, device=device)
    hidden = torch.from_numpy(~visible).to(device)
    mask[:, :, start:].masked_fill_(hidden, float("-inf"))
    return mask.view(group * rows, start + rows)


def attend(projected: torch.Tensor, shape: ModelShape, layer: int, segments: Sequence[Segment]) -> torch.Tensor:
    """Write the rows' keys and values, then attend; returns [rows, heads * head_dim].

    `projected` is [rows, heads + 2 * kv_heads, head_dim]: queries, keys, values, positions already applied.
    """
    results, first = [], 0
    for segment in segments:
        results.append(_attend_segment(projected[first : first + segment.length], shape, layer, segment))
        first += segment.length
    return results[0] if len(results) == 1 else torch.cat(results)


def _attend_segment(rows: torch.Tensor, shape: ModelShape, layer: int, segment: Segment) -> torch.Tensor:
    """Query heads of one KV head are folded into its rows: one attention call reads each key once."""
    cache, end = segment.cache[layer], segment.start + segment.length
    cache[:, segment.start : end] = rows[:, shape.heads :].transpose(0, 1)
    folded = (1, shape.kv_heads, shape.group * segment.length, shape.head_dim)
    apart = (segment.length, shape.kv_heads, shape.group, shape.head_dim)
    queries = rows[:, : shape.heads].reshape(apart).permute(1, 2, 0, 3).reshape(folded)
    keys, values = cache[None, : shape.kv_heads, :end], cache[None, shape.kv_heads :, :end]
    result = F.scaled_dot_product_attention(queries, keys, values, attn_mask=segment.mask)
    return result.view(shape.kv_heads, shape.group, segment.length, -1).permute(2, 0, 1, 3).reshape(segment.length, -1)
