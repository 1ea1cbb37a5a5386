"""Rotary positions: every pair of neighbours turned, in one pass; backward turns the other way."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_BLOCK = 1024


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """x [batch, n, heads, head_dim] with each pair turned by its position's angle; `rotation` [n, 1, head_dim / 2]."""
    out: Tensor = _Rotate.apply(x, torch.view_as_real(rotation))  # type: ignore[no-untyped-call]
    return out


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, turns: Tensor) -> Tensor:
        ctx.turns = turns
        return _turned(x, turns, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _turned(grad, ctx.turns, -1.0), None


def _turned(x: Tensor, turns: Tensor, sign: float) -> Tensor:
    x, turns = x.contiguous(), turns.contiguous()
    _, n, heads, head_dim = x.shape
    out = torch.empty_like(x)
    num_pairs = x.numel() // 2
    if num_pairs:
        grid = (triton.cdiv(num_pairs, _BLOCK),)
        _turn[grid](x, turns, out, num_pairs, n, heads, head_dim // 2, sign, _BLOCK)
    return out


@triton.jit
def _turn(x, turns, out, num_pairs, n, heads, half, sign, block: tl.constexpr):
    pair = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = pair < num_pairs
    turn = (pair // (half * heads)) % n * half + pair % half
    cos = tl.load(turns + 2 * turn, inside, other=0.0)
    sin = tl.load(turns + 2 * turn + 1, inside, other=0.0) * sign
    even = tl.load(x + 2 * pair, inside, other=0.0).to(cos.dtype)
    odd = tl.load(x + 2 * pair + 1, inside, other=0.0).to(cos.dtype)
    tl.store(out + 2 * pair, (even * cos - odd * sin).to(out.dtype.element_ty), inside)
    tl.store(out + 2 * pair + 1, (even * sin + odd * cos).to(out.dtype.element_ty), inside)
