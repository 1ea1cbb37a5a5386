"""BSIPipe (2610.14935), our reading: two opposing V-shaped pipelines, co-scheduled subsequence by subsequence.

A *basic unit* is u microbatches in each direction. Units are concatenated through a gate that bounds activation
memory by a budget, whatever the number of subsequences.
"""

from __future__ import annotations

from collections.abc import Sequence

from contraflow.designer.format.schedule import Direction, Kind, Layout, Schedule

from .list_scheduling import Listed, list_schedule
from .request import Generator, Refusal, Request, shape_name

# Found by random search over six shapes on the unit clock; x is the depth of a stage, y that of a subsequence, 0..1.
FORWARD, FORWARD_DEPTH = 14.8, 10.6
BACKWARD_SUBSEQUENCE, BACKWARD_DEPTH = 13.4, 23.9

TRIES = 3


def make(request: Request) -> Schedule:
    """List scheduling for the request's prices within its budget; the peak is at most the budget, whatever k.

    Raises Refusal for an odd number of devices, more than two stages per device in a direction, or a budget
    below 2u whole microbatches.
    """
    budget = _checked_budget(request)
    layout = request.layout(opposing_vs(request))
    unit = units(layout, request.unit_microbatches)
    name = f"{shape_name('bsipipe', request)} u{request.unit_microbatches} budget {budget:g}"
    prices = request.costs(layout)
    best: Listed | None = None
    # The makespan is not monotone in the budget; of equals the program that holds least is kept.
    for _ in range(TRIES):
        gate = ConcatenationGate(layout, unit, budget)
        listed = list_schedule(layout, prices, ("F", "B"), lambda *cell: _urgency(layout, unit, *cell), gate)
        if best is None or listed.makespan <= best.makespan * (1 + 1e-9):
            best = listed
        budget = (gate.peak - 1) / (2 * layout.longest)
        if budget < 2 * request.unit_microbatches:
            break
    assert best is not None
    return Schedule(name, layout, best.program)


def opposing_vs(request: Request) -> tuple[Direction, Direction]:
    """Down: stages 0..P-1 on devices 0..P-1 and P..2P-1 back again; up: its mirror. Microbatches alternate."""
    forth = tuple(range(request.num_devices))
    count = request.num_microbatches
    return (
        Direction("down", forth + forth[::-1], tuple(range(0, count, 2))),
        Direction("up", forth[::-1] + forth, tuple(range(1, count, 2))),
    )


def units(layout: Layout, unit_microbatches: int) -> list[int]:
    """The basic unit of each microbatch: u of every direction make one, in travelling order."""
    found = [0] * layout.num_microbatches
    for direction in layout.directions:
        for index, microbatch in enumerate(direction.microbatches):
            found[microbatch] = index // unit_microbatches
    return found


def _checked_budget(request: Request) -> float:
    if request.num_devices % 2:
        below, above = request.num_devices - 1, request.num_devices + 1
        nearest = f"{below} or {above}" if below else f"{above}"
        raise Refusal(
            f"bsipipe mirrors the devices in pairs and cannot use {request.num_devices}: use {nearest}, or seq1f1b"
        )
    if request.stages_per_device != 2:
        raise Refusal(
            f"bsipipe's Vs put 2 stages of each direction on a device, not {request.stages_per_device}: "
            "use --stages-per-device 2"
        )
    if request.unit_microbatches < 1:
        raise Refusal(
            f"a basic unit has at least 1 microbatch in each direction, not {request.unit_microbatches}"
        )
    least = 2 * request.unit_microbatches
    budget = least + 0.5 if request.budget is None else request.budget
    if not budget >= least:
        raise Refusal(
            f"a budget of {budget:g} microbatches is too small for units of {request.unit_microbatches}: "
            f"the least is {least}"
        )
    return budget


def _urgency(
    layout: Layout, unit: Sequence[int], kind: Kind, stage: int, microbatch: int, subsequence: int
) -> tuple[float, bool, int, int, int, int]:
    depth = stage / layout.num_stages
    if kind == "F":
        urgency = FORWARD + FORWARD_DEPTH * depth
    else:
        urgency = BACKWARD_SUBSEQUENCE * subsequence / len(layout.splits[microbatch]) + BACKWARD_DEPTH * depth
    return (-urgency, kind == "F", layout.direction_of[microbatch], unit[microbatch], subsequence, stage)


class ConcatenationGate:
    """Lets an F of a unit start only where room is left for what older units have yet to bring to its device.

    live + (forwards of older units not yet started there) + this forward <= 2 * budget, each as its tokens / N.
    It can never strand an older unit, so it never blocks for good.
    """

    def __init__(self, layout: Layout, unit: Sequence[int], budget: float):
        tokens = [length for split in layout.splits for length in split]
        unit_of_split = [unit[m] for m, split in enumerate(layout.splits) for _ in split]
        self.tokens = tokens * layout.num_stages
        self.unit = unit_of_split * layout.num_stages
        self.limit = 2 * budget * layout.longest + 1e-6
        self.live, self.peak = [0] * layout.num_devices, 0
        self.to_come = [[0] * (max(unit) + 1) for _ in range(layout.num_devices)]
        for stage in range(layout.num_stages):
            for microbatch, length in enumerate(layout.sequences):
                self.to_come[layout.device_of(stage, microbatch)][unit[microbatch]] += length

    def admits(self, device: int, slot: int) -> bool:
        older = sum(self.to_come[device][: self.unit[slot]])
        return self.live[device] + older + self.tokens[slot] <= self.limit

    def opened(self, device: int, slot: int) -> None:
        self.live[device] += self.tokens[slot]
        self.peak = max(self.peak, self.live[device])
        self.to_come[device][self.unit[slot]] -= self.tokens[slot]

    def closed(self, device: int, slot: int) -> None:
        self.live[device] -= self.tokens[slot]


BSIPIPE = Generator(
    "bsipipe",
    "two opposing Vs over subsequences: least idle time within an activation budget; two copies of the weights",
    "2610.14935",
    make,
    stages_per_device=2,
    cuts=True,
    directions=2,
    budgeted=True,
)
