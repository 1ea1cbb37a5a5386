"""GPipe (1811.06965): every forward, then every backward."""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from .fitting import cut, fit, more_stages, stages_per_device, whole_microbatches
from .request import Generator, Request, by_turns


def make(request: Request) -> Schedule:
    """All F, then all B, in the order of the microbatches. Idle 3(P-1) per device; peak M.

    Raises Refusal for subsequences, or more stages per device than one.
    """
    fit("gpipe", request, (stages_per_device(1), whole_microbatches), (more_stages, cut("terapipe")))
    return by_turns(request, "gpipe", lambda device: request.num_microbatches)


GPIPE = Generator("gpipe", "all forwards, then all backwards; holds every microbatch", "1811.06965", make)
