"""Exactness: a step on a schedule gives the loss and the gradients of the same model, whole, in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout, Schedule
from contraflow.engine import models
from contraflow.engine.batch import Batch
from contraflow.engine.config import OptimizerConfig
from contraflow.engine.member import Member
from contraflow.engine.optimizer import adamw, clip, learning_rate, squared_norm
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.stage import Stage
from contraflow.engine.topology import Place, device_of
from contraflow.kernels.attention import choose

LONGEST = 96
"""Longer sequences are scaled down to this many tokens: exactness does not depend on length, time does."""

TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 5e-2}
"""Largest relative error of a gradient, by precision."""
WEIGHT_TOLERANCES = {"float64": 1e-9, "float32": 1e-3, "bfloat16": 1e-1}
"""Of weights after optimizer steps: AdamW divides by gradients that may be tiny."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is compared: a model, a precision, and what happens in a step."""

    shape: ModelShape
    dtype: str = "float64"
    accumulate: int = 1
    clip: float = 0.0
    steps: int = 0
    """Optimizer steps after which weights are compared; 0 compares the gradients of one step."""
    batch_size: int = 2
    seed: int = 0
    attention: str | None = None

    @property
    def tolerance(self) -> float:
        """The largest relative error that still counts as exact."""
        return (WEIGHT_TOLERANCES if self.steps else TOLERANCES)[self.dtype]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far the schedule is from one process: max |g - g_ref| / max |g_ref| per parameter, and the worst of them."""

    max_relative_error: float
    worst: str
    loss_error: float
    ok: bool

    def as_dict(self) -> dict[str, float | str | bool]:
        return asdict(self)


def scaled(schedule: Schedule, longest: int = LONGEST) -> Schedule:
    """The same program on sequences of at most about `longest` tokens, every subsequence in proportion."""
    layout = schedule.layout
    if layout.longest <= longest:
        return schedule
    factor = longest / layout.longest
    splits = tuple(tuple(max(1, round(length * factor)) for length in split) for split in layout.splits)
    small: Layout = replace(layout, sequences=tuple(map(sum, splits)), splits=splits)
    return replace(schedule, layout=small)


def verify(schedule: Schedule, trial: Trial) -> Comparison:
    """Compare in this process, which plays every device."""
    place = Place(tuple(range(schedule.layout.num_devices)), torch.device("cpu"))
    return _compare(schedule, trial, place)


def verify_member(member: Member, *, schedule: Schedule, trial: Trial) -> None:
    """Compare over real processes: the work of one, for `launch.run`. Reports the Comparison of all."""
    device = device_of(schedule.layout, member.rank)
    place = Place((device,), member.torch_device, member.backend)
    own = _compare(schedule, trial, place, member)
    found = [own] * member.world_size
    dist.all_gather_object(found, own)
    member.report(max(found, key=lambda comparison: comparison.max_relative_error))


def _compare(schedule: Schedule, trial: Trial, place: Place, member: Member | None = None) -> Comparison:
    dtype: torch.dtype = getattr(torch, trial.dtype)
    config = OptimizerConfig(clip=trial.clip)
    attention = choose(place.torch_device.type, dtype, trial.attention)
    pipeline = Pipeline(
        schedule,
        trial.shape,
        place,
        attention,
        batch_size=trial.batch_size,
        dtype=dtype,
        seed=trial.seed,
        optimizer=config,
    )
    if member is not None:
        (executor,) = pipeline.executors.values()
        member.status = lambda: str(executor.status)
    generator = torch.Generator().manual_seed(trial.seed)
    reference = _Whole(trial, dtype, place.torch_device, config)
    loss_error = 0.0
    for _ in range(max(trial.steps, 1)):
        passes = [
            _batch(schedule.layout, trial, generator).to(place.torch_device) for _ in range(trial.accumulate)
        ]
        if trial.steps:
            update = pipeline.step(passes)
            loss, norm = reference.step(passes)
            loss_error = max(loss_error, abs(update.loss - loss) / abs(loss))
            if trial.clip:
                loss_error = max(loss_error, abs(update.norm - norm) / norm)
        else:
            pipelined = float(pipeline.gradients(passes))
            loss = reference.gradients(passes)
            loss_error = abs(pipelined - loss) / abs(loss)
    if trial.steps:
        ours, theirs = pipeline.named_parameters(), reference.named_parameters()
    else:
        ours, theirs = pipeline.named_gradients(), reference.named_gradients()
    error, worst = _worst(ours, theirs)
    missing = theirs.keys() - _everywhere({name for name, _ in ours}, place)
    if missing:
        error, worst = float("inf"), min(missing)
    pipeline.close()
    ok = error <= trial.tolerance and loss_error <= trial.tolerance
    return Comparison(error, worst, loss_error, ok)


def _batch(layout: Layout, trial: Trial, generator: torch.Generator) -> Batch:
    def draw(length: int) -> Tensor:
        return torch.randint(trial.shape.vocabulary, (trial.batch_size, length), generator=generator)

    return Batch([draw(length) for length in layout.sequences], [draw(length) for length in layout.sequences])


def _worst(ours: Sequence[tuple[str, Tensor]], theirs: Mapping[str, Tensor]) -> tuple[float, str]:
    """The largest relative error and its parameter; a parameter that the reference lacks counts as infinitely wrong."""
    worst = (0.0, ours[0][0] if ours else "")
    for name, value in ours:
        if name not in theirs:
            return float("inf"), name
        scale = float(theirs[name].abs().max())
        error = float((value - theirs[name]).abs().max()) / (scale or 1.0)
        # A comparison with nan is false: not finite is as wrong as can be.
        worst = max(worst, (error if error == error else float("inf"), name))
    return worst


def _everywhere(names: set[str], place: Place) -> set[str]:
    """The names of all processes."""
    if place.backend is None:
        return names
    found = [names] * dist.get_world_size()
    dist.all_gather_object(found, names)
    return set().union(*found)


class _Whole:
    """The reference: the same model as one stage, microbatches whole, one after the other, plain attention."""

    def __init__(
        self, trial: Trial, dtype: torch.dtype, device: torch.device, config: OptimizerConfig
    ) -> None:
        shape = trial.shape
        module = models.build(
            shape, range(shape.layers), first=True, last=True, dtype=dtype, device=device, seed=trial.seed
        )
        self._stage = Stage(module, choose(device.type, dtype, "reference"))
        self._optimizer, self._config = adamw(self._stage.groups, config), config
        self._num_steps = 0

    def gradients(self, passes: list[Batch]) -> float:
        self._stage.zero_gradients()
        num_targets = sum(batch.num_targets for batch in passes)
        loss = 0.0
        for batch in passes:
            for number, (ids, targets) in enumerate(zip(batch.ids, batch.targets, strict=True)):
                splits = (ids.shape[1],)
                loss += float(
                    self._stage.forward(
                        number, 0, ids, splits=splits, targets=targets, num_targets=num_targets
                    )
                )
                self._stage.backward(number, 0)
        return loss

    def step(self, passes: list[Batch]) -> tuple[float, float]:
        loss = self.gradients(passes)
        norm = float(squared_norm(self._stage.groups)) ** 0.5
        clip(self._stage.groups, norm, self._config.clip)
        self._num_steps += 1
        assert self._optimizer is not None
        for kind in self._optimizer.param_groups:
            kind["lr"] = learning_rate(self._config, self._num_steps)
        self._optimizer.step()
        return loss, norm

    def named_parameters(self) -> dict[str, Tensor]:
        return {name: value for group in self._stage.groups for name, value in group.named_parameters()}

    def named_gradients(self) -> dict[str, Tensor]:
        return {name: grad for group in self._stage.groups for name, grad in group.named_gradients()}
