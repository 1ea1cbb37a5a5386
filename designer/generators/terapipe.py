"""TeraPipe (2102.07988): GPipe over the subsequences of each sequence."""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from .fitting import fit, more_stages, stages_per_device
from .request import Generator, Request, by_turns


def make(request: Request) -> Schedule:
    """All F of every subsequence, then all B. Idle 3(P-1)/k per device; peak M. With k = 1 it is gpipe.

    Raises Refusal for more stages per device than one.
    """
    fit("terapipe", request, (stages_per_device(1),), (more_stages,))
    return by_turns(request, "terapipe", lambda device: sum(map(len, request.splits)))


TERAPIPE = Generator(
    "terapipe",
    "gpipe over subsequences: a k-th of its idle time; holds every microbatch",
    "2102.07988",
    make,
    cuts=True,
)
