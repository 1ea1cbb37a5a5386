"""One stage of a model on one device: forward, backward and weight gradients of one subsequence at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from contraflow.engine.flat import FlatParameters
from contraflow.engine.kv import KeyValues
from contraflow.engine.models.protocol import StageModule, Subsequence, TiedStageModule
from contraflow.engine.weight_grads import Linear, WeightProduct, WeightProducts
from contraflow.kernels.attention import Backend


@dataclass(frozen=True, slots=True, eq=False)
class _Forwarded:
    """A subsequence between its F and its B or I: the stage's input, a leaf, and where its graph ends.

    Where the stage sends its output on, the end is an edge of the graph: the output itself need not stay.
    """

    x: Tensor
    end: Tensor | GradientEdge


class Stage:
    """A module, its parameters in flat buffers, and all that is alive between the actions of its subsequences.

    `own` holds the parameters that no other stage has, `tied` the one that another stage has too (a tied embedding);
    None where there is none. Gradients add up in the buffers, in place, until `zero_gradients`.

    `key_values` are those of the microbatches that are under way.
    Two directions on one device share the stage: their microbatches differ.
    """

    def __init__(self, module: StageModule, attention: Backend) -> None:
        self.module = module
        self._attention = attention
        self._products = WeightProducts()
        self.key_values: dict[int, KeyValues] = {}
        self._alive: dict[tuple[int, int], _Forwarded | list[WeightProduct]] = {}
        for part in module.modules():
            if isinstance(part, Linear):
                part.products = self._products
        tied = module.tied if isinstance(module, TiedStageModule) else None
        named = list(module.named_parameters())
        self.own = FlatParameters.of(
            [(name, parameter) for name, parameter in named if parameter is not tied]
        )
        self.tied: FlatParameters | None = None
        if tied is not None:
            self.tied = FlatParameters.of(
                [(name, parameter) for name, parameter in named if parameter is tied]
            )

    def tie(self, other: Stage) -> None:
        """Use the `tied` of `other`, on the same device, in place of this stage's: one parameter, one gradient."""
        if self.tied is None or other.tied is None or not isinstance(self.module, TiedStageModule):
            raise ValueError("only two stages that have a parameter in common can be tied")
        self.module.tie(other.tied.parameters[0])
        self.tied = other.tied

    @property
    def groups(self) -> tuple[FlatParameters, ...]:
        """`own`, and `tied` where there is one."""
        return (self.own,) if self.tied is None else (self.own, self.tied)

    def zero_gradients(self) -> None:
        """Begin a step: every gradient back to zero, in place."""
        for group in self.groups:
            group.grad.zero_()

    def forward(
        self,
        microbatch: int,
        index: int,
        x: Tensor,
        *,
        splits: Sequence[int],
        targets: Tensor | None = None,
        num_targets: int | None = None,
        starts: Tensor | None = None,
    ) -> Tensor:
        """`F` of subsequence `index`; `splits` are the lengths of all the microbatch's subsequences, in tokens.

        x: token ids int64 [batch, n] on the first stage, else hidden states [batch, n, hidden], kept, uncopied, until
        the backward. Returns hidden states [batch, n, hidden], or on the last stage, which alone gets targets int64
        [batch, n] and the step's number of them, this subsequence's share of the loss, a scalar. `starts` int64
        [batch, n], where sequences are packed with documents, tells where that of each token begins.
        Under torch.no_grad nothing is kept beyond the last subsequence.
        """
        if index == 0:
            self.key_values[microbatch] = KeyValues(microbatch, splits, self._attention)
        elif microbatch not in self.key_values:
            raise RuntimeError(f"forward of {_name(microbatch, index)} came before that of subsequence 0")
        key_values = self.key_values[microbatch]
        start, stop = key_values.span(index)
        context = Subsequence(microbatch, index, start, stop, key_values, targets, num_targets, starts)
        x = x.detach()
        if not torch.is_grad_enabled():
            if index == len(splits) - 1:
                del self.key_values[microbatch]
            return self.module(x, context)
        if x.is_floating_point():
            x.requires_grad_()
        out = self.module(x, context)
        self._alive[microbatch, index] = _Forwarded(x, out if out.dim() == 0 else get_gradient_edge(out))
        return out.detach()

    def backward(self, microbatch: int, index: int, grad: Tensor | None = None) -> Tensor | None:
        """`B`: gradients of the input, returned, and of the parameters, added to theirs.

        grad: that of the forward's output, in its shape; None on the last stage, which starts from the loss.
        Returns the gradient in the shape of the forward's x; None on the first stage.
        """
        forwarded = self._alive.get((microbatch, index))
        if not isinstance(forwarded, _Forwarded):
            raise RuntimeError(f"backward of {_name(microbatch, index)}: no forward is waiting for it")
        del self._alive[microbatch, index]
        torch.autograd.backward(forwarded.end, grad)
        if index == 0:
            del self.key_values[microbatch]
        return forwarded.x.grad

    def backward_input(self, microbatch: int, index: int, grad: Tensor | None = None) -> Tensor | None:
        """`I`: as `backward`, but the weight products are left for `backward_weight`."""
        with self._products.set_aside() as products:
            x_grad = self.backward(microbatch, index, grad)
        self._alive[microbatch, index] = products
        return x_grad

    def backward_weight(self, microbatch: int, index: int) -> None:
        """`W`: the weight products that the subsequence's `I` left, at any later time."""
        products = self._alive.get((microbatch, index))
        if not isinstance(products, list):
            raise RuntimeError(f"weight gradients of {_name(microbatch, index)}: no I has left them")
        del self._alive[microbatch, index]
        while products:
            products.pop().add()

    def assert_empty(self) -> None:
        """Raise RuntimeError, naming them, where subsequences are still alive: at the end of a step none may be."""
        left = [_name(*key) for key in self._alive] + [f"microbatch {m}" for m in self.key_values]
        if left:
            raise RuntimeError(f"left over at the end of the step: {', '.join(left)}")


def _name(microbatch: int, index: int) -> str:
    return f"microbatch {microbatch}, subsequence {index}"
