"""RMSNorm: one pass over a row forward, one backward; the weight's gradient in as many pieces as there are programs."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_PROGRAMS = 256
"""Of the backward at most: each sums the weight's gradient over its share of the rows."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., hidden] over the root of its mean square (plus `eps`), times `weight` [hidden]."""
    out: Tensor = _RmsNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return out


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        hidden = x.shape[-1]
        num_rows = x.numel() // hidden
        out = torch.empty_like(x)
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        inverse = torch.empty(num_rows, dtype=wide, device=x.device)
        block = triton.next_power_of_2(hidden)
        if num_rows:
            _forward[(num_rows,)](x, weight, out, inverse, hidden, eps, block, num_warps=_warps(block))
        ctx.save_for_backward(x, weight, inverse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse = ctx.saved_tensors
        grad = grad.contiguous()
        hidden, num_rows = x.shape[-1], len(inverse)
        x_grad = torch.empty_like(x)
        num_programs = min(num_rows, _PROGRAMS)
        pieces = torch.empty(num_programs, hidden, dtype=inverse.dtype, device=x.device)
        block = triton.next_power_of_2(hidden)
        if num_rows:
            _backward[(num_programs,)](
                grad, x, weight, inverse, x_grad, pieces, num_rows, hidden, block, num_warps=_warps(block)
            )
        return x_grad, pieces.sum(0).to(weight.dtype), None


def _warps(block: int) -> int:
    return min(max(block // 512, 1), 16)


@triton.jit
def _forward(x, weight, out, inverse, hidden, eps, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    inside = at < hidden
    wide = inverse.dtype.element_ty
    values = tl.load(x + row * hidden + at, inside, other=0.0).to(wide)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / hidden + eps)
    weights = tl.load(weight + at, inside, other=0.0).to(wide)
    tl.store(out + row * hidden + at, (values * scale * weights).to(out.dtype.element_ty), inside)
    tl.store(inverse + row, scale)


@triton.jit
def _backward(grad, x, weight, inverse, x_grad, pieces, num_rows, hidden, block: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    inside = at < hidden
    wide = inverse.dtype.element_ty
    weights = tl.load(weight + at, inside, other=0.0).to(wide)
    weight_grad = tl.zeros((block,), wide)
    for row in range(program, num_rows, tl.num_programs(0)):
        values = tl.load(x + row * hidden + at, inside, other=0.0).to(wide)
        grads = tl.load(grad + row * hidden + at, inside, other=0.0).to(wide)
        scale = tl.load(inverse + row)
        normed = values * scale
        weight_grad += grads * normed
        scaled = grads * weights
        along = tl.sum(scaled * normed, 0) / hidden
        own = (scaled - normed * along) * scale
        tl.store(x_grad + row * hidden + at, own.to(x_grad.dtype.element_ty), inside)
    tl.store(pieces + program * hidden + at, weight_grad, inside)
