"""The same model, whole, in one process: what every schedule is held against."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from time import perf_counter

import torch
from torch import Tensor

from contraflow.engine.batch import Batch
from contraflow.engine.config import OptimizerConfig
from contraflow.engine.models.protocol import Model
from contraflow.engine.optimizer import adamw, clip, learning_rate, named_state, squared_norm
from contraflow.engine.pipeline import Update
from contraflow.engine.stage import Stage
from contraflow.kernels.attention import choose


class Whole:
    """All layers as one stage; microbatches one after the other, uncut; plain attention."""

    def __init__(self, model: Model, device: torch.device, config: OptimizerConfig) -> None:
        module = model.stage(range(model.layers), first=True, last=True, device=device)
        self._stage = Stage(module, choose(device.type, model.dtype, "reference"))
        self._groups = self._stage.groups
        self._optimizer, self._config = adamw(self._groups, config), config
        self._num_steps = 0

    def gradients(self, batches: Sequence[Batch]) -> float:
        """As `Pipeline.gradients`."""
        self._stage.zero_gradients()
        num_targets = max(sum(batch.num_targets for batch in batches), 1)
        return sum([self._loss(batch, num_targets, backward=True) for batch in batches])

    def evaluate(self, batch: Batch) -> float:
        """As `Pipeline.evaluate`."""
        with torch.no_grad():
            return self._loss(batch, max(batch.num_targets, 1), backward=False)

    def step(self, batches: Sequence[Batch]) -> Update:
        """As `Pipeline.step`."""
        begun = perf_counter()
        loss, norm = self.gradients(batches), self.norm()
        clip(self._groups, norm, self._config.clip)
        self._num_steps += 1
        if self._optimizer is not None:
            for kind in self._optimizer.param_groups:
                kind["lr"] = learning_rate(self._config, self._num_steps)
            self._optimizer.step()
        return Update(loss, norm, perf_counter() - begun)

    def _loss(self, batch: Batch, num_targets: int, *, backward: bool) -> float:
        loss = 0.0
        for number, (ids, targets) in enumerate(zip(batch.ids, batch.targets, strict=True)):
            loss += float(
                self._stage.forward(
                    number,
                    0,
                    ids,
                    splits=ids.shape[1:],
                    targets=targets,
                    num_targets=num_targets,
                    starts=batch.starts[number] if batch.starts else None,
                )
            )
            if backward:
                self._stage.backward(number, 0)
        return loss

    def norm(self) -> float:
        """Of all gradients."""
        return sqrt(float(squared_norm(self._groups)))

    def named_gradients(self) -> list[tuple[str, Tensor]]:
        """Of every parameter."""
        return [named for group in self._groups for named in group.named_gradients()]

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """Every parameter."""
        return [named for group in self._groups for named in group.named_parameters()]

    def named_state(self) -> list[tuple[str, Tensor]]:
        """What the optimizer keeps of every parameter."""
        return named_state(self._optimizer, self._groups)
