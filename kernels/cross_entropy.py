"""Cross-entropy over a vocabulary: of logits, or of hidden states and a head, whose logits are never all there.

The second makes its gradients while it goes forward, some tokens at a time: logits turn into their gradient where they
stand, and are gone. Forward then costs three products of the head's size and backward none, the same in all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contraflow.kernels import gpu

IGNORED = -100
"""A target that does not count."""


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
        counted = (targets != IGNORED).unsqueeze(-1)
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


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, num_targets: int, weight_grad: Tensor | None = None
) -> Tensor:
    """`cross_entropy` of the logits hidden @ weight^T: hidden [..., n], weight [vocabulary, n], targets int64 [...].

    Where a gradient is asked for, that of `weight` is added to `weight_grad` at once, in forward, as if the loss were
    what backward starts from; without a `weight_grad` it is made, and autograd's. Beside it and the gradient of
    `hidden` there are never more logits than `hidden` has elements, but for at least `_LEAST_ROWS` rows of them.
    """
    if not torch.is_grad_enabled() or not (hidden.requires_grad or weight.requires_grad):
        return _losses(hidden, weight, targets, num_targets, None, None)
    loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, targets, num_targets, weight_grad)  # type: ignore[no-untyped-call]
    return loss


_LEAST_ROWS = 512
"""Fewer tokens at a time would make narrow products of the head's."""


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        num_targets: int,
        weight_grad: Tensor | None,
    ) -> Tensor:
        own = torch.zeros_like(weight) if weight_grad is None and weight.requires_grad else None
        hidden_grad = torch.empty_like(hidden)
        collected = own if weight_grad is None else weight_grad if weight.requires_grad else None
        loss = _losses(hidden, weight, targets, num_targets, hidden_grad, collected)
        ctx.hidden_grad, ctx.weight_grad = hidden_grad, own
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        hidden_grad, weight_grad = ctx.hidden_grad, ctx.weight_grad
        del ctx.hidden_grad, ctx.weight_grad
        scaled = None if weight_grad is None else weight_grad.mul_(grad.to(weight_grad.dtype))
        return hidden_grad.mul_(grad.to(hidden_grad.dtype)), scaled, None, None, None


def _losses(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    num_targets: int,
    hidden_grad: Tensor | None,
    weight_grad: Tensor | None,
) -> Tensor:
    """The loss; with `hidden_grad` that is filled, and to `weight_grad`, where there is one, is added."""
    rows, wanted = hidden.flatten(0, -2), targets.flatten()
    vocabulary, n = weight.shape
    step = max(_LEAST_ROWS, -(-len(rows) * n // vocabulary))
    precision = torch.promote_types(hidden.dtype, torch.float32)
    loss = torch.zeros((), dtype=precision, device=hidden.device)
    grads = None if hidden_grad is None else hidden_grad.flatten(0, -2)
    for part in (slice(first, first + step) for first in range(0, len(rows), step)):
        logits = rows[part] @ weight.t()
        losses, logits_grad = _loss_and_gradient(logits, wanted[part], 1 / num_targets, grads is not None)
        loss += losses.sum()
        if grads is not None:
            torch.mm(logits_grad, weight, out=grads[part])
        if weight_grad is not None:
            if weight_grad.dtype == logits_grad.dtype:
                weight_grad.addmm_(logits_grad.t(), rows[part])
            else:
                weight_grad.add_(logits_grad.t() @ rows[part])
        del logits, logits_grad
    return loss


def _loss_and_gradient(
    logits: Tensor, targets: Tensor, scale: float, gradient: bool
) -> tuple[Tensor, Tensor]:
    """Of every row its loss times `scale`, and where it is wanted their gradient in place of the logits."""
    if logits.is_cuda and gpu.absence() is None:
        from contraflow.kernels.gpu.cross_entropy import loss_and_gradient

        return loss_and_gradient(logits, targets, scale), logits
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    counted = targets != IGNORED
    chosen = targets.clamp(min=0).unsqueeze(-1)
    most = wide.amax(-1, keepdim=True)
    of_target = wide.gather(-1, chosen)
    total = wide.sub_(most).exp_().sum(-1, keepdim=True)
    losses = ((total.log() + most - of_target).squeeze(-1) * counted).mul_(scale)
    if gradient:
        scales = (counted.to(wide.dtype) * scale).unsqueeze(-1)
        wide.mul_(scales / total).scatter_add_(-1, chosen, -scales)
    return losses, wide.to(logits.dtype)
