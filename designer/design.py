"""A design: every knob a person turns, frozen; and the one call from knobs or a file to what is shown.

knobs -> `Design` -> `make` -> `Schedule` -> `preview` -> `Preview`. Both front ends make these calls and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property
from math import isfinite
from typing import Any

from . import costs, splits, topology
from .costs.footprint import Footprint
from .costs.presets import DEFAULT
from .costs.prices import CostModel
from .explain import Explanation, explain
from .format.check import check
from .format.fault import InvalidScheduleError
from .format.graph import Graph, build
from .format.lowering import with_reductions
from .format.schedule import Layout, Schedule
from .format.tables import ConfigError, from_table
from .generators import GENERATORS, Generator, Refusal, Request
from .generators.concatenation import default_budget
from .generators.request import EFFORT, QUICK
from .memory import ByteCurve, Curve, activation_curves, byte_curves
from .simulate import Timeline, simulate
from .topology import Traffic

MICROBATCHES = 4
"""Default of the generators that can do with so few."""

SUBSEQUENCES = 4
"""Default cut of the generators that cut."""

BALANCED = "balanced"
"""The word for layers that make the devices equally busy."""

MAX_ACTIONS = 1_000_000
"""Beyond this a slip is likelier than a wish, and the file would be too large to read."""


class DesignError(ValueError):
    """Knobs that give no schedule; the one-line message says which and what would."""


@dataclass(frozen=True, slots=True)
class Design:
    """All knobs. None stands for the generator's own default.

    `split` is `even`, `compute`, `time` or lengths; `layers` is `balanced` or counts; `ranks` a mapping's name (see
    topology.py) or the rank of each device; `directions` a digit for each microbatch, 0 down and 1 up.
    """

    generator: str = "seq1f1b"
    devices: int = 4
    microbatches: int | None = None
    subsequences: int | None = None
    stages_per_device: int | None = None
    sequence: int = 32768
    split: str | tuple[int, ...] = "even"
    multiple: int = splits.TILE
    layers: str | tuple[int, ...] | None = None
    ranks: str | tuple[int, ...] | None = None
    unit_microbatches: int = 1
    budget: float | None = None
    costs: str | None = None
    directions: str | None = None

    @property
    def kind(self) -> Generator:
        """The generator. Raises DesignError for a name that is none."""
        if self.generator not in GENERATORS:
            near = get_close_matches(self.generator, GENERATORS, 1, 0.0)[0]
            raise DesignError(
                f"no generator {self.generator!r}; did you mean {near!r}? There are {', '.join(GENERATORS)}"
            )
        return GENERATORS[self.generator]

    @property
    def num_subsequences(self) -> int:
        """The cut that is made: as asked, as listed, or the generator's default."""
        if isinstance(self.split, tuple):
            return len(self.split)
        return self.subsequences or (SUBSEQUENCES if self.kind.cuts else 1)

    @property
    def num_microbatches(self) -> int:
        """As asked, as many as directions are listed, or the generator's default."""
        if self.microbatches or self.directions:
            return self.microbatches or len(self.directions or "")
        return max(MICROBATCHES, self.kind.fewest_microbatches(self.devices))

    @property
    def num_stages_per_device(self) -> int:
        return self.stages_per_device or self.kind.stages_per_device

    @property
    def activation_budget(self) -> float:
        """Of a generator that takes one, in whole microbatches: as asked, or its default."""
        return default_budget(self.unit_microbatches) if self.budget is None else self.budget

    @property
    def num_actions(self) -> int:
        """Forwards and backwards of one direction's stages: about the size of what is made."""
        stages = self.devices * self.num_stages_per_device
        return 2 * stages * self.num_microbatches * self.num_subsequences

    def lengths(self) -> tuple[int, ...]:
        """Tokens of the subsequences. Raises DesignError, SplitError or CostError."""
        count = self.num_subsequences
        if isinstance(self.split, tuple):
            if self.subsequences not in (None, count):
                raise DesignError(
                    f"--split lists {count} lengths where --subsequences asks for {self.subsequences}"
                )
            shortest = min(self.split, default=0)
            if shortest < 1:
                raise DesignError(f"--split lists {shortest} tokens; at least 1 belongs there")
            if sum(self.split) != self.sequence:
                raise DesignError(
                    f"--split adds up to {sum(self.split)} tokens where --sequence has {self.sequence}"
                )
            return self.split
        if self.split == "even":
            return splits.even(self.sequence, count)
        name = self.costs or DEFAULT
        if self.split == "compute":
            return splits.equal_compute(self.sequence, count, costs.model_behind(name), self.multiple)
        if self.split == "time":
            num_stages = self.devices * self.num_stages_per_device
            model_costs = costs.named(name)
            return splits.equal_time(
                self.sequence, count, model_costs, self.devices, num_stages, self.multiple
            )
        raise DesignError(
            f"no split {self.split!r}; there are even, compute, time, and lengths such as 512,384,128"
        )


