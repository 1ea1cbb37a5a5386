"""GPipe (1811.06965): every forward, then every backward."""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from .request import Generator, Request, by_microbatch


def make(request: Request) -> Schedule:
    """All F, then all B, in the order of the microbatches. Idle 3(P-1) per device; peak M. Raises Refusal."""
    return by_microbatch(request, "gpipe", lambda device: request.num_microbatches)


GPIPE = Generator("gpipe", "all forwards, then all backwards; holds every microbatch", "1811.06965", make)
