"""A model on a schedule: stages, lanes and executors of one process, and a training step over them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from time import perf_counter

import torch
from torch import Tensor

from contraflow.designer.format.lowering import Lane, Lowered, Message, forwards, lower
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Schedule
from contraflow.engine import mirror
from contraflow.engine.batch import Batch
from contraflow.engine.config import OptimizerConfig
from contraflow.engine.executor import Executor, play_together
from contraflow.engine.models import BuiltIn, as_model
from contraflow.engine.models.protocol import Model
from contraflow.engine.optimizer import adamw, clip, learning_rate, named_state, squared_norm
from contraflow.engine.record import recorder_for
from contraflow.engine.stage import Stage
from contraflow.engine.topology import Lanes, Place, connect
from contraflow.engine.weight_grads import cannot_wait
from contraflow.kernels.attention import Backend, choose


@dataclass(frozen=True, slots=True)
class Update:
    """What a training step came to, the same on every process: the loss is the mean over all targets."""

    loss: float
    norm: float
    seconds: float


class Pipeline:
    """The part of one process in running `schedule`: one device, or all of them where `place` says so.

    `model` is a shape of ours, made from `dtype` and `seed`, or a `Model` of your own: see models/protocol.py.
    All processes make theirs at the same time. `batch_size` sequences travel in a microbatch; `labelled` messages name
    the actions that made them, and are checked on arrival. The recorders stand still until they are started. Attention
    is the fastest that fits, by default.
    Raises ValueError where the schedule's `layers` do not add up to the model's.
    """

    def __init__(
        self,
        schedule: Schedule,
        model: ModelShape | Model,
        place: Place,
        attention: Backend | None = None,
        *,
        batch_size: int = 1,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        optimizer: OptimizerConfig | None = None,
        labelled: bool = False,
    ) -> None:
        self.model = as_model(model, dtype, seed)
        self.schedule, self.place = schedule, place
        self.batch_size, self.dtype = batch_size, self.model.dtype
        self.attention = attention or choose(place.torch_device.type, self.dtype)
        self.lowered: Lowered = lower(schedule, self.model.tied)
        self.stages = {device: self._stages(device) for device in place.devices}
        self.recorders = {device: recorder_for(place.torch_device.type) for device in place.devices}
        for recorder in self.recorders.values():
            recorder.stop()
        self.lanes: Lanes = connect(self.lowered, place, self._empty, self.recorders, labelled=labelled)
        self.executors = self._executors(self.lowered, self.lanes)
        self.owned = [group for e in self.executors.values() for group in mirror.owned(self.lowered, e)]
        self.held = [group for e in self.executors.values() for group in mirror.held(e)]
        self.config = optimizer or OptimizerConfig()
        self.optimizer = adamw(self.owned, self.config)
        self.num_steps = 0
        self._evaluation: tuple[Lanes, dict[int, Executor]] | None = None
        if not isinstance(self.model, BuiltIn):
            # Nobody promises that two makings of the same stage come out alike.
            mirror.return_weights(self.lowered, self.executors, self.lanes)
            self._tell_what_cannot_wait()

    @property
    def shape(self) -> ModelShape:
        """The sizes of a model that comes with the engine. Raises TypeError for a model of your own."""
        if not isinstance(self.model, BuiltIn):
            raise TypeError(
                f"{type(self.model).__name__} has no ModelShape: it is not a model of the engine's"
            )
        return self.model.shape

    def _stages(self, device: int) -> dict[int, Stage]:
        layout = self.schedule.layout
        ranges, last = layout.layer_ranges(self.model.layers), layout.num_stages - 1
        stages: dict[int, Stage] = {}
        for number in range(layout.num_stages):
            if device in layout.copies[number]:
                module = self.model.stage(
                    ranges[number], first=number == 0, last=number == last, device=self.place.torch_device
                )
                stages[number] = Stage(module, self.attention)
        if self.model.tied and last and {0, last} <= set(stages):
            stages[last].tie(stages[0])
        return stages

    def _executors(self, lowered: Lowered, lanes: Lanes) -> dict[int, Executor]:
        return {
            device: Executor(
                device,
                lowered,
                self.stages[device],
                {n: end for n, end in lanes.incoming.items() if lowered.lanes[n].target == device},
                {n: end for n, end in lanes.outgoing.items() if lowered.lanes[n].source == device},
                self.recorders[device],
            )
            for device in self.place.devices
        }

    def _tell_what_cannot_wait(self) -> None:
        """Warn, once for all processes, of layers whose weight products no W of the schedule can make."""
        if not any(action.kind == "W" for program in self.schedule.program for action in program):
            return
        own = {
            number: names
            for stages in self.stages.values()
            for number, stage in stages.items()
            if (names := cannot_wait(stage.module.named_modules()))
        }
        found = {number: names for part in self.place.gather(own) for number, names in part.items()}
        if found and 0 in self.place.devices:
            number = min(found)
            others = sum(map(len, found.values())) - 1
            and_others = f" and of {others} other layer{'' if others == 1 else 's'}" if others else ""
            warnings.warn(
                f"stage {number}: the weight product of {found[number][0]}{and_others} cannot wait for a W, so I makes "
                "it; gradients are exact, but W does less than the schedule expects. "
                "Use contraflow.engine.weight_grads.Linear in place of nn.Linear",
                stacklevel=3,
            )

    def _empty(self, lane: Lane, message: Message) -> Tensor:
        if lane.purpose == "data":
            size: tuple[int, ...] = (self.batch_size, message.tokens, self.model.hidden)
        else:
            here = lane.target if lane.target in self.place.devices else lane.source
            size = tuple(self.executors[here].parameters(message.action.stage).grad.shape)
        return torch.empty(size, dtype=self.dtype, device=self.place.torch_device)

    def gradients(self, batches: Sequence[Batch]) -> float:
        """Zero the gradients, run one pass for each batch, and bring the sums to their owners.

        Returns the loss: the mean over all targets of all batches, on every process.
        Raises ValueError where a batch does not fit the schedule.
        """
        for batch in batches:
            self._check(batch)
        for group in self.held:
            group.grad.zero_()
        num_targets = max(sum(batch.num_targets for batch in batches), 1)
        executors = list(self.executors.values())
        for number, batch in enumerate(batches, 1):
            play_together(executors, batch, num_targets, reduce=number == len(batches))
        return self._loss(executors)

    def evaluate(self, batch: Batch) -> float:
        """The mean loss over all targets of the batch, on every process; forward only, and nothing of training changes.

        Raises ValueError where the batch does not fit the schedule.
        """
        self._check(batch)
        if self._evaluation is None:
            lowered = lower(forwards(self.schedule))
            lanes = connect(lowered, self.place, self._empty)
            self._evaluation = lanes, self._executors(lowered, lanes)
        executors = list(self._evaluation[1].values())
        modules = [stage.module for stages in self.stages.values() for stage in stages.values()]
        modes = [module.training for module in modules]
        for module in modules:
            module.train(False)
        with torch.no_grad():
            play_together(executors, batch, max(batch.num_targets, 1), reduce=False)
        for module, mode in zip(modules, modes, strict=True):
            module.train(mode)
        return self._loss(executors)

    def _loss(self, executors: Sequence[Executor]) -> float:
        local = torch.stack([executor.pop_loss().cpu() for executor in executors]).sum()
        return float(self.place.sum(local))

    def _check(self, batch: Batch) -> None:
        batch.check(self.schedule.layout, self.batch_size)
        if batch.starts and not self.attention.documents:
            raise ValueError(
                f"attention backend {self.attention.name} cannot keep documents apart; take 'reference', "
                "or one document in each sequence"
            )

    def step(self, batches: Sequence[Batch]) -> Update:
        """One training step: gradients, clipping by the global norm, the owners' update, weights to the copies.

        A step whose loss or norm is not finite raises FloatingPointError before anything is updated.
        """
        begun = perf_counter()
        self.num_steps += 1
        for executor in self.executors.values():
            executor.status.step = self.num_steps
        loss = self.gradients(batches)
        norm = self.norm()
        if not (torch.isfinite(torch.tensor([loss, norm])).all()):
            raise FloatingPointError(
                f"step {self.num_steps}: loss {loss}, gradient norm {norm}; nothing was updated"
            )
        clip(self.owned, norm, self.config.clip)
        self.update(learning_rate(self.config, self.num_steps))
        return Update(loss, norm, perf_counter() - begun)

    def norm(self) -> float:
        """Of all gradients, each counted once, on every process."""
        return sqrt(float(self.place.sum(squared_norm(self.owned))))

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

    def named_state(self) -> list[tuple[str, Tensor]]:
        """What the optimizer keeps of the parameters that this process owns: `NAME.exp_avg` and `NAME.exp_avg_sq`."""
        return named_state(self.optimizer, self.owned)

    def close(self) -> None:
        """End the threads of the lanes."""
        self.lanes.close()
        if self._evaluation is not None:
            self._evaluation[0].close()
