"""GPT: LayerNorm, learned positions, multi-head attention, GELU, biases."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contraflow.designer.format.model import ModelShape
from contraflow.engine.models.decoder import Decoder
from contraflow.engine.models.protocol import Subsequence
from contraflow.engine.weight_grads import Embedding, Linear


def build(
    shape: ModelShape, layers: range, first: bool, last: bool, dtype: torch.dtype, device: torch.device
) -> Gpt:
    """One stage, its parameters not filled yet: see `models.build`, which does."""
    return Gpt(
        shape,
        layers,
        first=first,
        last=last,
        block=lambda number: Block(shape, number, dtype, device),
        norm=lambda: nn.LayerNorm(shape.hidden, shape.norm_eps, dtype=dtype, device=device),
        dtype=dtype,
        device=device,
    )


class Gpt(Decoder):
    """A decoder that adds a learned vector of each token's position to its embedding."""

    def __init__(
        self,
        shape: ModelShape,
        layers: range,
        *,
        first: bool,
        dtype: torch.dtype,
        device: torch.device,
        **rest: Any,
    ) -> None:
        super().__init__(shape, layers, first=first, dtype=dtype, device=device, **rest)
        if first:
            self.positions = Embedding(shape.positions, shape.hidden, dtype=dtype, device=device)

    def embed(self, ids: Tensor, context: Subsequence) -> Tensor:
        """ids int64 [batch, n] -> hidden [batch, n, hidden]; IndexError past the learned positions."""
        num_positions = len(self.positions.weight)
        if context.stop > num_positions:
            raise IndexError(f"position {context.stop - 1} of a sequence, but the model has {num_positions}")
        positions = context.positions(ids.device).expand_as(ids)
        hidden: Tensor = self.embedding(ids) + self.positions(positions)
        return hidden


class Block(nn.Module):
    """hidden [batch, n, hidden] + attention, + feed-forward, each of the normed hidden states."""

    def __init__(self, shape: ModelShape, number: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.hidden, shape.norm_eps, dtype=dtype, device=device)
        self.attention = Attention(shape, number, dtype, device)
        self.ffn_norm = nn.LayerNorm(shape.hidden, shape.norm_eps, dtype=dtype, device=device)
        self.ffn = FeedForward(shape, dtype, device)

    def forward(self, hidden: Tensor, context: Subsequence) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), context)
        hidden = hidden + self.ffn(self.ffn_norm(hidden))
        return hidden


class Attention(nn.Module):
    """Attention with biases, but none on the keys: softmax does not see it, so its gradient would be rounding alone."""

    def __init__(self, shape: ModelShape, number: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self._number = number
        self._heads = (-1, shape.head_dim)
        self.query = Linear(shape.hidden, shape.hidden, bias=True, dtype=dtype, device=device)
        self.key = Linear(shape.hidden, shape.kv_hidden, dtype=dtype, device=device)
        self.value = Linear(shape.hidden, shape.kv_hidden, bias=True, dtype=dtype, device=device)
        self.output = Linear(shape.hidden, shape.hidden, bias=True, dtype=dtype, device=device)

    def forward(self, x: Tensor, context: Subsequence) -> Tensor:
        q, k, v = (project(x).unflatten(-1, self._heads) for project in (self.query, self.key, self.value))
        out: Tensor = self.output(context.attend(self._number, q, k, v).flatten(-2))
        return out


class FeedForward(nn.Module):
    """down(gelu(up(x))), GELU by its tanh form."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.up = Linear(shape.hidden, shape.ffn, bias=True, dtype=dtype, device=device)
        self.down = Linear(shape.ffn, shape.hidden, bias=True, dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.gelu(self.up(x), approximate="tanh"))
        return out
