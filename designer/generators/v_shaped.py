"""One V: stage s on device s, then back; and ZB-V (2401.10241), which runs it without idling between its ends.

Every device holds two stages: one of the way there (leg 0) and one of the way back (leg 1). Stages P-1 and P share a
device, and so do the first stage and the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import cast

from contraflow.designer.format.schedule import Action, Direction, Kind, Layout, Schedule

from .fitting import Rule, Sibling, cut, fit, stages_per_device, whole, whole_microbatches
from .request import Generator, Request, opposed, shape_name

STRAIGHT = (cut("seq1f1b-zb"), whole("zb-h1"))
"""I and W without a turn: one stage on a device, and subsequences too."""

Phases = Iterable[tuple[int, str]]
"""(how often, steps) in turn; a step is a kind and a leg, such as `I1`."""


def there_and_back(num_devices: int) -> tuple[int, ...]:
    """The placement of a V: stages 0..P-1 on devices 0..P-1, stages P..2P-1 on P-1..0."""
    forth = tuple(range(num_devices))
    return forth + forth[::-1]


def opposing_vs(request: Request) -> tuple[Direction, Direction]:
    """Down: a V; up: its mirror, from device P-1 to device 0 and back again."""
    return opposed(request, there_and_back(request.num_devices))


def one_v(
    request: Request, name: str, rules: Sequence[Rule] = (), siblings: Sequence[Sibling] = STRAIGHT
) -> Layout:
    """The layout of whole microbatches through one V.

    Raises Refusal for another number of stages per device than two, for subsequences, and where one of `rules` does.
    """
    fit(name, request, (stages_per_device(2), whole_microbatches, *rules), siblings)
    placement = there_and_back(request.num_devices)
    return request.layout([Direction("down", placement, tuple(range(request.num_microbatches)))])


@dataclass(frozen=True, slots=True)
class Leg:
    """One of the two ways in which microbatches reach a device: its stage, and their numbers."""

    stage: int
    microbatches: Sequence[int]


def written_out(
    request: Request,
    name: str,
    layout: Layout,
    phases: Callable[[int], Phases],
    legs: Callable[[int], tuple[Leg, Leg]] | None = None,
) -> Schedule:
    """The schedule whose device d runs `phases(d)` on its `legs(d)`, by default those of one V.

    The n-th F of a leg is its n-th microbatch, as is its n-th B or I; a W is of the oldest I of its leg that has none.
    Microbatches beyond the last are left out: what remains of an executable order is executable.
    """

    def of_one_v(device: int) -> tuple[Leg, Leg]:
        every = range(layout.num_microbatches)
        return Leg(device, every), Leg(layout.num_stages - 1 - device, every)

    program = tuple(
        _actions(layout, (legs or of_one_v)(device), phases(device)) for device in range(layout.num_devices)
    )
    return Schedule(shape_name(name, request), layout, program)


def _actions(layout: Layout, legs: tuple[Leg, Leg], phases: Phases) -> tuple[Action, ...]:
    forwards, backwards = (count(), count()), (count(), count())
    without_w: tuple[deque[int], deque[int]] = (deque(), deque())
    actions = []
    for times, pattern in phases:
        steps = [(cast(Kind, step[0]), int(step[1])) for step in pattern.split()]
        for kind, leg in steps * times:
            if kind == "F":
                number = next(forwards[leg])
            elif kind == "W":
                number = without_w[leg].popleft()
            else:
                number = next(backwards[leg])
                if kind == "I":
                    without_w[leg].append(number)
            stage, microbatches = legs[leg].stage, legs[leg].microbatches
            if number < len(microbatches):
                actions.append(layout.action(stage, kind, microbatches[number], 0))
    return tuple(actions)


def make(request: Request) -> Schedule:
    """Idle max((P-1)/2, 2P-1-M) per device (none with one device); peak min(P, M).

    From M = 2P-1 on a device idles only before its first action and behind its last. Fewer microbatches run in the
    order of 2P-1. Raises Refusal.
    """
    layout = one_v(request, "zb-v")
    num_devices, most = request.num_devices, max(request.num_microbatches, 2 * request.num_devices - 1)
    return written_out(request, "zb-v", layout, lambda device: _phases(device, num_devices, most))


def _phases(device: int, num_devices: int, num_microbatches: int) -> Phases:
    """For at least 2P-1 microbatches."""
    to_the_turn = num_devices - device
    return (
        (2 * to_the_turn - 1, "F0"),
        (device, "F1 F0"),
        (to_the_turn, "F1 I1 W1"),
        (num_microbatches - 2 * num_devices + 1 + device, "F0 I0 W0 F1 I1 W1"),
        (to_the_turn - 1, "I0 W0 F1 I1 W1"),
        (device, "I0 I1"),
        (to_the_turn, "I0 W0"),
        (device, "W1"),
        (device, "W0"),
    )


ZB_V = Generator(
    "zb-v",
    "one V with I and W: a sixth of 1f1b's idle time, and on every device 1f1b's peak",
    "2401.10241",
    make,
    stages_per_device=2,
)
