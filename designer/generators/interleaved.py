"""Interleaved 1F1B (2104.04473): several stages on each device, visited in turn by groups.

Seq1F1B-interleaved (2406.03488): the same over the subsequences of each sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

from contraflow.designer.format.schedule import Action, Schedule

from .fitting import (
    Misfit,
    Rule,
    Shape,
    cut,
    fit,
    in_groups,
    interleaved_group,
    more_stages,
    shape_of,
    whole,
    whole_microbatches,
)
from .request import Generator, Refusal, Request, in_turn, shape_name, straight, travelling


def make_whole(request: Request) -> Schedule:
    """Warm-up of (V-1)P + 2(P-1-d) F on device d, stages in turn by groups of P microbatches.

    Idle 3(P-1)/V; peak min(((V-1)P + 2(P-1) + 1)/V, M).
    Raises Refusal for subsequences, or unless P divides M: the order is defined in groups of P microbatches.
    """
    return _make("interleaved-1f1b", request, (whole_microbatches, _grouped))


def make_cut(request: Request) -> Schedule:
    """The same over subsequences: warm-up of (V-1)G + 2(P-1-d) + k-1 F in groups of G = P of them, or else of Pk.

    Idle 3(P-1)/(Vk); peak min(((V-1)G + 2(P-1) + k)/(Vk), M). With k = 1 it is interleaved-1f1b.
    Raises Refusal unless k divides P and P divides Mk (so G = P), or P divides M (so G = Pk); or where microbatches are
    cut into different numbers of subsequences: the rounds of a group would not fit together.
    """
    most = max(map(len, request.splits))
    if min(map(len, request.splits)) != most:
        raise Refusal(
            "seq1f1b-interleaved cuts every microbatch into as many subsequences as the others: "
            "use seq1f1b with --stages-per-device 1"
        )
    return _make("seq1f1b-interleaved", request, (_grouped,))


def _make(name: str, request: Request, rules: Sequence[Rule]) -> Schedule:
    fit(name, request, rules, (more_stages, cut("seq1f1b"), whole("1f1b")))
    group = interleaved_group(shape_of(request))
    assert group is not None
    num_devices, last = request.num_devices, request.stages_per_device - 1
    layout = request.layout([straight(request)])
    there, back = travelling(layout)
    rounds = [
        (chunk, first) for first in range(0, len(there), group) for chunk in range(request.stages_per_device)
    ]
    lead = last * group + len(request.splits[0]) - 1
    program = []
    for device in range(num_devices):
        forwards, backwards = [], []
        for chunk, first in rounds:
            up, down = chunk * num_devices + device, (last - chunk) * num_devices + device
            forwards += [Action(up, "F", m, q) for m, q in there[first : first + group]]
            backwards += [Action(down, "B", m, q) for m, q in back[first : first + group]]
        program.append(in_turn(forwards, backwards, lead + 2 * (num_devices - 1 - device)))
    return Schedule(shape_name(name, request), layout, tuple(program))


def _grouped(shape: Shape) -> Misfit | None:
    if interleaved_group(shape) is not None:
        return None
    devices, cut = shape.devices, shape.subsequences
    return in_groups(shape, devices // cut if devices % cut == 0 else devices)


INTERLEAVED = Generator(
    "interleaved-1f1b",
    "V stages per device: a V-th of 1f1b's idle time, more memory and messages; P divides M",
    "2104.04473",
    make_whole,
    stages_per_device=2,
    fewest_microbatches=lambda num_devices: num_devices,
)
SEQ1F1B_INTERLEAVED = Generator(
    "seq1f1b-interleaved",
    "interleaved-1f1b over subsequences: a k-th of its idle time, and less memory",
    "2406.03488",
    make_cut,
    stages_per_device=2,
    cuts=True,
)
