"""1F1B (2006.09503, PipeDream-flush): as soon as a backward can run it takes turns with the forwards."""

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
    """Warm-up of min(P-1-d, M) F on device d. Idle 3(P-1) per device, as gpipe; peak min(P-d, M)."""
    one_stage_per_device(request, "1f1b", "interleaved-1f1b")
    whole_microbatches(request, "1f1b", "seq1f1b")
    layout = request.layout([straight(request)])
    microbatches = range(request.num_microbatches)
    program = tuple(
        in_turn(
            [layout.action(device, "F", m, 0) for m in microbatches],
            [layout.action(device, "B", m, 0) for m in microbatches],
            warm_up=request.num_devices - 1 - device,
        )
        for device in range(request.num_devices)
    )
    return Schedule(shape_name("1f1b", request), layout, program)


ONE_F_ONE_B = Generator(
    "1f1b", "forward and backward in turn; gpipe's idle time, at most P microbatches held", "2006.09503", make
)
