"""The DFlash drafter: context keys and values from the target's features, and one bidirectional block of masks."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

from draftbench.engine.attention import RotaryTable, Segment, attend
from draftbench.engine.checkpoint import DrafterConfig, Weights
from draftbench.engine.layers import DecoderLayer, RmsNorm
from draftbench.engine.linear import make_linear


class DrafterModel:
    """Weights and forward passes in z-lab's checkpoint layout; embedding and head are the target's.

    Source: DFlash, arXiv 2602.06036, and z-lab/dflash `model.py`.
    """

    def __init__(
        self,
        folder: Path,
        config: DrafterConfig,
        positions: int,
        dtype: torch.dtype,
        device: torch.device,
        packed: bool,
    ) -> None:
        self.config = config
        weights, shape = Weights(folder, dtype, device), config.shape
        prefixes = [f"layers.{index}." for index in range(shape.layers)]
        self._layers = [DecoderLayer.load(weights, prefix, shape, packed) for prefix in prefixes]
        query = [weights.get(f"{prefix}self_attn.q_norm.weight") for prefix in prefixes]
        key = [weights.get(f"{prefix}self_attn.k_norm.weight") for prefix in prefixes]
        self._head_norms = [
            torch.cat((q.expand(shape.heads, -1), k.expand(shape.kv_heads, -1)))
            for q, k in zip(query, key, strict=True)
        ]
        self._key_norms = torch.stack(key).unsqueeze(1)
        context = [f"{prefix}self_attn.{part}_proj.weight" for prefix in prefixes for part in "kv"]
        self._context_keys_values = make_linear(weights.stacked(*context), packed)
        self._fuse = make_linear(weights.get("fc.weight"), packed)
        self._fused_norm = RmsNorm(weights.get("hidden_norm.weight"), shape.norm_epsilon)
        self._norm = RmsNorm(weights.get("norm.weight"), shape.norm_epsilon)
        self._rotary = RotaryTable(shape, positions, dtype, device)

    def extend_context(self, features: torch.Tensor, places: Sequence[tuple[torch.Tensor, int, int]]) -> None:
        """Cache the keys and values of newly committed tokens, of all layers at once.

        `features` [rows, feature layers * hidden]; each place is (cache, first position, rows of it), in row order.
        """
        shape = self.config.shape
        fused = self._fused_norm(self._fuse(features))
        split = (len(features), shape.layers, 2, shape.kv_heads, shape.head_dim)
        projected = self._context_keys_values(fused).view(split)
        positions = torch.cat([torch.arange(start, start + rows, device=fused.device) for _, start, rows in places])
        keys = F.rms_norm(projected[:, :, 0], (shape.head_dim,), None, shape.norm_epsilon) * self._key_norms
        cosines, sines = self._rotary.at(positions)
        keys = self._rotary.rotate(keys, (cosines.unsqueeze(1), sines.unsqueeze(1)))
        both = torch.cat((keys, projected[:, :, 1]), dim=2).permute(1, 2, 0, 3)
        first = 0
        for cache, start, rows in places:
            cache[:, :, start : start + rows] = both[:, :, first : first + rows]
            first += rows

    def draft_block(self, embedded: torch.Tensor, positions: torch.Tensor, segments: Sequence[Segment]) -> torch.Tensor:
        """Normed hidden rows of blocks [anchor, mask, ...]: row k of a block predicts the token at that same position.

        The block's keys and values are scratch behind the committed context.
        """
        shape, hidden = self.config.shape, embedded
        angles = self._rotary.at(positions)
        for index, layer in enumerate(self._layers):
            projected = layer.project(hidden, shape)
            turning = projected[:, : shape.heads + shape.kv_heads]
            normed = F.rms_norm(turning, (shape.head_dim,), None, shape.norm_epsilon) * self._head_norms[index]
            turning.copy_(self._rotary.rotate(normed, angles))
            hidden = layer.finish(hidden, attend(projected, shape, index, segments))
        return self._norm(hidden)
