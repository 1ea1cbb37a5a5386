"""Layers whose weight gradients can wait: the `W` action.

A `Linear`'s backward makes the gradient of its input at once. The product that makes its weight's gradient goes into
`weight.grad`, in place, either at once (`B`) or, while its stage runs an `I`, aside for the later `W`. Everything else
(biases, norms, the embedding) is cheap and belongs to `I`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@dataclass(frozen=True, slots=True, eq=False)
class WeightProduct:
    """The gradient of `weight` [out, in] still to be made: x [..., in], grad [..., out], both detached.

    Detached, for a tensor that knew its graph would close a cycle through the store, and nothing would ever be freed.
    """

    weight: nn.Parameter
    x: Tensor
    grad: Tensor

    def add(self) -> None:
        """Add grad^T x to `weight.grad`, in place where there is one."""
        x, grad = self.x.flatten(0, -2), self.grad.flatten(0, -2)
        if self.weight.grad is None:
            self.weight.grad = grad.t() @ x
        else:
            self.weight.grad.addmm_(grad.t(), x)


class WeightProducts:
    """Where the layers of one stage bring their weight products: added at once, or set aside while an `I` runs."""

    def __init__(self) -> None:
        self._aside: list[WeightProduct] | None = None

    def bring(self, product: WeightProduct) -> None:
        """Add the product now, or set it aside."""
        if self._aside is None:
            product.add()
        else:
            self._aside.append(product)

    @contextmanager
    def set_aside(self) -> Iterator[list[WeightProduct]]:
        """Within, products are collected in the list that this gives."""
        products: list[WeightProduct] = []
        self._aside = products
        try:
            yield products
        finally:
            self._aside = None


class Linear(nn.Module):
    """x [..., in_features] -> [..., out_features], weight [out, in]; parameters are left for the model to fill.

    `products` is set by the stage that runs the layer; without one, weight gradients are added at once.
    """

    products: WeightProducts | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=dtype, device=device))
        self.bias = nn.Parameter(torch.empty(out_features, dtype=dtype, device=device)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _LinearFunction.apply(x, self.weight, self.bias, self.products)  # type: ignore[no-untyped-call]
        return out


class Embedding(nn.Module):
    """ids int64 [...] -> rows of weight [..., features]; their gradient is added to those rows of `weight.grad` alone.

    PyTorch's own makes a gradient of the whole table for every subsequence.
    """

    def __init__(
        self,
        num_embeddings: int,
        features: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, features, dtype=dtype, device=device))

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = _EmbeddingFunction.apply(ids, self.weight)  # type: ignore[no-untyped-call]
        return out


def cannot_wait(modules: Iterable[tuple[str, nn.Module]]) -> list[str]:
    """Of some modules with their names, those that hold matrices whose products no W can make: "up (Linear)"."""
    # An embedding's rows are no product: they cost I next to nothing.
    fine = (Linear, Embedding, nn.Embedding)
    return [
        f"{name} ({type(part).__name__})".lstrip()
        for name, part in modules
        if not isinstance(part, fine) and any(p.dim() > 1 for p in part.parameters(recurse=False))
    ]


# Both functions keep the parameter on the context itself: one that comes back from saved tensors may be another
# tensor, without `.grad`, under saved-tensor hooks. They return no gradient for it, having added it themselves.


class _LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: nn.Parameter, bias: Tensor | None, products: WeightProducts | None
    ) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.has_bias, ctx.products = weight, bias is not None, products
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        (x,) = ctx.saved_tensors
        weight = ctx.weight
        if weight.requires_grad:
            product = WeightProduct(weight, x.detach(), grad.detach())
            if ctx.products is None:
                product.add()
            else:
                ctx.products.bring(product)
        x_grad = grad @ weight if ctx.needs_input_grad[0] else None
        bias_grad = grad.flatten(0, -2).sum(dim=0) if ctx.needs_input_grad[2] else None
        return x_grad, None, bias_grad, None


class _EmbeddingFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: nn.Parameter) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.weight = weight
        return F.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        (ids,) = ctx.saved_tensors
        weight = ctx.weight
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        # On CUDA, unlike index_add_, this sums in the same order every time.
        weight.grad.index_put_((ids,), grad, accumulate=True)
        return None, None
