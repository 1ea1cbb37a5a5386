"""LLaMA: RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contraflow.designer.format.model import ModelShape
from contraflow.engine.models.decoder import Decoder
from contraflow.engine.models.protocol import Subsequence
from contraflow.engine.weight_grads import Linear
from contraflow.kernels.rms_norm import rms_norm
from contraflow.kernels.rope import frequencies, rotate, rotation
from contraflow.kernels.swiglu import swiglu


def build(
    shape: ModelShape, layers: range, first: bool, last: bool, dtype: torch.dtype, device: torch.device
) -> Decoder:
    """One stage, its parameters not filled yet: see `models.build`, which does."""
    rotary = Rotary(shape, dtype, device)
    return Decoder(
        shape,
        layers,
        first=first,
        last=last,
        block=lambda number: Block(shape, number, rotary, dtype, device),
        norm=lambda: RmsNorm(shape, dtype, device),
        dtype=dtype,
        device=device,
    )


class Rotary:
    """Turns queries and keys by their absolute positions; the angles are made once per stage, and grow when needed."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype = dtype
        self._frequencies = frequencies(shape.head_dim, shape.rope_base, shape.rope_scaling).to(device)
        self._rotation = rotation(0, self._frequencies, dtype)

    def __call__(self, x: Tensor, start: int) -> Tensor:
        """x [batch, n, heads, head_dim] at the positions start .. start + n - 1."""
        stop = start + x.shape[1]
        if stop > len(self._rotation):
            self._rotation = rotation(max(stop, 2 * len(self._rotation)), self._frequencies, self._dtype)
        return rotate(x, self._rotation[start:stop])


class RmsNorm(nn.Module):
    """x [..., hidden], each row brought to a root mean square of one, times a weight."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape.hidden, dtype=dtype, device=device))
        self._eps = shape.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self._eps)


class Block(nn.Module):
    """hidden [batch, n, hidden] + attention, + feed-forward, each of the normed hidden states."""

    def __init__(
        self, shape: ModelShape, number: int, rotary: Rotary, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.attention_norm = RmsNorm(shape, dtype, device)
        self.attention = Attention(shape, number, rotary, dtype, device)
        self.ffn_norm = RmsNorm(shape, dtype, device)
        self.ffn = SwiGlu(shape, dtype, device)

    def forward(self, hidden: Tensor, context: Subsequence) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), context)
        hidden = hidden + self.ffn(self.ffn_norm(hidden))
        return hidden


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(
        self, shape: ModelShape, number: int, rotary: Rotary, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self._number, self._rotary = number, rotary
        self._heads = (-1, shape.head_dim)
        self.query = Linear(shape.hidden, shape.hidden, dtype=dtype, device=device)
        self.key = Linear(shape.hidden, shape.kv_hidden, dtype=dtype, device=device)
        self.value = Linear(shape.hidden, shape.kv_hidden, dtype=dtype, device=device)
        self.output = Linear(shape.hidden, shape.hidden, dtype=dtype, device=device)

    def forward(self, x: Tensor, context: Subsequence) -> Tensor:
        q = self._rotary(self.query(x).unflatten(-1, self._heads), context.start)
        k = self._rotary(self.key(x).unflatten(-1, self._heads), context.start)
        v = self.value(x).unflatten(-1, self._heads)
        out: Tensor = self.output(context.attend(self._number, q, k, v).flatten(-2))
        return out


class SwiGlu(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.gate = Linear(shape.hidden, shape.ffn, dtype=dtype, device=device)
        self.up = Linear(shape.hidden, shape.ffn, dtype=dtype, device=device)
        self.down = Linear(shape.ffn, shape.hidden, dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(swiglu(self.gate(x), self.up(x)))
        return out
