"""What the decoder-only families have in common: embedding, layers, norm, head and loss, and how they start."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from contraflow.designer.format.model import ModelShape
from contraflow.engine.models.protocol import Subsequence
from contraflow.engine.weight_grads import Embedding, Linear
from contraflow.kernels.cross_entropy import cross_entropy

_STD = 0.02


class Decoder(nn.Module):
    """One stage of a decoder: the given layers, the embedding if it is the first, norm and head if it is the last.

    `layers` are global numbers; `block(number)` and `norm()` make a layer and the final norm. With tied embeddings a
    last stage that is not the first has its own copy of `embedding.weight`, until it is tied to the first one's.
    """

    def __init__(
        self,
        shape: ModelShape,
        layers: range,
        *,
        first: bool,
        last: bool,
        block: Callable[[int], nn.Module],
        norm: Callable[[], nn.Module],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.first, self.last = first, last
        self._shares = shape.tied and (first or last)
        if first or self._shares:
            self.embedding = Embedding(shape.vocabulary, shape.hidden, dtype=dtype, device=device)
        self.layers = nn.ModuleDict({str(number): block(number) for number in layers})
        if last:
            self.norm = norm()
            self.head = Linear(shape.hidden, shape.vocabulary, dtype=dtype, device=device)
        if last and shape.tied:
            self.head.weight = self.embedding.weight

    @property
    def tied(self) -> nn.Parameter | None:
        """`embedding.weight` of a model with tied embeddings, on the stages that use it."""
        return self.embedding.weight if self._shares else None

    def tie(self, parameter: nn.Parameter) -> None:
        """Use `parameter` for `embedding.weight`."""
        self.embedding.weight = parameter
        if self.last:
            self.head.weight = parameter

    def embed(self, ids: Tensor, context: Subsequence) -> Tensor:
        """ids int64 [batch, n] -> hidden [batch, n, hidden]."""
        hidden: Tensor = self.embedding(ids)
        return hidden

    def forward(self, x: Tensor, context: Subsequence) -> Tensor:
        hidden = self.embed(x, context) if self.first else x
        for layer in self.layers.values():
            hidden = layer(hidden, context)
        if not self.last:
            return hidden
        targets, num_targets = context.targets, context.num_targets
        if targets is None or num_targets is None:
            raise ValueError("the last stage needs targets, and their number in the whole step")
        return cross_entropy(self.head(self.norm(hidden)), targets, num_targets)


@torch.no_grad()
def initialise(module: nn.Module, seed: int, num_layers: int) -> None:
    """Fill the parameters from (seed, global name) alone: alike for every layout, precision and device.

    Biases 0, norms 1, matrices normal with std 0.02, those that write to the residual stream that over sqrt(2 layers).
    """
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.dim() == 1:
            parameter.fill_(1.0)
        else:
            writes_residual = name.endswith(("output.weight", "down.weight"))
            std = _STD / (2 * num_layers) ** 0.5 if writes_residual else _STD
            digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest[:7]))
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * std)
