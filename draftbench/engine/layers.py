"""What the decoder layers of target and drafter share."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812

from draftbench.engine.checkpoint import ModelShape, Weights
from draftbench.engine.linear import Linear, make_linear


@dataclass(frozen=True)
class RmsNorm:
    """Root-mean-square norm over the last dimension."""

    weight: torch.Tensor
    epsilon: float

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """`rows`, normed and scaled."""
        return F.rms_norm(rows, self.weight.shape, self.weight, self.epsilon)


@dataclass(frozen=True)
class DecoderLayer:
    """Weights of one pre-norm layer: attention with fused q, k, v and SwiGLU with fused gate and up."""

    attention_norm: RmsNorm
    qkv: Linear
    output: Linear
    feed_forward_norm: RmsNorm
    gate_up: Linear
    down: Linear

    @classmethod
    def load(cls, weights: Weights, prefix: str, shape: ModelShape, packed: bool) -> "DecoderLayer":
        """Layer `prefix` ("layers.0.") of a checkpoint in Hugging Face's naming."""
        projections = [f"{prefix}self_attn.{part}_proj.weight" for part in "qkv"]
        halves = [f"{prefix}mlp.{part}_proj.weight" for part in ("gate", "up")]
        return cls(
            RmsNorm(weights.get(f"{prefix}input_layernorm.weight"), shape.norm_epsilon),
            make_linear(weights.stacked(*projections), packed),
            make_linear(weights.get(f"{prefix}self_attn.o_proj.weight"), packed),
            RmsNorm(weights.get(f"{prefix}post_attention_layernorm.weight"), shape.norm_epsilon),
            make_linear(weights.stacked(*halves), packed),
            make_linear(weights.get(f"{prefix}mlp.down_proj.weight"), packed),
        )

    def project(self, hidden: torch.Tensor, shape: ModelShape) -> torch.Tensor:
        """Queries, keys and values of the rows: [rows, heads + 2 * kv_heads, head_dim]."""
        return self.qkv(self.attention_norm(hidden)).view(len(hidden), -1, shape.head_dim)

    def finish(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The layer's output from its input and what attention gave."""
        hidden = self.output.plus(attended, hidden)
        gate, up = self.gate_up(self.feed_forward_norm(hidden)).chunk(2, dim=-1)
        return self.down.plus(F.silu(gate) * up, hidden)
