"""What a generator is asked for, and how it says no."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contraflow.designer.costs.prices import CostModel
from contraflow.designer.costs.unit import unit
from contraflow.designer.format.schedule import Action, Direction, Layout, Schedule


class Refusal(ValueError):
    """A shape that a generator cannot make; the message names the constraint and the nearest shape that it can."""


@dataclass(frozen=True, slots=True)
class Request:
    """The shape of a schedule and the knobs of some generators.

    `sequences[m]` and `splits[m]` are the tokens of microbatch m and of its subsequences. `unit_microbatches` and
    `budget` (whole microbatches of activation) belong to the two-directional list-scheduled generators, `costs`
    to every list-scheduled one.
    """

    num_devices: int
    sequences: tuple[int, ...]
    splits: tuple[tuple[int, ...], ...]
    stages_per_device: int = 1
    layers: tuple[int, ...] | None = None
    unit_microbatches: int = 1
    budget: float | None = None
    costs: CostModel = unit

    @property
    def num_microbatches(self) -> int:
        return len(self.sequences)

    def layout(self, directions: Sequence[Direction]) -> Layout:
        """The layout of this shape in the given directions. Raises Refusal for layers of another number of stages."""
        num_stages = len(directions[0].placement)
        if self.layers is not None and len(self.layers) != num_stages:
            raise Refusal(f"--layers lists {len(self.layers)} counts for {num_stages} stages: one for each")
        return Layout(self.num_devices, self.sequences, self.splits, tuple(directions), self.layers)


@dataclass(frozen=True, slots=True)
class Generator:
    """A family of schedules: one pure function, and what tells it apart from the others."""

    name: str
    summary: str
    source: str
    make: Callable[[Request], Schedule]
    """Raises Refusal."""
    stages_per_device: int = 1
    """The default of that knob."""
    cuts: bool = False
    """Whether it knows subsequences."""
    directions: int = 1
    """How many copies of the model it runs."""
    budgeted: bool = False
    """Whether it is list-scheduled for given prices, with the knobs `unit_microbatches`, `budget` and `costs`."""


def straight(request: Request) -> Direction:
    """One direction; stage s on device s mod P."""
    stages = request.num_devices * request.stages_per_device
    placement = tuple(stage % request.num_devices for stage in range(stages))
    return Direction("down", placement, tuple(range(request.num_microbatches)))


def one_stage_per_device(request: Request, name: str, sibling: str) -> None:
    """Raises Refusal where `request` asks for more stages per device than one."""
    if request.stages_per_device != 1:
        whole = "" if max(map(len, request.splits)) == 1 else " with --subsequences 1"
        raise Refusal(
            f"{name} puts one stage on each device, not {request.stages_per_device}: "
            f"leave --stages-per-device at 1, or use {sibling}{whole}"
        )


def whole_microbatches(request: Request, name: str, sibling: str) -> None:
    """Raises Refusal where `request` asks for subsequences."""
    most = max(len(split) for split in request.splits)
    if most > 1:
        raise Refusal(f"{name} sends microbatches whole, not in {most} subsequences: use 1, or {sibling}")


def by_microbatch(request: Request, name: str, warm_up: Callable[[int], int]) -> Schedule:
    """Whole microbatches through one stage per device, in their order, after `warm_up(device)` forwards.

    Raises Refusal where `request` asks for more stages or for subsequences.
    """
    one_stage_per_device(request, name, "interleaved-1f1b")
    whole_microbatches(request, name, "seq1f1b")
    layout = request.layout([straight(request)])
    microbatches = range(request.num_microbatches)
    program = tuple(
        in_turn(
            [layout.action(device, "F", m, 0) for m in microbatches],
            [layout.action(device, "B", m, 0) for m in microbatches],
            warm_up(device),
        )
        for device in range(request.num_devices)
    )
    return Schedule(shape_name(name, request), layout, program)


def in_turn(forwards: Sequence[Action], backwards: Sequence[Action], warm_up: int) -> tuple[Action, ...]:
    """`warm_up` forwards, then a forward and a backward in turn, then the remaining backwards."""
    warm_up = min(warm_up, len(forwards))
    steady = len(forwards) - warm_up
    program = list(forwards[:warm_up])
    for forward, backward in zip(forwards[warm_up:], backwards[:steady], strict=True):
        program += (forward, backward)
    program += backwards[steady:]
    return tuple(program)


def shape_name(name: str, request: Request) -> str:
    """A name for people: the generator and its shape."""
    most = max(len(split) for split in request.splits)
    stages = f" v{request.stages_per_device}" if request.stages_per_device > 1 else ""
    return f"{name} p{request.num_devices}{stages} m{request.num_microbatches} k{most}"
