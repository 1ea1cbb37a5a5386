"""Basic units of two opposing Vs, list-scheduled and concatenated within an activation budget.

A *basic unit* is u microbatches in each direction. A gate decides when the next unit may start on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from contraflow.designer.format.schedule import Kind, Layout, Schedule

from .list_scheduling import Jobs, Listed
from .request import Refusal, Request, shape_name
from .v_shaped import opposing_vs


def least_budget(unit_microbatches: int) -> int:
    """Whole microbatches of activation with which basic units can be run at all."""
    return 2 * unit_microbatches


def default_budget(unit_microbatches: int) -> float:
    """Half a microbatch beyond the least: there the idle time has lost most of what it can."""
    return least_budget(unit_microbatches) + 0.5


TRIES = 3

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Precedence:
    """Whether backwards are split, and what goes first: the least key of (layout, basic units, kind, cell)."""

    kinds: tuple[Kind, ...]
    urgency: Callable[[Layout, Sequence[int], Kind, int, int, int], Any]


def concatenated(request: Request, name: str, sibling: str, precedences: Sequence[Precedence]) -> Schedule:
    """The fastest of what these precedences give for the request's prices; its peak is at most the budget, whatever k.

    Raises Refusal for an odd number of devices, more than two stages per device in a direction, or a budget
    below 2u whole microbatches.
    """
    budget = _checked_budget(request, name, sibling)
    layout = request.layout(opposing_vs(request))
    unit, prices = units(layout, request.unit_microbatches), request.costs(layout)
    best: Listed | None = None
    for precedence in precedences:

        def urgency(*job: Any, precedence: Precedence = precedence) -> Any:
            return precedence.urgency(layout, unit, *job)

        jobs = Jobs(layout, prices, precedence.kinds, urgency)
        listed = _fastest(jobs, unit, budget, least=least_budget(request.unit_microbatches))
        if best is None or listed.makespan < best.makespan * (1 - ROUNDING):
            best = listed
    assert best is not None
    shape = f"{shape_name(name, request)} u{request.unit_microbatches} budget {budget:g}"
    return Schedule(shape, layout, best.program)


def _fastest(jobs: Jobs, unit: Sequence[int], budget: float, least: float) -> Listed:
    """The makespan is not monotone in the budget; of equals the program that holds least is kept."""
    best: Listed | None = None
    for _ in range(TRIES):
        gate = ConcatenationGate(jobs.layout, unit, budget)
        listed = jobs.scheduled(gate)
        if best is None or listed.makespan <= best.makespan * (1 + ROUNDING):
            best = listed
        budget = (gate.peak - 1) / (2 * jobs.layout.longest)
        if budget < least:
            break
    assert best is not None
    return best


def units(layout: Layout, unit_microbatches: int) -> list[int]:
    """The basic unit of each microbatch: u of every direction make one, in travelling order."""
    found = [0] * layout.num_microbatches
    for direction in layout.directions:
        for index, microbatch in enumerate(direction.microbatches):
            found[microbatch] = index // unit_microbatches
    return found


def _checked_budget(request: Request, name: str, sibling: str) -> float:
    if request.num_devices % 2:
        below, above = request.num_devices - 1, request.num_devices + 1
        nearest = f"{below} or {above}" if below else f"{above}"
        raise Refusal(
            f"{name} mirrors the devices in pairs and cannot use {request.num_devices}: use {nearest}, or {sibling}"
        )
    if request.stages_per_device != 2:
        raise Refusal(
            f"{name}'s Vs put 2 stages of each direction on a device, not {request.stages_per_device}: "
            "use --stages-per-device 2"
        )
    if request.unit_microbatches < 1:
        raise Refusal(
            f"a basic unit has at least 1 microbatch in each direction, not {request.unit_microbatches}"
        )
    least = least_budget(request.unit_microbatches)
    budget = default_budget(request.unit_microbatches) if request.budget is None else request.budget
    if not budget >= least:
        raise Refusal(
            f"a budget of {budget:g} microbatches is too small for units of {request.unit_microbatches}: "
            f"the least is {least}"
        )
    return budget


class ConcatenationGate:
    """Lets an F of a unit start only where room is left for what older units have yet to bring to its device.

    live + (forwards of older units not yet started there) + this forward <= 2 * budget, each as its tokens / N.
    Live is what F has opened and B or W has not closed. It can never strand an older unit, so it never blocks for
    good: a W waits for nothing but its I, so a device with nothing else to do runs it and makes room.
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
