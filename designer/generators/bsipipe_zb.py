"""BSIPipe with zero-bubble backwards: bsipipe's opposing Vs, units and gate, with every B as I and W.

Nobody has published it; the two halves come from 2610.14935 and 2401.10241.
"""

from __future__ import annotations

from contraflow.designer.format.schedule import Schedule

from . import bsipipe
from .concatenation import concatenated
from .request import Generator, Request
from .urgency import split

RULES = (
    split((5, 10, 0, -2, 3), (10, 24, 13, -1), (-100,)),
    split((5, 10, 0, -2, 0.4, -10), (10, 24, 13, -1), (-100,)),
    split((4.1, 10, 2.2, -2, -0.9, -5.5, 0.2), (10, 23.2, 13, -5, 0, 0, 15.1), (0, 0, 0, 0, 0.3)),
    split((14.8, 10.6, 0, 0, 0, 0, 1.4), (0, 23.9, 13.4, 9.9), (-100, 0, 10.5)),
    split(
        (17, 25.7, -0.5, 1.1, -2.9, -13.2, -1.2),
        (-2.5, 23.9, 13.3, 3.1, 0, 0, -3.9),
        (-101.7, 0, 18.1, 0, -10.4),
    ),
    split(
        (-4.7, 22.7, 21.1, 19.4, 29.7, -7.2, -15.4),
        (30.1, 20.4, 33.5, 7.2, 20.3, 0, -2.8),
        (-1.7, -18.5, -9.5, 0, -5.2),
    ),
    split((14.8, 10.6, 0, 0, 2.5), (2.5, 23.9, 13.4, 0, 0, 0, 5.3), (-100,)),
    split(
        (17, 17.3, 0, 1.1, -2.9, -13.2, 1.4), (-2.5, 23.9, 13.4, 2.6, 0, 0, -3.6), (-100, 0, 10.5, 0, -7.3)
    ),
    split((14.8, 10.6, 0, 0, 0, 0, -4.3), (0, 23.9, 13.4), (-100,)),
    split(
        (17, 26.1, -0.5, 1.1, -1.4, -13.2, -1.2),
        (-4.2, 25, 13.3, 3.1, 0, 0, -3.9),
        (-101.1, 0, 19.1, 0, -10.4),
    ),
    split((14.8, 10.6, 0, 4.4, 0, -1.4, -4.3), (7.8, 23.9, 13.4, 0, 0, 0, 0.4), (-100, 0, 0, 0, -1)),
    split(
        (17, 17.3, -0.5, 1.1, -2.9, -13.2, 1.4),
        (-2.5, 23.9, 13.3, 2.6, 0, 0, -3.6),
        (-100, 0, 10.5, 0, -10.4),
    ),
)
"""Found as bsipipe's were. As a rule W fills what time is left."""


def make(request: Request) -> Schedule:
    """List scheduling for the request's prices within its budget; activation is held until W.

    It is never slower than bsipipe for the same request: where whole backwards are faster at these prices (little
    of a backward is W, or memory is tight), it is bsipipe's program. Splitting costs what the prices of I and W
    say it costs. Raises Refusal as bsipipe does.
    """
    return concatenated(request, "bsipipe-zb", "seq1f1b-zb", RULES, bsipipe.RULES)


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
