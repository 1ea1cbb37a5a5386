"""BSIPipe (2610.14935), our reading: two opposing V-shaped pipelines, co-scheduled subsequence by subsequence.

Basic units are concatenated through a gate that bounds activation memory by a budget, whatever the number of
subsequences.
"""

from __future__ import annotations

from collections.abc import Sequence

from contraflow.designer.format.schedule import Kind, Layout, Schedule

from .concatenation import Precedence, concatenated
from .request import Generator, Request

# Found by random search over six shapes on the unit clock; x is the depth of a stage, y that of a subsequence, 0..1.
FORWARD, FORWARD_DEPTH = 14.8, 10.6
BACKWARD_SUBSEQUENCE, BACKWARD_DEPTH = 13.4, 23.9


def make(request: Request) -> Schedule:
    """List scheduling for the request's prices within its budget; the peak is at most the budget, whatever k.

    Raises Refusal for an odd number of devices, more than two stages per device in a direction, or a budget
    below 2u whole microbatches.
    """
    return concatenated(request, "bsipipe", "seq1f1b", [WHOLE_BACKWARDS])


def _urgency(
    layout: Layout, unit: Sequence[int], kind: Kind, stage: int, microbatch: int, subsequence: int
) -> tuple[float, bool, int, int, int, int]:
    depth = stage / layout.num_stages
    if kind == "F":
        urgency = FORWARD + FORWARD_DEPTH * depth
    else:
        urgency = BACKWARD_SUBSEQUENCE * subsequence / len(layout.splits[microbatch]) + BACKWARD_DEPTH * depth
    return (-urgency, kind == "F", layout.direction_of[microbatch], unit[microbatch], subsequence, stage)


WHOLE_BACKWARDS = Precedence(("F", "B"), _urgency)
"""Backwards deep in the pipeline go before new forwards; shallow ones, on which nobody waits, fill gaps."""

BSIPIPE = Generator(
    "bsipipe",
    "two opposing Vs over subsequences: least idle time within an activation budget; two copies of the weights",
    "2610.14935",
    make,
    stages_per_device=2,
    cuts=True,
    directions=2,
    budgeted=True,
)
