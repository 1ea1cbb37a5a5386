"""Chimera (2107.06925): two opposed pipelines whose 1F1B orders mesh like the teeth of two combs."""

from __future__ import annotations

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
    """Units of P microbatches, P/2 each way, meshed so that each starts in the gaps that the one before it leaves.

    With U units idle (P-2)(U+1) per device, so 2(P-2) at M = P; with M < P, which is a smaller unit, 3P - 4 - M for
    even M and 2 more for odd M. Peak min(P, M) on the inner devices, at most P/2 + 1 on the outer ones.
    Raises Refusal for an odd P, subsequences, more stages per device and direction than one, unequal directions,
    or M > P that is no multiple of P: a smaller unit behind a whole one idles longer than 1f1b.
    """
    rules = (even_devices, stages_per_device(1), whole_microbatches, _units)
    fit("chimera", request, rules, (in_pairs, cut("seq1f1b"), whole("1f1b")))
    half_each_way("chimera", request)
    num_devices = request.num_devices
    layout = request.layout(opposed(request, tuple(range(num_devices))))
    num_units = -(-request.num_microbatches // num_devices)
    program = []
    for device in range(num_devices):
        # With F and B equally long, each direction's 1F1B uses every second beat: the other's lie between them.
        beats: list[Action | None] = [None] * ((2 * num_units + 1) * num_devices)
        for direction, stage in zip(layout.directions, (device, num_devices - 1 - device), strict=True):
            for index, m in enumerate(direction.microbatches):
                unit, turn = divmod(index, num_devices // 2)
                start = 2 * (unit * num_devices + turn)
                beats[start + stage] = Action(stage, "F", m)
                beats[start + 2 * num_devices - 1 - stage] = Action(stage, "B", m)
        program.append(tuple([action for action in beats if action is not None]))
    return Schedule(shape_name("chimera", request), layout, tuple(program))


def _units(shape: Shape) -> Misfit | None:
    return None if shape.microbatches <= shape.devices else in_groups(shape, shape.devices)


CHIMERA = Generator(
    "chimera",
    "two opposed pipelines of whole microbatches: two thirds of 1f1b's idle time at M = P; two copies of the weights",
    "2107.06925",
    make,
    directions=2,
)
