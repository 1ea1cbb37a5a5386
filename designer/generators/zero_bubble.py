"""Zero bubble (2401.10241): backwards in two halves, of which W, on which no device waits, fills what was idle.

ZB-H1 and ZB-H2; and ZB-H1 over the subsequences of each sequence (2406.03488).
"""

from __future__ import annotations

from collections.abc import Callable

from contraflow.designer.format.schedule import Action, Schedule

from .fitting import (
    Misfit,
    Shape,
    at_least,
    cut,
    fit,
    more_stages,
    stages_per_device,
    whole,
    whole_microbatches,
)
from .request import Generator, Request, shape_name, straight, travelling


def make_h1(request: Request) -> Schedule:
    """1f1b with I and W in place of B; on device d each W comes d I later, so that all devices hold as much.

    Idle P-1 + max(0, P-M) per device; peak min(P, M).
    Raises Refusal for subsequences, or more stages per device than one.
    """
    fit("zb-h1", request, (stages_per_device(1), whole_microbatches), (more_stages, cut("seq1f1b-zb")))
    return _make("zb-h1", request, lambda device: request.num_devices - device, lambda device: device)


def make_h2(request: Request) -> Schedule:
    """Warm-up of 2(P-d)-1 F on device d; each W comes 2d I later.

    Idle P-1 per device, all of it before its own first action or behind its last; peak 2P-1 on every device.
    Raises Refusal for subsequences, more stages per device than one, or fewer than 2P-1 microbatches: those would not
    fill the warm-up of the first device, and devices would idle between their actions.
    """
    rules = (stages_per_device(1), whole_microbatches, _enough_for_h2)
    fit("zb-h2", request, rules, (more_stages, cut("seq1f1b-zb"), whole("zb-h1")))
    return _make(
        "zb-h2", request, lambda device: 2 * (request.num_devices - device) - 1, lambda device: 2 * device
    )


def make_seq(request: Request) -> Schedule:
    """seq1f1b with I and W in place of B; on device d each W comes d I later. With k = 1 it is zb-h1.

    Idle (P-1 + max(0, P+k-1 - Mk))/k per device; peak min((P+k-1)/k, M), the same on every device. Where the
    microbatches are cut differently, k is the most subsequences of any, as in seq1f1b.
    Raises Refusal for more stages per device than one.
    """
    fit("seq1f1b-zb", request, (stages_per_device(1),), (more_stages,))
    lead = request.num_devices - 1 + max(map(len, request.splits))
    return _make("seq1f1b-zb", request, lambda device: lead - device, lambda device: device)


def _enough_for_h2(shape: Shape) -> Misfit | None:
    return at_least(shape, 2 * shape.devices - 1)


def _make(name: str, request: Request, ahead: Callable[[int], int], lag: Callable[[int], int]) -> Schedule:
    """`ahead(device)` forwards; then, as long as there are any, an I, the W `lag(device)` behind it, a forward."""
    layout = request.layout([straight(request)])
    there, back = travelling(layout)
    program = []
    for device in range(request.num_devices):
        forwards = [Action(device, "F", m, q) for m, q in there]
        weights = [Action(device, "W", m, q) for m, q in back]
        first, late = ahead(device), lag(device)
        actions = forwards[:first]
        for turn, (m, q) in enumerate(back):
            actions.append(Action(device, "I", m, q))
            if turn >= late:
                actions.append(weights[turn - late])
            if first + turn < len(forwards):
                actions.append(forwards[first + turn])
        actions += weights[max(0, len(weights) - late) :]
        program.append(tuple(actions))
    return Schedule(shape_name(name, request), layout, tuple(program))


ZB_H1 = Generator(
    "zb-h1",
    "1f1b with weight gradients put off: a third of its idle time, P microbatches held on every device",
    "2401.10241",
    make_h1,
)
ZB_H2 = Generator(
    "zb-h2",
    "zb-h1 with nearly twice the memory: devices idle only before their first and after their last action; M >= 2P-1",
    "2401.10241",
    make_h2,
    fewest_microbatches=lambda num_devices: 2 * num_devices - 1,
)
SEQ1F1B_ZB = Generator(
    "seq1f1b-zb",
    "zb-h1 over subsequences: a third of seq1f1b's idle time, its memory on every device",
    "2406.03488",
    make_seq,
    cuts=True,
)
