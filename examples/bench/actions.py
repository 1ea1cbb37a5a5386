"""What an action costs beside its kernels: I and W against B, and the engine's own time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from measure import in_turn, show
from rich.console import Console
from torch import Tensor, nn

from contraflow.designer.design import Design, make
from contraflow.designer.format.model import ModelShape
from contraflow.designer.splits import even
from contraflow.engine import models
from contraflow.engine.batch import Batch
from contraflow.engine.models.protocol import Subsequence
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.stage import Stage
from contraflow.engine.topology import Place
from contraflow.kernels.attention import choose

SHAPE = ModelShape("llama", 4, 256, 8, 8, 704, 4096)
TOKENS = 2048


def halves(console: Console, num_subsequences: int) -> None:
    """A middle stage, forward and back, its backwards as B or as I and W."""
    module = models.build(SHAPE, range(SHAPE.layers), first=False, last=False)
    stage = Stage(module, choose("cpu", torch.float32))
    x, splits = torch.randn(1, TOKENS, SHAPE.hidden), even(TOKENS, num_subsequences)
    grads = torch.randn_like(x).split(splits, dim=1)

    def step(cut: bool) -> None:
        for index, part in enumerate(x.split(splits, dim=1)):
            stage.forward(0, index, part, splits=splits)
        for index in reversed(range(len(splits))):
            if cut:
                stage.backward_input(0, index, grads[index])
                stage.backward_weight(0, index)
            else:
                stage.backward(0, index, grads[index])

    calls: dict[str, Callable[[], object]] = {"F, B": partial(step, False), "F, I, W": partial(step, True)}
    title = f"a LLaMA stage of {SHAPE.layers} layers, {TOKENS} tokens, k={num_subsequences}, one thread"
    show(console, title, in_turn(calls, rounds=9), "F, B", {"F, I, W": "time <= 1.04"})


@dataclass(frozen=True)
class Nothing:
    """A model whose layers do nothing: a stage is one product with a scalar."""

    layers: int
    hidden: int = 1
    vocabulary: int = 2
    tied: bool = False
    dtype: torch.dtype = torch.float32

    def stage(self, layers: range, *, first: bool, last: bool, device: torch.device) -> NothingStage:
        return NothingStage(first, last)


class NothingStage(nn.Module):
    """x times a scalar, and their sum at the end."""

    def __init__(self, first: bool, last: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.first, self.last = first, last

    def forward(self, x: Tensor, context: Subsequence | None) -> Tensor:
        """Token ids or hidden states -> hidden states, or something like a loss."""
        out = (x.unsqueeze(-1) if self.first else x) * self.scale
        return out.sum() if self.last else out


def own_time(console: Console) -> None:
    """A pass over a program of actions that do nothing, against the same modules called one after the other."""
    schedule = make(Design("seq1f1b", 4, 16, 4, sequence=8))
    layout = schedule.layout
    pipeline = Pipeline(schedule, Nothing(layout.num_stages), Place(tuple(range(4)), torch.device("cpu")))
    ids = torch.zeros(layout.num_microbatches, layout.longest, dtype=torch.int64)
    batch = Batch.of(layout, ids, ids)
    modules = [stages[number].module for stages in pipeline.stages.values() for number in stages]

    def bare() -> None:
        for part in ids.split(1):
            for subsequence in part.split(layout.splits[0], dim=1):
                x: Tensor = subsequence
                ends = []
                for module in modules:
                    x = x.detach()
                    if x.is_floating_point():
                        x.requires_grad_()
                    out = module(x, None)  # type: ignore[arg-type]
                    ends.append((x, out))
                    x = out
                grad = None
                for x, out in reversed(ends):
                    torch.autograd.backward(out, grad)
                    grad = x.grad

    num_actions = sum(map(len, schedule.program))
    times = in_turn({"engine": lambda: pipeline.gradients([batch]), "bare": bare}, rounds=9)
    of = {name: (median(seconds), min(seconds)) for name, seconds in times.items()}
    own = [1e6 * (ours - bare) / num_actions for ours, bare in zip(of["engine"], of["bare"], strict=True)]
    each = {name: f"{1e6 * seconds[0] / num_actions:.0f}" for name, seconds in of.items()}
    console.print(
        f"the engine's own time, {num_actions} actions on 4 devices in one process: {own[0]:.1f} microseconds an "
        f"action (median; {own[1]:.1f} by minima): {each['engine']} with all, "
        f"{each['bare']} for bare modules and autograd\n"
    )


def main(console: Console) -> None:
    torch.set_num_threads(1)
    for num_subsequences in (1, 4):
        halves(console, num_subsequences)
    own_time(console)
