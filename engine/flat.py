"""Parameters as views of one flat tensor, and their gradients of another: what is sent or stepped as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

# Each parameter begins at a multiple of this many elements, for aligned products; the gaps stay zero.
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class FlatParameters:
    """Parameters that live in `data`, their gradients in `grad`: two flat tensors of one size, layout and type.

    Whoever changes either does so in place; `.grad` of a parameter is never to be set, to None neither.
    """

    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]
    data: Tensor
    grad: Tensor

    @classmethod
    def of(cls, named: Sequence[tuple[str, nn.Parameter]]) -> FlatParameters:
        """Move the parameters, with their values, into a new flat tensor, and give each a gradient of zeros.

        Raises ValueError, naming two parameters, where they differ in type or device.
        """
        names, parameters = tuple(name for name, _ in named), tuple(parameter for _, parameter in named)
        for name, parameter in named:
            if (parameter.dtype, parameter.device) != (parameters[0].dtype, parameters[0].device):
                kinds = [f"{p.dtype} on {p.device}" for p in (parameters[0], parameter)]
                raise ValueError(f"{names[0]} is {kinds[0]} and {name} is {kinds[1]}: one stage has one kind")
        sizes = [-(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT for parameter in parameters]
        like = parameters[0].detach() if parameters else torch.empty(0)
        flat = cls(names, parameters, like.new_zeros(sum(sizes)), like.new_zeros(sum(sizes)))
        pieces = zip(parameters, torch.split(flat.data, sizes), torch.split(flat.grad, sizes), strict=True)
        for parameter, data, grad in pieces:
            shape, numel = parameter.shape, parameter.numel()
            parameter.data = data[:numel].view(shape).copy_(parameter.detach())
            parameter.grad = grad[:numel].view(shape)
        return flat

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """Each parameter's values with its name."""
        return [
            (name, parameter.detach()) for name, parameter in zip(self.names, self.parameters, strict=True)
        ]

    def named_gradients(self) -> list[tuple[str, Tensor]]:
        """Each parameter's gradient with its name."""
        found = []
        for name, parameter in zip(self.names, self.parameters, strict=True):
            assert parameter.grad is not None
            found.append((name, parameter.grad))
        return found
