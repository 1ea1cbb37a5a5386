"""DualPipe (DeepSeek-V3, 2412.19437): two opposed pipelines; forwards of one beside backwards of the other."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import cycle, islice

from contraflow.designer.format.schedule import Action, Kind, Schedule

from .fitting import (
    Misfit,
    Shape,
    at_least,
    cut,
    even_devices,
    fit,
    in_pairs,
    stages_per_device,
    whole,
    whole_microbatches,
)
from .request import Generator, Request, opposed, shape_name

Verb = tuple[Kind, int]
"""What a device does next, and for which direction: 0 its own, whose first stages are nearer to it, 1 the other."""

F0: Verb = ("F", 0)
F1: Verb = ("F", 1)
B0: Verb = ("B", 0)
B1: Verb = ("B", 1)
I0: Verb = ("I", 0)
I1: Verb = ("I", 1)
W: Verb = ("W", 0)
"""The oldest W that is still owed, of either direction."""


def make(request: Request) -> Schedule:
    """Each overlapped pair written as its F, then its B.

    Published is an idle time of (P/2-1)(F&B + B - 3W), where both of a pair end together: P-2 on the unit clock, with
    F&B = F + B. Written one after the other, what the F makes leaves when F ends, and half of that is left: P/2-1 per
    device. Peak min(P+1, M).
    Raises Refusal for an odd P or M, fewer than 2P-2 microbatches (DeepSeek's own engine asks for 2P; the order with
    two fewer is whole), subsequences, or more stages per device and direction than one.
    """
    rules = (even_devices, stages_per_device(1), whole_microbatches, _enough, _both_ways)
    fit("dualpipe", request, rules, (in_pairs, cut("seq1f1b-zb"), whole("zb-h1")))
    devices = range(request.num_devices)
    layout = request.layout(opposed(request, tuple(devices)))
    program = tuple(_program(request.num_devices, request.num_microbatches, device) for device in devices)
    return Schedule(shape_name("dualpipe", request), layout, program)


def _enough(shape: Shape) -> Misfit | None:
    return at_least(shape, 2 * shape.devices - 2)


def _both_ways(shape: Shape) -> Misfit | None:
    if shape.microbatches % 2 == 0:
        return None
    nearest = (replace(shape, microbatches=shape.microbatches + step) for step in (-1, 1))
    return Misfit(f"sends as many microbatches each way, and {shape.microbatches} are odd", tuple(nearest))


def _program(num_devices: int, num_microbatches: int, device: int) -> tuple[Action, ...]:
    own = 0 if device < num_devices // 2 else 1
    # The two ways in which the device is reached: its stage, and its next microbatch forwards and backwards.
    stages = (min(device, num_devices - 1 - device), max(device, num_devices - 1 - device))
    forward, backward = [own, 1 - own], [own, 1 - own]
    owed: deque[tuple[int, int]] = deque()
    program = []
    for kind, way in _verbs(num_devices, num_microbatches, device):
        if kind == "W":
            stage, m = owed.popleft()
        else:
            counters = forward if kind == "F" else backward
            stage, m = stages[way], counters[way]
            counters[way] += 2
            if kind == "I":
                owed.append((stage, m))
        program.append(Action(stage, kind, m))
    return tuple(program)


def _verbs(num_devices: int, num_microbatches: int, device: int) -> list[Verb]:
    """The eight phases of a device; they differ with its distance from the middle and from the end of the pipeline."""
    end = min(device, num_devices - 1 - device) + 1
    middle = num_devices // 2 - end
    last = [*islice(cycle((B1, B0)), end), *islice(cycle((I1, I0) if end % 2 == 0 else (I0, I1)), end)]
    return [
        *[F0] * (2 * middle),
        *[F0, F1] * end,
        *[I1, W, F1] * middle,
        *[F0, B1, F1, B0] * (num_microbatches // 2 - num_devices + end),
        *[B1, F1, B0] * middle,
        *last,
        *[W, I0] * middle,
        *[W] * end,
    ]


DUALPIPE = Generator(
    "dualpipe",
    "chimera with weight gradients put off: a sixth of 1f1b's idle time, P+1 microbatches held; even M >= 2P-2",
    "2412.19437",
    make,
    fewest_microbatches=lambda num_devices: 2 * num_devices - 2,
    directions=2,
)
