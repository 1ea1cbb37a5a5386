"""One process, one sequence of 4096 tokens in k = 1, 2, 4, 8 subsequences: time relative to k = 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from measure import in_turn, show
from rich.console import Console

from contraflow.designer.format.model import ModelShape
from contraflow.designer.splits import even
from contraflow.engine import models
from contraflow.engine.stage import Stage
from contraflow.kernels.attention import choose

SHAPE = ModelShape("llama", 8, 256, 8, 8, 704, 4096)
TOKENS = 4096


def main(console: Console) -> None:
    torch.set_num_threads(1)
    stage = Stage(
        models.build(SHAPE, range(SHAPE.layers), first=True, last=True), choose("cpu", torch.float32)
    )
    ids = torch.randint(SHAPE.vocabulary, (1, TOKENS), generator=torch.Generator().manual_seed(0))

    def step(splits: tuple[int, ...]) -> None:
        stage.zero_gradients()
        for index, part in enumerate(ids.split(splits, dim=1)):
            stage.forward(0, index, part, splits=splits, targets=part, num_targets=TOKENS)
        for index in reversed(range(len(splits))):
            stage.backward(0, index)

    calls: dict[str, Callable[[], object]] = {
        f"k = {k}": partial(step, even(TOKENS, k)) for k in (1, 2, 4, 8)
    }
    times = in_turn(calls, rounds=5)
    aims = {"k = 2": "0.94 to 1.06", "k = 4": "0.94 to 1.06", "k = 8": "1.06 to 1.14"}
    show(
        console,
        "forward and backward of one sequence in k subsequences, one process, one thread",
        times,
        "k = 1",
        aims,
    )
