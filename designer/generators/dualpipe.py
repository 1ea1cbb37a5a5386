"""DualPipe (DeepSeek-V3, 2412.19437): two opposed pipelines; forwards of one beside backwards of the other."""

from __future__ import annotations

from dataclasses import replace

from contraflow.designer.format.schedule import Schedule

from .dualpipe_v import phases
from .fitting import (
    Misfit,
    Shape,
    at_least,
    cut,
    even_devices,
    fit,
    half_each_way,
    in_pairs,
    stages_per_device,
    whole,
    whole_microbatches,
)
from .request import Generator, Request, opposed
from .v_shaped import Leg, written_out


def make(request: Request) -> Schedule:
    """Each overlapped pair written as its F, then its B.

    Published is an idle time of (P/2-1)(F&B + B - 3W), where both of a pair end together: P-2 on the unit clock, with
    F&B = F + B. Written one after the other, what the F makes leaves when F ends, and half of that is left: P/2-1 per
    device. Peak min(P+1, M).
    Raises Refusal for an odd P or M, fewer than 2P-2 microbatches (DeepSeek's own engine asks for 2P; the order with
    two fewer is whole), subsequences, unequal directions, or more stages per device and direction than one.
    """
    rules = (even_devices, stages_per_device(1), whole_microbatches, _enough, _both_ways)
    fit("dualpipe", request, rules, (in_pairs, cut("seq1f1b-zb"), whole("zb-h1")))
    half_each_way("dualpipe", request)
    num_devices, each_way = request.num_devices, request.num_microbatches // 2
    layout = request.layout(opposed(request, tuple(range(num_devices))))

    def from_its_end(device: int) -> int:
        return min(device, num_devices - 1 - device)

    def legs(device: int) -> tuple[Leg, Leg]:
        # Leg 0 is the direction that begins at the device's own end.
        near, far = from_its_end(device), num_devices - 1 - from_its_end(device)
        down, up = (direction.microbatches for direction in layout.directions)
        return (Leg(near, down), Leg(far, up)) if device == near else (Leg(near, up), Leg(far, down))

    return written_out(
        request,
        "dualpipe",
        layout,
        lambda device: phases(from_its_end(device), num_devices // 2, each_way),
        legs,
    )


def _enough(shape: Shape) -> Misfit | None:
    return at_least(shape, 2 * shape.devices - 2)


def _both_ways(shape: Shape) -> Misfit | None:
    if shape.microbatches % 2 == 0:
        return None
    nearest = (replace(shape, microbatches=shape.microbatches + step) for step in (-1, 1))
    return Misfit(f"sends as many microbatches each way, and {shape.microbatches} are odd", tuple(nearest))


DUALPIPE = Generator(
    "dualpipe",
    "chimera with weight gradients put off: a sixth of 1f1b's idle time, P+1 microbatches held; even M >= 2P-2",
    "2412.19437",
    make,
    fewest_microbatches=lambda num_devices: 2 * num_devices - 2,
    directions=2,
)
