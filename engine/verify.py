"""Exactness: a step on a schedule gives the loss and the gradients of the same model, whole, in one process.

After optimizer steps so do the weights, on every device that holds a copy, and the optimizer's state at their owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout, Schedule
from contraflow.engine import mirror
from contraflow.engine.batch import Batch, document_starts
from contraflow.engine.config import OptimizerConfig
from contraflow.engine.member import Member
from contraflow.engine.models import as_model
from contraflow.engine.models.protocol import Model
from contraflow.engine.pipeline import Pipeline, Update
from contraflow.engine.topology import Place
from contraflow.engine.whole import Whole
from contraflow.kernels.attention import choose

LONGEST = 96
"""Longer sequences are scaled down to this many tokens: exactness does not depend on length, time does."""

TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 5e-2}
"""Largest relative error of a gradient, by precision."""
UPDATE_TOLERANCES = {"float64": 1e-9, "float32": 1e-3, "bfloat16": 1e-1}
"""Of what follows optimizer steps: AdamW divides by gradients that may be tiny."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is compared: a model, a precision, and what happens in a step."""

    model: ModelShape | Model
    dtype: str = "float64"
    """Of a ModelShape's parameters; a model of your own must be of the same."""
    accumulate: int = 1
    clip: float = 0.0
    steps: int = 0
    """Optimizer steps, after which weights and optimizer state are compared as well."""
    packed: bool = False
    """Whether each sequence is several documents."""
    batch_size: int = 2
    seed: int = 0
    attention: str | None = None

    def built(self) -> Model:
        """The model. Raises ValueError where it is of another precision than the trial."""
        model = as_model(self.model, getattr(torch, self.dtype), self.seed)
        if model.dtype != getattr(torch, self.dtype):
            raise ValueError(f"the trial is of {self.dtype}, the model of {model.dtype}")
        return model


class Case(NamedTuple):
    """A schedule on trial."""

    schedule: Schedule
    trial: Trial


@dataclass(frozen=True, slots=True)
class Error:
    """The largest relative error of a quantity, max |x - x_ref| / max |x_ref|, what it is of, and what is allowed."""

    value: float
    worst: str
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether that counts as exact."""
        return self.value <= self.tolerance


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far a schedule is from one process, by quantity.

    Of the first step: evaluated loss, loss, gradients and norm. Where the trial has optimizer steps, also losses and
    norms of those, and in the end weights, of every copy, and optimizer state.
    """

    errors: Mapping[str, Error]

    @property
    def ok(self) -> bool:
        """Whether all of it counts as exact."""
        return all([error.ok for error in self.errors.values()])


def worst(comparisons: Iterable[Comparison]) -> Comparison:
    """Of each quantity the largest error."""
    found: dict[str, Error] = {}
    for comparison in comparisons:
        for quantity, error in comparison.errors.items():
            if quantity not in found or error.value > found[quantity].value:
                found[quantity] = error
    return Comparison(found)


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
    case = Case(schedule, trial)
    place = Place(tuple(range(schedule.layout.num_devices)), torch.device("cpu"))
    return _compare(case, place, _expected(case, place.torch_device))


def verify_member(member: Member, *, cases: Sequence[Case]) -> None:
    """Compare over real processes: the work of one, for `launch.run`. Reports the Comparison of each case in turn."""
    # The references are dealt out, so that they are made side by side.
    own = range(member.rank, len(cases), member.world_size)
    references = {number: _expected(cases[number], member.torch_device) for number in own}
    for number, case in enumerate(cases):
        place = Place.of(member, case.schedule.layout)
        reference = [references.pop(number, None)]
        dist.broadcast_object_list(reference, src=number % member.world_size)
        assert reference[0] is not None
        found = _compare(case, place, reference[0], member)
        member.report(worst(place.gather(found)))


class _Value(NamedTuple):
    """A tensor by its name in the whole model; of several copies `where` tells which it is."""

    name: str
    tensor: Tensor
    where: str = ""


class _Outcome(NamedTuple):
    """What a trial came to: numbers, one for each step, and tensors, each by quantity."""

    numbers: dict[str, list[float]]
    values: dict[str, list[_Value]]


class _Engine(Protocol):
    """What a pipeline and the whole model have in common."""

    def evaluate(self, batch: Batch) -> float: ...
    def gradients(self, batches: Sequence[Batch]) -> float: ...
    def norm(self) -> float: ...
    def step(self, batches: Sequence[Batch]) -> Update: ...
    def named_gradients(self) -> list[tuple[str, Tensor]]: ...
    def named_parameters(self) -> list[tuple[str, Tensor]]: ...
    def named_state(self) -> list[tuple[str, Tensor]]: ...


