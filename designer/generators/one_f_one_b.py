"""1F1B (2006.09503, PipeDream-flush): as soon as a backward can run it takes turns with the forwards."""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from .fitting import cut, fit, more_stages, stages_per_device, whole_microbatches
from .request import Generator, Request, by_turns


def make(request: Request) -> Schedule:
    """Warm-up of min(P-1-d, M) F on device d. Idle 3(P-1) per device, as gpipe; peak min(P-d, M).

    Raises Refusal for subsequences, or more stages per device than one.
    """
    fit("1f1b", request, (stages_per_device(1), whole_microbatches), (more_stages, cut("seq1f1b")))
    return by_turns(request, "1f1b", lambda device: request.num_devices - 1 - device)


ONE_F_ONE_B = Generator(
    "1f1b", "forward and backward in turn; gpipe's idle time, at most P microbatches held", "2006.09503", make
)
