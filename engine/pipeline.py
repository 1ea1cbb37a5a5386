"""A model on a schedule: stages, lanes and executors of one process, and a training step over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from contraflow.designer.format.lowering import Lane, Lowered, Message, lower
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Schedule
from contraflow.engine import mirror, models
from contraflow.engine.batch import Batch
from contraflow.engine.config import OptimizerConfig
from contraflow.engine.executor import Executor, play_together
from contraflow.engine.optimizer import adamw, clip, learning_rate, squared_norm
from contraflow.engine.record import recorder_for
from contraflow.engine.stage import Stage
from contraflow.engine.topology import Lanes, Place, connect
from contraflow.kernels.attention import Backend


@dataclass(frozen=True, slots=True)
class Update:
    """What a training step came to, the same on every process: the loss is the mean over all targets."""

    loss: float
    norm: float
    seconds: float


class Pipeline:
    """The part of one process in running `schedule`: one device, or all of them where `place` says so.

    All processes make theirs at the same time. `batch_size` sequences travel in a microbatch; `labelled` messages name
    the actions that made them, and are checked on arrival. The recorders stand still until they are started.
    Raises ValueError where the schedule's `layers` do not add up to the model's.
    """

    def __init__(
        self,
        schedule: Schedule,
        shape: ModelShape,
        place: Place,
        attention: Backend,
        *,
        batch_size: int = 1,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        optimizer: OptimizerConfig | None = None,
        labelled: bool = False,
    ) -> None:
        self.schedule, self.shape, self.place = schedule, shape, place
        self.batch_size, self.dtype, self.attention = batch_size, dtype, attention
        self.lowered: Lowered = lower(schedule, shape.tied)
        self.stages = {device: self._stages(device, attention, seed) for device in place.devices}
        self.recorders = {device: recorder_for(place.torch_device.type) for device in place.devices}
        for recorder in self.recorders.values():
            recorder.stop()
        self.lanes: Lanes = connect(self.lowered, place, self._empty, self.recorders, labelled=labelled)
        self.executors = {
            device: Executor(
                device,
                self.lowered,
                self.stages[device],
                {n: end for n, end in self.lanes.incoming.items() if self.lowered.lanes[n].target == device},
                {n: end for n, end in self.lanes.outgoing.items() if self.lowered.lanes[n].source == device},
                self.recorders[device],
            )
            for device in place.devices
        }
        self.owned = [group for e in self.executors.values() for group in mirror.owned(self.lowered, e)]
        self.held = [group for e in self.executors.values() for group in mirror.held(e)]
        self.config = optimizer or OptimizerConfig()
        self.optimizer = adamw(self.owned, self.config)
        self.num_steps = 0

    def _stages(self, device: int, attention: Backend, seed: int) -> dict[int, Stage]:
        layout = self.schedule.layout
        ranges, last = layout.layer_ranges(self.shape.layers), layout.num_stages - 1
        stages: dict[int, Stage] = {}
        for number in range(layout.num_stages):
            if device in layout.copies[number]:
                module = models.build(
                    self.shape,
                    ranges[number],
                    first=number == 0,
                    last=number == last,
                    dtype=self.dtype,
                    device=self.place.torch_device,
                    seed=seed,
                )
                stages[number] = Stage(module, attention)
        if self.shape.tied and last and {0, last} <= set(stages):
            stages[last].tie(stages[0])
        return stages

    def _empty(self, lane: Lane, message: Message) -> Tensor:
        if lane.purpose == "data":
            size: tuple[int, ...] = (self.batch_size, message.tokens, self.shape.hidden)
        else:
            here = lane.target if lane.target in self.place.devices else lane.source
            size = tuple(self.executors[here].parameters(message.action.stage).grad.shape)
        return torch.empty(size, dtype=self.dtype, device=self.place.torch_device)

    def gradients(self, batches: Sequence[Batch]) -> Tensor:
        """Zero the gradients, run one pass for each batch, and bring the sums to their owners.

        Returns the loss, a float64 scalar: the mean over all targets of all batches, on every process.
        """
        for group in self.held:
            group.grad.zero_()
        num_targets = max(sum(batch.num_targets for batch in batches), 1)
        executors = list(self.executors.values())
        for number, batch in enumerate(batches, 1):
            play_together(executors, batch, num_targets, reduce=number == len(batches))
        local = torch.stack([executor.pop_loss().cpu() for executor in executors]).sum()
        return self.place.sum(local)

    def step(self, batches: Sequence[Batch]) -> Update:
        """One training step: gradients, clipping by the global norm, the owners' update, weights to the copies.

        A step whose loss or norm is not finite raises FloatingPointError before anything is updated.
        """
        begun = perf_counter()
        self.num_steps += 1
        for executor in self.executors.values():
            executor.status.step = self.num_steps
        loss = float(self.gradients(batches))
        norm = float(self.place.sum(squared_norm(self.owned))) ** 0.5
        if not (torch.isfinite(torch.tensor([loss, norm])).all()):
            raise FloatingPointError(
                f"step {self.num_steps}: loss {loss}, gradient norm {norm}; nothing was updated"
            )
        clip(self.owned, norm, self.config.clip)
        self.update(learning_rate(self.config, self.num_steps))
        return Update(loss, norm, perf_counter() - begun)

    def update(self, rate: float) -> None:
        """The owners' optimizer step, and the new weights' way to the copies."""
        if self.optimizer is not None:
            for kind in self.optimizer.param_groups:
                kind["lr"] = rate
            self.optimizer.step()
        mirror.return_weights(self.lowered, self.executors, self.lanes)
        if self.place.torch_device.type == "cuda":
            torch.cuda.synchronize()

    def named_gradients(self) -> list[tuple[str, Tensor]]:
        """Gradients of the parameters that this process owns, with their names in the whole model."""
        return [(name, grad) for group in self.owned for name, grad in group.named_gradients()]

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """The parameters that this process holds, with their names: one that it holds twice stands there twice."""
        return [(name, value) for group in self.held for name, value in group.named_parameters()]

    def close(self) -> None:
        """End the threads of the lanes."""
        self.lanes.close()
