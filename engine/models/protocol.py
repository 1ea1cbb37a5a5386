"""A model of your own: what the engine asks of the whole, of each stage, and what it gives them.

The whole is a `Model`: it says how large it is, and makes the module of any stage.

    @dataclass(frozen=True)
    class MyModel:
        layers: int = 8
        hidden: int = 512
        vocabulary: int = 32000
        tied: bool = False
        dtype: torch.dtype = torch.float32

        def stage(self, layers: range, *, first: bool, last: bool, device: torch.device) -> StageModule:
            return MyStage(self, layers, first, last, device)

A stage is an ordinary module that gets its context as an argument.

    class MyStage(nn.Module):
        def forward(self, x: Tensor, context: Subsequence) -> Tensor: ...

- x is, on the first stage, token ids int64 [batch, n]; on every other, hidden states [batch, n, hidden]: those of
  `context`'s subsequence alone, n = context.stop - context.start tokens. Do not change x in place.
- Return hidden states [batch, n, hidden] of the model's dtype; on the last stage the scalar loss: the sum over this
  subsequence's targets that are not -100 of their cross-entropy, divided by `context.num_targets`. The loss is scaled
  there and nowhere else.
- Attention goes through `context.attend`, which knows the earlier subsequences; whatever else depends on a token's
  place takes it from `context.start`, or `context.positions()`. Nothing else may mix tokens of a sequence.
- A stage may hold no layer at all, and the first may also be the last.
- Parameters are named, in `named_parameters`, as the whole model would name them, so that a checkpoint does not
  depend on the stages: hold layer 3 as item "3" of an nn.ModuleDict called `layers`.
- Fill parameters so that they do not depend on the stages either: `models.decoder.initialise` does. Copies of
  a stage need not agree: they start from their owner's.
- Use `weight_grads.Linear` in place of nn.Linear: only its weight products can wait for a `W`. With others a
  schedule stays exact, but their whole backward is part of `I`.
- Where the last stage uses the first one's embedding again, the model is `tied`, and both are `TiedStageModule`s: they
  name that parameter alike, and can use the other's in place of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from contraflow.engine.kv import KeyValues


@dataclass(frozen=True, slots=True, eq=False)
class Subsequence:
    """The part of one microbatch's sequences that a stage works on: tokens `start` .. `stop` - 1.

    `targets` int64 [batch, n] and `num_targets`, the number of targets of the whole step that are not -100, are given
    to the last stage alone.
    """

    microbatch: int
    index: int
    start: int
    stop: int
    key_values: KeyValues
    targets: Tensor | None = None
    num_targets: int | None = None
    starts: Tensor | None = None
    """Where sequences are packed with documents, int64 [batch, n]: the token at which each one's document begins."""

    def positions(self, device: torch.device) -> Tensor:
        """Of each token its place in its document, from 0: int64 [n], or [batch, n] where sequences are packed."""
        places = torch.arange(self.start, self.stop, device=device)
        return places if self.starts is None else places - self.starts

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of these tokens to all tokens of their sequences, or documents, so far.

        q [batch, n, heads, head_dim] and k, v [batch, n, kv_heads, head_dim], of this subsequence's tokens alone;
        returns [batch, n, heads, head_dim]. `layer` tells the layers of the stage apart.
        """
        return self.key_values.attend(layer, self.index, q, k, v, self.starts)


class Model(Protocol):
    """A whole model; see the top of this file. Its attributes are as those of `format.model.ModelShape`."""

    @property
    def layers(self) -> int:
        """Number of layers, which the schedule lays out over its stages."""

    @property
    def hidden(self) -> int:
        """Size of the hidden states that travel between stages."""

    @property
    def vocabulary(self) -> int:
        """Token ids are less than this."""

    @property
    def tied(self) -> bool:
        """Whether first and last stage share a parameter."""

    @property
    def dtype(self) -> torch.dtype:
        """Of parameters and hidden states."""

    def stage(self, layers: range, *, first: bool, last: bool, device: torch.device) -> StageModule:
        """The module, on `device`, of the layers numbered `layers`, with what the model has before or behind them."""


class StageModule(Protocol):
    """What the engine asks of a stage, an nn.Module: see the top of this file."""

    training: bool

    def __call__(self, x: Tensor, context: Subsequence) -> Tensor:
        """Hidden states [batch, n, hidden], or on the last stage the loss."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter once, by the name that it has in the whole model."""

    def modules(self) -> Iterator[nn.Module]:
        """The module and all those within it."""

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """The same with their names."""

    def train(self, mode: bool = True) -> Any:
        """Let the modules know whether this is training or evaluation."""


@runtime_checkable
class TiedStageModule(StageModule, Protocol):
    """A stage that may share a parameter with another one."""

    @property
    def tied(self) -> nn.Parameter | None:
        """The parameter that the other stage holds too, by the same name; None where there is none."""

    def tie(self, parameter: nn.Parameter) -> None:
        """Use `parameter`, the other stage's `tied`, in place of this one's."""
