"""A model that Contraflow does not know, trained on any schedule: python examples/own_model.py FILE.schedule.json

Its block is not one of the engine's: attention and feed-forward side by side, of the same normed hidden states. All
that ties it to the engine are `context`, which attention goes through, and `stage`, which makes the part of a device.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contraflow.designer.format.check import load
from contraflow.engine.models.decoder import initialise
from contraflow.engine.models.protocol import Subsequence
from contraflow.engine.verify import Trial, scaled, verify
from contraflow.engine.weight_grads import Linear


@dataclass(frozen=True)
class ParallelTransformer:
    """Sizes of the whole model; see contraflow/engine/models/protocol.py for what the engine asks of it."""

    layers: int = 8
    hidden: int = 64
    heads: int = 4
    vocabulary: int = 256
    positions: int = 4096
    tied: bool = False
    dtype: torch.dtype = torch.float32

    def stage(self, layers: range, *, first: bool, last: bool, device: torch.device) -> Stage:
        """The module of some layers; its parameters depend on their names alone, not on the stage."""
        stage = Stage(self, layers, first, last).to(device, self.dtype)
        initialise(stage, seed=0, num_layers=self.layers)
        return stage


class Stage(nn.Module):
    """Embedding, layers, norm and head, or what a stage has of them."""

    def __init__(self, model: ParallelTransformer, layers: range, first: bool, last: bool) -> None:
        super().__init__()
        if first:
            self.tokens = nn.Embedding(model.vocabulary, model.hidden)
            self.places = nn.Embedding(model.positions, model.hidden)
        self.layers = nn.ModuleDict({str(number): Block(model, number) for number in layers})
        if last:
            self.norm = nn.LayerNorm(model.hidden)
            self.head = Linear(model.hidden, model.vocabulary)
        self.first, self.last = first, last

    def forward(self, x: Tensor, context: Subsequence) -> Tensor:
        """Token ids, or hidden states of the stage before -> hidden states, or the loss."""
        if self.first:
            x = self.tokens(x) + self.places(context.positions(x.device))
        for layer in self.layers.values():
            x = layer(x, context)
        if not self.last:
            return x
        assert context.targets is not None
        assert context.num_targets is not None
        logits = self.head(self.norm(x)).flatten(0, 1)
        return F.cross_entropy(logits, context.targets.flatten(), reduction="sum") / context.num_targets


class Block(nn.Module):
    """hidden + attention(normed) + feed-forward(normed)."""

    def __init__(self, model: ParallelTransformer, number: int) -> None:
        super().__init__()
        self.number, self.heads = number, model.heads
        self.norm = nn.LayerNorm(model.hidden)
        self.inner = Linear(model.hidden, 7 * model.hidden)  # q, k, v, and four for the feed-forward
        self.outer = Linear(5 * model.hidden, model.hidden)

    def forward(self, x: Tensor, context: Subsequence) -> Tensor:
        """hidden [batch, n, hidden] -> the same."""
        hidden = x.shape[-1]
        *qkv, wide = self.inner(self.norm(x)).split([hidden, hidden, hidden, 4 * hidden], dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in qkv)
        attended = context.attend(self.number, q, k, v).flatten(-2)
        out: Tensor = x + self.outer(torch.cat((attended, F.gelu(wide)), dim=-1))
        return out


def main(path: str) -> int:
    """Hold the model on the schedule against itself, whole, in one process."""
    schedule = scaled(load(path))
    layers = schedule.layout.layers
    model = ParallelTransformer(layers=sum(layers) if layers else 8, dtype=torch.float64)
    comparison = verify(schedule, Trial(model, steps=3))
    for quantity, error in comparison.errors.items():
        print(f"{quantity:16} {error.value:.1e} of {error.tolerance:.0e}  {error.worst}")
    return 0 if comparison.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
