"""Seq1F1B (2406.03488): 1F1B over the subsequences of each sequence."""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from .fitting import fit, more_stages, stages_per_device
from .request import Generator, Request, by_turns


def make(request: Request) -> Schedule:
    """Warm-up of min(P-2-d+k, Mk) F on device d; B in microbatch order and, within one, from its last subsequence.

    Idle 3(P-1)/k per device; peak min((P-1-d+k)/k, M). With k = 1 it is 1f1b. Where the microbatches are cut
    differently, k is the most subsequences of any: fewer would stop at the first B of that one.
    Raises Refusal for more stages per device than one.
    """
    fit("seq1f1b", request, (stages_per_device(1),), (more_stages,))
    most = max(map(len, request.splits))
    return by_turns(request, "seq1f1b", lambda device: request.num_devices - 2 - device + most)


SEQ1F1B = Generator(
    "seq1f1b",
    "1f1b over subsequences: a k-th of its idle time, and less memory",
    "2406.03488",
    make,
    cuts=True,
)