def make(design: Design, effort: int = EFFORT) -> Schedule:
    """The schedule of these knobs, which it carries as provenance; less `effort` gives a worse one sooner.

    Raises DesignError for knobs that give none: a shape that the generator refuses, a cost model that is none,
    a sequence that cannot be cut so.
    """
    try:
        kind = design.kind
        _check_sizes(design)
        request = Request(
            num_devices=design.devices,
            sequences=(design.sequence,) * design.num_microbatches,
            splits=(design.lengths(),) * design.num_microbatches,
            stages_per_device=design.num_stages_per_device,
            layers=design.layers if isinstance(design.layers, tuple) else None,
            unit_microbatches=design.unit_microbatches,
            budget=design.budget,
            costs=costs.named(design.costs or "unit"),
            ranks=design.ranks if isinstance(design.ranks, tuple) else None,
            directions=None if design.directions is None else tuple(map(int, design.directions)),
            effort=effort,
        )
        # What fits a layout is found on one, and may change the order.
        if isinstance(design.layers, str):
            layout = kind.make(replace(request, effort=0)).layout
            request = replace(request, layers=_fitted_layers(design, layout))
        if isinstance(design.ranks, str):
            layout = kind.make(replace(request, effort=0)).layout
            request = replace(request, ranks=_fitted_ranks(design, layout))
        schedule = kind.make(request)
        return replace(schedule, design=knobs(design))
    except (Refusal, splits.SplitError, costs.CostError) as error:
        raise DesignError(str(error)) from None


def _fitted_layers(design: Design, layout: Layout) -> tuple[int, ...]:
    if design.layers != BALANCED:
        raise DesignError(f"no layers {design.layers!r}; there are {BALANCED}, and lists such as 7,9,9,7")
    return splits.balanced(layout, costs.named(design.costs or DEFAULT))


def _fitted_ranks(design: Design, layout: Layout) -> tuple[int, ...]:
    assert isinstance(design.ranks, str)
    return topology.mapped(design.ranks, layout, costs.named(design.costs or DEFAULT))


def _check_sizes(design: Design) -> None:
    """Raises DesignError for numbers that no generator can use."""
    for name in ("devices", "microbatches", "sequence", "subsequences", "stages_per_device"):
        value = getattr(design, name)
        if value is not None and value < 1:
            raise DesignError(f"--{name.replace('_', '-')} is {value}; at least 1 belongs there")
    if isinstance(design.layers, tuple) and min(design.layers, default=0) < 0:
        raise DesignError(f"--layers lists {min(design.layers)}; a stage holds at least 0")
    if isinstance(design.ranks, tuple) and (
        len(design.ranks) != design.devices or set(design.ranks) != set(range(len(design.ranks)))
    ):
        raise DesignError(f"--ranks lists each of 0 to {design.devices - 1} once, one for each device")
    if design.directions is not None:
        _check_directions(design, design.directions)
    if design.budget is not None and not isfinite(design.budget):
        raise DesignError(f"--budget is {design.budget}; a finite number belongs there")
    if design.num_actions > MAX_ACTIONS:
        raise DesignError(
            f"{design.devices} devices x {design.num_stages_per_device} stages x {design.num_microbatches} "
            f"microbatches x {design.num_subsequences} subsequences are {design.num_actions} actions; "
            f"at most {MAX_ACTIONS} are made"
        )


def _check_directions(design: Design, listed: str) -> None:
    """Raises DesignError for directions that this generator or so many microbatches do not have."""
    if design.kind.directions == 1:
        names = ", ".join(name for name, kind in GENERATORS.items() if kind.directions > 1)
        raise DesignError(f"{design.generator} sends all microbatches one way: --directions is for {names}")
    if not set(listed) <= set("01"):
        raise DesignError(
            f"--directions is {listed!r}; a digit for each microbatch belongs there, 0 down and 1 up, such as 0110"
        )
    if len(listed) != design.num_microbatches:
        raise DesignError(
            f"--directions lists {len(listed)} microbatches where --microbatches asks for {design.num_microbatches}"
        )


def efforts(design: Design) -> tuple[int, ...]:
    """What to try in turn for `make`: a quick answer where the best takes long, and at last the best."""
    return (QUICK, EFFORT) if design.kind.budgeted else (EFFORT,)


