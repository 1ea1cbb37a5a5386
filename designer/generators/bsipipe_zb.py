"""BSIPipe with zero-bubble backwards: bsipipe's opposing Vs, units and gate, with every B as I and W.

Nobody has published it; the two halves come from 2610.14935 and 2401.10241.
"""

from __future__ import annotations

from collections.abc import Sequence

from contraflow.designer.format.schedule import Kind, Layout, Schedule

from .bsipipe import WHOLE_BACKWARDS
from .concatenation import Precedence, concatenated
from .request import Generator, Request


def make(request: Request) -> Schedule:
    """List scheduling for the request's prices within its budget; activation is held until W.

    It is never slower than bsipipe for the same request: where whole backwards are faster at these prices (little
    of a backward is W, or memory is tight), it is bsipipe's program. Splitting costs what the prices of I and W
    say it costs. Raises Refusal as bsipipe does.
    """
    return concatenated(request, "bsipipe-zb", "seq1f1b-zb", [SPLIT_BACKWARDS, WHOLE_BACKWARDS])


def _urgency(
    layout: Layout, unit: Sequence[int], kind: Kind, stage: int, microbatch: int, subsequence: int
) -> tuple[int, int, int, int, int]:
    direction = layout.direction_of[microbatch]
    if kind == "I":
        return (0, unit[microbatch], -subsequence, -stage, direction)
    if kind == "F":
        second_leg = 2 * stage >= layout.num_stages
        return (1, 2 * unit[microbatch] + (not second_leg), subsequence, stage, direction)
    return (2, unit[microbatch], subsequence, stage, direction)


SPLIT_BACKWARDS = Precedence(("F", "I", "W"), _urgency)
"""Gradients go before forwards, what deepens a unit before what begins one, and W fills the time that is left."""

BSIPIPE_ZB = Generator(
    "bsipipe-zb",
    "bsipipe with I and W where that is faster: next to no idle time from a little more budget on",
    "2610.14935",
    make,
    stages_per_device=2,
    cuts=True,
    directions=2,
    budgeted=True,
)
