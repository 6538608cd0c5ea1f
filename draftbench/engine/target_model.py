"""The target's forward pass: a Llama with optional features after chosen layers."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

from draftbench.engine.attention import RotaryTable, Segment, attend
from draftbench.engine.checkpoint import TargetConfig, Weights
from draftbench.engine.layers import DecoderLayer, RmsNorm
from draftbench.engine.linear import make_linear


class TargetModel:
    """Weights and forward pass; the caches belong to the slots."""

    def __init__(
        self,
        folder: Path,
        config: TargetConfig,
        positions: int,
        dtype: torch.dtype,
        device: torch.device,
        packed: bool,
        feature_layers: Sequence[int] = (),
        draft_vocabulary: int | None = None,
    ) -> None:
        self.config, self.dtype, self.device, self.packed = config, dtype, device, packed
        self._feature_layers = tuple(feature_layers)
        weights = Weights(folder, dtype, device)
        shape = config.shape
        self._embedding = weights.get("model.embed_tokens.weight")
        self._layers = [
            DecoderLayer.load(weights, f"model.layers.{index}.", shape, packed) for index in range(shape.layers)
        ]
        self._norm = RmsNorm(weights.get("model.norm.weight"), shape.norm_epsilon)
        head = self._embedding if config.tied_head else weights.get("lm_head.weight")
        self._head = make_linear(head, packed)
        limited = draft_vocabulary is not None and draft_vocabulary < len(head)
        self._draft_head = make_linear(head[:draft_vocabulary].clone(), packed) if limited else self._head
        self._rotary = RotaryTable(shape, positions, dtype, device)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Embedding rows; the drafter borrows them."""
        return F.embedding(token_ids, self._embedding)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Head of normed rows [rows, hidden] -> [rows, vocabulary]."""
        return self._head(hidden)

    def draft_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The drafter borrows the head, over the draft vocabulary: [rows, hidden] -> [rows, draft vocabulary]."""
        return self._draft_head(hidden)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, segments: Sequence[Segment]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Normed hidden rows [rows, hidden], and features [rows, feature layers * hidden] where layers were chosen.

        Features are the residual stream after a layer (DFlash, arXiv 2602.06036).
        """
        shape = self.config.shape
        hidden = self.embed(token_ids)
        angles = self._rotary.at(positions)
        after: dict[int, torch.Tensor] = {}
        for index, layer in enumerate(self._layers):
            projected = layer.project(hidden, shape)
            turning = projected[:, : shape.heads + shape.kv_heads]
            turning.copy_(self._rotary.rotate(turning, angles))
            hidden = layer.finish(hidden, attend(projected, shape, index, segments))
            if index in self._feature_layers:
                after[index] = hidden
        features = torch.cat([after[index] for index in self._feature_layers], dim=-1) if after else None
        return self._norm(hidden), features
