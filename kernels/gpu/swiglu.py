"""SwiGLU's product, which keeps its two factors and nothing else."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

_BLOCK = 1024


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, all of one shape."""
    out: Tensor = _SwiGlu.apply(gate, up)  # type: ignore[no-untyped-call]
    return out


class _SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        out = torch.empty_like(gate)
        size = out.numel()
        if size:
            _forward[(triton.cdiv(size, _BLOCK),)](gate, up, out, size, _wide(gate), _BLOCK)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        grad = grad.contiguous()
        gate_grad, up_grad = torch.empty_like(gate), torch.empty_like(up)
        size = grad.numel()
        if size:
            grid = (triton.cdiv(size, _BLOCK),)
            _backward[grid](grad, gate, up, gate_grad, up_grad, size, _wide(gate), _BLOCK)
        return gate_grad, up_grad


def _wide(x: Tensor) -> tl.dtype:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


@triton.jit
def _forward(gate, up, out, size, wide: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    gates = tl.load(gate + at, inside, other=0.0).to(wide)
    ups = tl.load(up + at, inside, other=0.0).to(wide)
    tl.store(out + at, (gates / (1.0 + tl.exp(-gates)) * ups).to(out.dtype.element_ty), inside)


@triton.jit
def _backward(grad, gate, up, gate_grad, up_grad, size, wide: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    grads = tl.load(grad + at, inside, other=0.0).to(wide)
    gates = tl.load(gate + at, inside, other=0.0).to(wide)
    ups = tl.load(up + at, inside, other=0.0).to(wide)
    share = 1.0 / (1.0 + tl.exp(-gates))
    silu = gates * share
    tl.store(up_grad + at, (grads * silu).to(up_grad.dtype.element_ty), inside)
    own = grads * ups * (share + silu * (1.0 - share))
    tl.store(gate_grad + at, own.to(gate_grad.dtype.element_ty), inside)