def carried(schedule: Schedule) -> Design | None:
    """The knobs that a schedule carries as provenance; None where it carries none that we know."""
    if schedule.design is None or "generator" not in schedule.design:
        return None
    try:
        design = from_knobs(schedule.design)
    except DesignError:
        return None
    return design if design.generator in GENERATORS else None


def parted(schedule: Schedule, design: Design) -> bool:
    """Whether a schedule is another than these knobs make, if they make one."""
    try:
        made = make(design)
    except DesignError:
        return True
    # Where no knob says which rank plays which device, that is the file's own affair.
    layout = schedule.layout if design.ranks else replace(schedule.layout, ranks=None)
    return (made.program, made.layout) != (schedule.program, layout)


def knobs(design: Design) -> dict[str, Any]:
    """The knobs as JSON values, without those at rest."""
    values = {
        key: list(value) if isinstance(value, tuple) else value for key, value in asdict(design).items()
    }
    return {key: value for key, value in values.items() if value is not None}


def from_knobs(values: Mapping[str, Any]) -> Design:
    """The design in a file's provenance; unknown knobs are passed over. Raises DesignError for wrong types."""
    known = {field.name for field in fields(Design)}
    table = {key: value for key, value in values.items() if key in known}
    worded: dict[str, Any] = {}
    for name in ("split", "layers", "ranks"):
        value = table.pop(name, None)
        if isinstance(value, list) and all(type(number) is int for number in value):
            value = tuple(value)
        if not isinstance(value, (str, tuple, type(None))):
            raise DesignError(f"$.design: {name} is neither a word nor a list of whole numbers")
        if value is not None:
            worded[name] = value
    try:
        return replace(from_table(Design, table, "$.design"), **worded)
    except ConfigError as error:
        raise DesignError(str(error)) from None


@dataclass(frozen=True)
class Preview:
    """Everything that is shown of a schedule on a clock."""

    schedule: Schedule
    timeline: Timeline
    curves: tuple[Curve, ...]
    """Activation per device, in whole microbatches through a device's share."""
    costs: CostModel
    graph: Graph
    """Of the schedule's own program; the timeline's may hold reductions besides."""

    @cached_property
    def peak(self) -> float:
        """The largest activation of any device."""
        return max(curve.peak for curve in self.curves)

    @cached_property
    def footprint(self) -> Footprint | None:
        """Bytes of everything, one by one; None where the costs know of no model."""
        return None if self.costs.footprint is None else self.costs.footprint(self.schedule.layout)

    @cached_property
    def memory(self) -> tuple[ByteCurve, ...] | None:
        """Bytes on every GPU of a device over time; None where the costs know of no model."""
        return None if self.footprint is None else byte_curves(self.timeline, self.footprint)

    @cached_property
    def peak_bytes(self) -> float | None:
        """The most bytes on any GPU."""
        return None if self.memory is None else max(curve.peak for curve in self.memory)

    @cached_property
    def traffic(self) -> Traffic | None:
        """Bytes from node to node in one step; None where the costs know of no model."""
        if self.footprint is None or self.costs.training is None:
            return None
        num_gpus = self.costs.training.tensor_parallel
        return topology.traffic(self.schedule.layout, self.timeline.prices.network, self.footprint, num_gpus)

    @cached_property
    def explanation(self) -> Explanation:
        """What every action waited for, and why devices idled."""
        design = carried(self.schedule)
        return explain(self.timeline, design.activation_budget if design and design.kind.budgeted else None)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of all replicas in a step, over its time; None where the costs know neither."""
        training = self.costs.training
        if training is None or not self.step:
            return None
        return sum(self.schedule.layout.sequences) * training.batch_size * training.replicas / self.step

    @property
    def makespan(self) -> float:
        return self.timeline.makespan

    @property
    def bubble(self) -> float:
        return self.timeline.bubble

    @property
    def caption(self) -> str:
        """The assumptions behind every figure shown: the clock's, and what counts as idle."""
        caption = self.timeline.prices.caption
        return f"{caption[0].upper()}{caption[1:]}. Idle from time 0 to the end of the last action."

    @property
    def step(self) -> float:
        """A whole training step: the makespan, and what the costs count after it."""
        return self.timeline.makespan + self.timeline.prices.after_step


def preview(schedule: Schedule, cost_model: CostModel) -> Preview:
    """Check, price and simulate a schedule, its reductions included.

    Raises InvalidScheduleError with every fault, or CostError where the costs do not fit the layout.
    """
    graph = build(schedule)
    faults = check(schedule, graph)
    if faults:
        raise InvalidScheduleError(schedule.name, faults)
    prices = cost_model(schedule.layout)
    timeline = simulate(build(with_reductions(schedule)) if any(prices.reduction) else graph, prices)
    return Preview(schedule, timeline, activation_curves(timeline), cost_model, graph)
