"""BitPipe (2410.19367): two opposed V-shaped pipelines of whole microbatches."""

from __future__ import annotations

from collections.abc import Iterator

from contraflow.designer.format.schedule import Action, Schedule

from .fitting import (
    Misfit,
    Shape,
    cut,
    even_devices,
    fit,
    half_each_way,
    in_groups,
    in_pairs,
    stages_per_device,
    whole,
    whole_microbatches,
)
from .request import Generator, Request, opposed, shape_name


def make(request: Request) -> Schedule:
    """U units of P microbatches, P/2 each way, one after the other.

    Idle (P-2)(U+1)/2 per device, so P-2 at M = P; peak from (3P+2)/4 on the outer devices to P on the inner ones.
    Raises Refusal for an odd P, subsequences, other than two stages per device and direction, unequal directions,
    or M no multiple of P.
    """
    rules = (even_devices, stages_per_device(2), whole_microbatches, _units)
    fit("bitpipe", request, rules, (in_pairs, cut("seq1f1b"), whole("1f1b")))
    half_each_way("bitpipe", request)
    devices = tuple(range(request.num_devices))
    layout = request.layout(opposed(request, devices + devices[::-1]))
    program = tuple(_program(request.num_devices, request.ways, device) for device in devices)
    return Schedule(shape_name("bitpipe", request), layout, program)


def _units(shape: Shape) -> Misfit | None:
    return in_groups(shape, shape.devices)


def _program(
    num_devices: int, ways: tuple[tuple[int, ...], tuple[int, ...]], device: int
) -> tuple[Action, ...]:
    half, units = num_devices // 2, range(len(ways[0]) * 2 // num_devices)
    own = 0 if device < half else 1
    legs = [_leg(num_devices, device, direction, leg) for direction in (own, 1 - own) for leg in (0, 1)]
    # From the middle of the pipeline outwards 1, 2, ...: so many microbatches start before the other direction's.
    steps = half - device if own == 0 else device - half + 1
    own_first, own_second, other_first, other_second = legs
    there = _visits(half, steps, own_first, own_second, other_first, other_second)
    back = _visits(half, steps, own_second, own_first, other_second, other_first)
    forwards = (Action(stage, "F", ways[way][unit * half + i]) for unit in units for (stage, way), i in there)
    backwards = (Action(stage, "B", ways[way][unit * half + i]) for unit in units for (stage, way), i in back)

    warm_up = num_devices + half + min(device, num_devices - 1 - device)
    rest = 2 * num_devices - warm_up
    program = _take(forwards, warm_up) + _turns(forwards, backwards, rest)
    for _ in units[1:]:
        program += _take(backwards, warm_up - rest + 1)
        program += _turns(forwards, backwards, rest - 1)
        program += _take(forwards, warm_up - rest + 1)
        program += _turns(forwards, backwards, rest)
    return (*program, *backwards)


Leg = tuple[int, int]
"""Stage, and direction: 0 down, 1 up."""


def _leg(num_devices: int, device: int, direction: int, leg: int) -> Leg:
    """Where a direction passes `device` the first (0) or second time (1)."""
    first = num_devices - 1 - device if direction else device
    return (2 * num_devices - 1 - first if leg else first), direction


def _visits(
    half: int, steps: int, own_first: Leg, own_second: Leg, other_first: Leg, other_second: Leg
) -> list[tuple[Leg, int]]:
    """A unit's forwards in their order, or its backwards where the legs are exchanged.

    Each is a leg, and which of the unit's microbatches in that direction it is.
    """
    order = [(own_first, i) for i in range(steps)]
    for i in range(half - steps):
        order += ((other_first, i), (own_first, steps + i))
    for i in range(steps):
        order += ((other_first, half - steps + i), (other_second, i))
    for i in range(half - steps):
        order += ((own_second, i), (other_second, steps + i))
    return order + [(own_second, i) for i in range(half - steps, half)]


def _take(actions: Iterator[Action], count: int) -> list[Action]:
    return [next(actions) for _ in range(count)]


def _turns(forwards: Iterator[Action], backwards: Iterator[Action], count: int) -> list[Action]:
    return [next(actions) for _ in range(count) for actions in (forwards, backwards)]


BITPIPE = Generator(
    "bitpipe",
    "two opposed Vs of whole microbatches: a third of 1f1b's idle time at M = P; two copies of the weights",
    "2410.19367",
    make,
    stages_per_device=2,
    fewest_microbatches=lambda num_devices: num_devices,
    directions=2,
)
