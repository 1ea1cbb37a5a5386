"""Cross-entropy of rows of logits, whose place their gradient takes: twice over a row, and once to write."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096
"""Logits that are looked at together."""


def loss_and_gradient(logits: Tensor, targets: Tensor, scale: float) -> Tensor:
    """Turn logits [rows, vocabulary], in place, into the gradient of the losses' sum; return the losses [rows].

    A loss is -log softmax(logits)[target] * scale, in at least float32; 0, with a gradient of zeros, for target -100.
    """
    assert logits.is_contiguous()
    num_rows, vocabulary = logits.shape
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    losses = torch.empty(num_rows, dtype=wide, device=logits.device)
    block = min(_BLOCK, triton.next_power_of_2(vocabulary))
    if num_rows:
        _row[(num_rows,)](logits, targets, losses, vocabulary, scale, block)
    return losses


@triton.jit
def _row(logits, targets, losses, vocabulary, scale, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * vocabulary
    target = tl.load(targets + row)
    wide = losses.dtype.element_ty
    most = tl.full((), float("-inf"), wide)
    total = tl.full((), 0.0, wide)
    for first in range(0, vocabulary, block):
        at = first + tl.arange(0, block)
        values = tl.load(logits + at, at < vocabulary, other=float("-inf")).to(wide)
        higher = tl.maximum(most, tl.max(values, 0))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(values - higher), 0)
        most = higher
    counts = target != -100
    chosen = tl.load(logits + tl.where(counts, target, 0)).to(wide)
    tl.store(losses + row, tl.where(counts, (tl.log(total) + most - chosen) * scale, 0.0))
    weight = tl.where(counts, scale, 0.0) / total
    for first in range(0, vocabulary, block):
        at = first + tl.arange(0, block)
        values = tl.load(logits + at, at < vocabulary, other=0.0).to(wide)
        grads = tl.exp(values - most) * weight - tl.where((at == target) & counts, scale, 0.0)
        tl.store(logits + at, grads.to(logits.dtype.element_ty), at < vocabulary)
