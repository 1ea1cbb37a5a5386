"""GPipe (1811.06965): every forward, then every backward."""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from .request import (
    Generator,
    Request,
    in_turn,
    one_stage_per_device,
    shape_name,
    straight,
    whole_microbatches,
)


def make(request: Request) -> Schedule:
    """All F, then all B, in the order of the microbatches. Idle 3(P-1) per device; peak M."""
    one_stage_per_device(request, "gpipe", "interleaved-1f1b")
    whole_microbatches(request, "gpipe", "seq1f1b")
    layout = request.layout([straight(request)])
    microbatches = range(request.num_microbatches)
    program = tuple(
        in_turn(
            [layout.action(device, "F", m, 0) for m in microbatches],
            [layout.action(device, "B", m, 0) for m in microbatches],
            warm_up=request.num_microbatches,
        )
        for device in range(request.num_devices)
    )
    return Schedule(shape_name("gpipe", request), layout, program)


GPIPE = Generator("gpipe", "all forwards, then all backwards; holds every microbatch", "1811.06965", make)
