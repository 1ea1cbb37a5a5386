"""What a generator is asked for, and how it says no."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contraflow.designer.costs.prices import CostModel
from contraflow.designer.costs.unit import unit
from contraflow.designer.format.schedule import Action, Direction, Layout, Schedule


class Refusal(ValueError):
    """A shape that a generator cannot make; the message names the constraint and the nearest shape that it can."""


EFFORT = 2**18
"""Enough to try every rule on most shapes, in a second or a few."""

QUICK = 2**13
"""Enough for one or a few rules: what a trial takes, or a first answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """The shape of a schedule and the knobs of some generators.

    `sequences[m]` and `splits[m]` are the tokens of microbatch m and of its subsequences. `unit_microbatches` and
    `budget` (whole microbatches of activation) belong to the two-directional list-scheduled generators, `costs` and
    `effort` to every list-scheduled one: how many actions it may place, over all that it tries.
    """

    num_devices: int
    sequences: tuple[int, ...]
    splits: tuple[tuple[int, ...], ...]
    stages_per_device: int = 1
    layers: tuple[int, ...] | None = None
    unit_microbatches: int = 1
    budget: float | None = None
    costs: CostModel = unit
    ranks: tuple[int, ...] | None = None
    directions: tuple[int, ...] | None = None
    """Of each microbatch, where there are two: 0 down, 1 up. None alternates."""
    effort: int = EFFORT

    @property
    def num_microbatches(self) -> int:
        return len(self.sequences)

    @property
    def ways(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The microbatches that go down, and those that go up."""
        travels = self.directions or [m % 2 for m in range(self.num_microbatches)]
        down, up = (tuple(m for m, way in enumerate(travels) if way == number) for number in (0, 1))
        return down, up

    def layout(self, directions: Sequence[Direction]) -> Layout:
        """The layout of this shape in the given directions. Raises Refusal for layers of another number of stages."""
        num_stages = len(directions[0].placement)
        if self.layers is not None and len(self.layers) != num_stages:
            raise Refusal(f"--layers lists {len(self.layers)} counts for {num_stages} stages: one for each")
        return Layout(
            self.num_devices, self.sequences, self.splits, tuple(directions), self.layers, self.ranks
        )


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
    fewest_microbatches: Callable[[int], int] = lambda num_devices: 1
    """Below which the order is not defined on so many devices."""
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


def opposed(request: Request, placement: tuple[int, ...]) -> tuple[Direction, Direction]:
    """Down by `placement`, up by its mirror."""
    down, up = request.ways
    mirror = tuple(request.num_devices - 1 - device for device in placement)
    return Direction("down", placement, down), Direction("up", mirror, up)


Cell = tuple[int | None, int | None]
"""Microbatch and subsequence of an action."""


def travelling(layout: Layout) -> tuple[list[Cell], list[Cell]]:
    """All cells in travelling order; and in that of their backwards: by microbatch, each from its last subsequence."""
    cells = [
        [layout.action(0, "F", m, q)[2:] for q in range(len(split))] for m, split in enumerate(layout.splits)
    ]
    return [cell for row in cells for cell in row], [cell for row in cells for cell in reversed(row)]


def by_turns(request: Request, name: str, warm_up: Callable[[int], int]) -> Schedule:
    """One stage per device: `warm_up(device)` forwards, then a forward and a backward in turn, then the backwards left.

    Raises Refusal for layers of another number of stages.
    """
    layout = request.layout([straight(request)])
    there, back = travelling(layout)
    program = tuple(
        in_turn(
            [Action(device, "F", m, q) for m, q in there],
            [Action(device, "B", m, q) for m, q in back],
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
