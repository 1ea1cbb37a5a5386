"""Seq1F1B (2406.03488): 1F1B over the subsequences of each sequence."""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from .request import Generator, Request, in_turn, one_stage_per_device, shape_name, straight


def make(request: Request) -> Schedule:
    """Warm-up of min(P-2-d+k, Mk) F on device d; B in microbatch order and, within one, from its last subsequence.

    Idle 3(P-1)/k per device; peak min((P-1-d+k)/k, M). With k = 1 it is 1f1b. Where the microbatches are cut
    differently, k is the most subsequences of any: fewer would stop at the first B of that one.
    """
    one_stage_per_device(request, "seq1f1b", "interleaved-1f1b")
    layout = request.layout([straight(request)])
    most = max(map(len, request.splits))
    ups = [(m, q) for m, split in enumerate(request.splits) for q in range(len(split))]
    downs = [(m, q) for m, split in enumerate(request.splits) for q in reversed(range(len(split)))]
    program = tuple(
        in_turn(
            [layout.action(device, "F", m, q) for m, q in ups],
            [layout.action(device, "B", m, q) for m, q in downs],
            warm_up=request.num_devices - 2 - device + most,
        )
        for device in range(request.num_devices)
    )
    return Schedule(shape_name("seq1f1b", request), layout, program)


SEQ1F1B = Generator(
    "seq1f1b",
    "1f1b over subsequences: a k-th of its idle time, and less memory",
    "2406.03488",
    make,
    cuts=True,
)