def _outcome(engine: _Engine, case: Case, device: torch.device) -> _Outcome:
    """Run the trial."""
    trial, generator = case.trial, torch.Generator().manual_seed(case.trial.seed)

    def passes() -> list[Batch]:
        return [_batch(case, generator).to(device) for _ in range(trial.accumulate)]

    first = passes()
    evaluated, loss = engine.evaluate(first[0]), engine.gradients(first)
    numbers = {"evaluated loss": [evaluated], "loss": [loss], "norm": [engine.norm()]}
    values = {"gradients": _values(engine.named_gradients())}
    if trial.steps:
        updates = [engine.step(passes()) for _ in range(trial.steps)]
        numbers["losses of steps"] = [update.loss for update in updates]
        numbers["norms of steps"] = [update.norm for update in updates]
        values["weights"] = _values(engine.named_parameters())
        values["optimizer state"] = _values(engine.named_state())
    return _Outcome(numbers, values)


def _values(named: Iterable[tuple[str, Tensor]], where: str = "") -> list[_Value]:
    # Copied, for the next step changes it in place.
    return [_Value(name, tensor.detach().to("cpu", copy=True), where) for name, tensor in named]


def _expected(case: Case, device: torch.device) -> _Outcome:
    trial = case.trial
    return _outcome(Whole(trial.built(), device, OptimizerConfig(clip=trial.clip)), case, device)


def _compare(case: Case, place: Place, expected: _Outcome, member: Member | None = None) -> Comparison:
    """All processes call this together; each compares what it holds."""
    schedule, trial = case
    model = trial.built()
    pipeline = Pipeline(
        schedule,
        model,
        place,
        choose(place.torch_device.type, model.dtype, trial.attention),
        batch_size=trial.batch_size,
        optimizer=OptimizerConfig(clip=trial.clip),
    )
    if member is not None:
        (executor,) = pipeline.executors.values()
        member.status = lambda: f"{executor.status} of {schedule.name}"
    found = _outcome(pipeline, case, place.torch_device)
    if trial.steps:
        found.values["weights"] = [
            value
            for device, executor in pipeline.executors.items()
            for group in mirror.held(executor)
            for value in _values(group.named_parameters(), f" on device {device}")
        ]
    pipeline.close()
    errors = {}
    for quantity, numbers in found.numbers.items():
        tolerance = (UPDATE_TOLERANCES if quantity.endswith("of steps") else TOLERANCES)[trial.dtype]
        errors[quantity] = _worst_number(numbers, expected.numbers[quantity], tolerance)
    for quantity, values in found.values.items():
        tolerance = (TOLERANCES if quantity == "gradients" else UPDATE_TOLERANCES)[trial.dtype]
        error = _worst_value(values, expected.values[quantity], tolerance)
        fault = _coverage(values, expected.values[quantity], place, once=quantity != "weights")
        errors[quantity] = Error(inf, fault, tolerance) if fault else error
    return Comparison(errors)


def _batch(case: Case, generator: torch.Generator) -> Batch:
    trial, model = case.trial, case.trial.model

    def draw(most: int, *size: int) -> Tensor:
        return torch.randint(most, size, generator=generator)

    lengths, rows = case.schedule.layout.sequences, trial.batch_size
    ids = [draw(model.vocabulary, rows, length) for length in lengths]
    targets = [draw(model.vocabulary, rows, length) for length in lengths]
    if not trial.packed:
        return Batch(ids, targets)
    # A new document begins at every third token or so.
    borders = [(draw(3, rows, length) == 0).tolist() for length in lengths]
    return Batch(ids, targets, [document_starts(map(_lengths, rows)) for rows in borders])


def _lengths(begins: Sequence[bool]) -> list[int]:
    """Lengths of documents, of which the first begins at 0 and the others where it says so."""
    borders = [0, *(place for place, begin in enumerate(begins) if begin and place), len(begins)]
    return [stop - start for start, stop in pairwise(borders)]


def _worst_number(found: Sequence[float], expected: Sequence[float], tolerance: float) -> Error:
    errors = [
        _relative(abs(ours - theirs), abs(theirs)) for ours, theirs in zip(found, expected, strict=True)
    ]
    step = errors.index(max(errors))
    return Error(errors[step], f"step {step + 1}", tolerance)


def _worst_value(found: Sequence[_Value], expected: Sequence[_Value], tolerance: float) -> Error:
    theirs = {value.name: value.tensor for value in expected}
    errors = [(0.0, "")]
    for name, tensor, where in found:
        if name not in theirs:
            return Error(inf, f"{name}, which the whole model lacks", tolerance)
        largest = float((tensor - theirs[name]).abs().max())
        errors.append((_relative(largest, float(theirs[name].abs().max())), name + where))
    return Error(*max(errors), tolerance)


def _relative(difference: float, scale: float) -> float:
    error = difference / (scale or 1.0)
    # A comparison with nan is false: what is not finite is as wrong as can be.
    return error if error == error else inf


def _coverage(found: Sequence[_Value], expected: Sequence[_Value], place: Place, *, once: bool) -> str | None:
    """What nobody holds, or more than one where it is to be there `once`; None where all is well."""
    held = Counter(name for names in place.gather([value.name for value in found]) for name in names)
    for value in expected:
        if not held[value.name]:
            return f"{value.name}, which no device has"
        if once and held[value.name] > 1:
            return f"{value.name}, which {held[value.name]} devices have"
    return None
