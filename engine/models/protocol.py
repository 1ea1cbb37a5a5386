"""What a stage of a model must be, for the engine to run it: an ordinary module that gets its context as an argument.

    class MyStage(nn.Module):
        def forward(self, x: Tensor, context: Subsequence) -> Tensor: ...

- x is, on the first stage, token ids int64 [batch, n]; on every other, hidden states [batch, n, hidden]: those of
  `context`'s subsequence alone, n = context.stop - context.start tokens. Do not change x in place.
- Return hidden states [batch, n, hidden]; on the last stage the scalar loss: the sum over this subsequence's targets
  that are not -100 of their cross-entropy, divided by `context.num_targets`. The loss is scaled there and nowhere else.
- Attention goes through `context.attend`, which knows the earlier subsequences; whatever else depends on a token's
  place takes it from `context.start`. Nothing else may mix tokens of a sequence.
- A stage may hold no layer at all, and the first may also be the last.
- Parameters are named, in `named_parameters`, as the whole model would name them, so that a checkpoint does not
  depend on the stages: hold layer 3 as item "3" of an nn.ModuleDict called `layers`.
- Use `weight_grads.Linear` in place of nn.Linear: only its weight products can wait for a `W`. With others a
  schedule stays exact, but their whole backward is part of `I`.
- Where the last stage uses the first one's embedding again, both are `TiedStageModule`s: they name that parameter
  alike, initialise it alike, and can use the other's in place of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of these tokens to all tokens of their sequences so far.

        q [batch, n, heads, head_dim] and k, v [batch, n, kv_heads, head_dim], of this subsequence's tokens alone;
        returns [batch, n, heads, head_dim]. `layer` tells the layers of the stage apart.
        """
        return self.key_values.attend(layer, self.index, q, k, v)


class StageModule(Protocol):
    """What the engine asks of a stage, an nn.Module: see the top of this file."""

    def __call__(self, x: Tensor, context: Subsequence) -> Tensor:
        """Hidden states [batch, n, hidden], or on the last stage the loss."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter once, by the name that it has in the whole model."""

    def modules(self) -> Iterator[nn.Module]:
        """The module and all those within it."""


@runtime_checkable
class TiedStageModule(StageModule, Protocol):
    """A stage that may share a parameter with another one."""

    @property
    def tied(self) -> nn.Parameter | None:
        """The parameter that the other stage holds too, by the same name; None where there is none."""

    def tie(self, parameter: nn.Parameter) -> None:
        """Use `parameter`, the other stage's `tied`, in place of this one's."""
