"""Cross-entropy of the whole vocabulary's logits, with the gradient made in place of the log-likelihoods."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def cross_entropy(logits: Tensor, targets: Tensor, num_targets: int) -> Tensor:
    """Sum over the targets that are not -100 of -log softmax(logits)[target], divided by `num_targets`.

    logits [..., vocabulary], targets int64 [...]; returns a scalar in at least float32. `num_targets` counts the
    whole step's targets, so that partial losses, and their gradients, only add. Its backward can run once.
    """
    loss: Tensor = _CrossEntropy.apply(logits, targets, num_targets)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    """PyTorch's own makes two more tensors of the logits' size in backward, one of them zeros."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, num_targets: int) -> Tensor:
        precision = torch.promote_types(logits.dtype, torch.float32)
        log_likelihoods = logits.log_softmax(dim=-1, dtype=precision)
        counted = (targets != -100).unsqueeze(-1)
        chosen = targets.unsqueeze(-1).clamp(min=0)
        ctx.log_likelihoods, ctx.chosen, ctx.counted = log_likelihoods, chosen, counted
        ctx.num_targets, ctx.dtype = num_targets, logits.dtype
        return -log_likelihoods.gather(-1, chosen).mul_(counted).sum() / num_targets

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        scale = ctx.counted * (grad / ctx.num_targets)
        logits_grad = ctx.log_likelihoods.exp_().mul_(scale).scatter_add_(-1, ctx.chosen, -scale)
        del ctx.log_likelihoods
        return logits_grad.to(ctx.dtype), None, None
