"""V-Half and V-Min (2405.15362): a V whose memory is set by how fast a microbatch travels.

A *building block* says when one microbatch runs on each device. Repeated at an interval of six slots (the F, I and W
of two stages), it is the steady state of a pipeline, and an activation's lifespan over the interval is how many a
device holds. Squeezed, each device keeps that order of F and I, and W fills what is left.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import accumulate, chain

from contraflow.designer.format.schedule import Action, Kind, Layout, Schedule

from .request import Generator, Request, shape_name
from .v_shaped import one_v

INTERVAL = 6


@dataclass(frozen=True, slots=True)
class Block:
    """How many slots each F and I of one microbatch starts after the one before it.

    `legs`: from device to device, on the way of F there and back and of I there and back. `turns`: between the legs,
    where both are on one device. The legs that visit a stage with F and with I are legs[0] and legs[3], or legs[1]
    and legs[2]: where both pairs add up to a, the two activations of a device live for 2a(P-1) slots and the turns,
    which is about aP/6 whole microbatches, on every device alike. No two F or I of a device may fall into the same
    slot of an interval: the turns see to that.
    """

    legs: tuple[int, int, int, int]
    turns: tuple[int, int, int]

    def starts(self, num_devices: int) -> list[int]:
        """Slots of F of stages 0..2P-1, then of I of stages 2P-1..0."""
        first, *others = ([leg] * (num_devices - 1) for leg in self.legs)
        steps = (([turn], leg) for turn, leg in zip(self.turns, others, strict=True))
        return [*accumulate(chain([0], first, *chain.from_iterable(steps)))]


def _v_min(request: Request) -> Schedule:
    """Idle 2(P-1) - 1/2 per device whatever M (none with one device); peak min((P+4)//3, M). Raises Refusal."""
    # Where 3 divides P the slots of F and of I would coincide without a longer turn.
    long_turn = 1 if request.num_devices % 3 else 3
    block = Block((1, 1, 1, 1), (long_turn, 1, long_turn))
    return _squeezed(request, "v-min", block, (request.num_devices + 4) // 3)


def _v_half(request: Request) -> Schedule:
    """Idle 2P - 3/2 - min(M, peak) per device (none with one device, 1 with two from M = 2 on): half of 1f1b's.

    Peak min((P+2)//2, M). Raises Refusal.
    """
    turn = 1 if request.num_devices % 2 else 4
    block = Block((1, 2, 1, 2), (turn, 2, turn))
    return _squeezed(request, "v-half", block, (request.num_devices + 2) // 2)


def _squeezed(request: Request, name: str, block: Block, peak: int) -> Schedule:
    layout = one_v(request, name)
    starts = block.starts(request.num_devices)
    orders = [_order(layout, device, starts) for device in range(request.num_devices)]
    return Schedule(shape_name(name, request), layout, _with_weights(layout, orders, 2 * peak))


def _order(layout: Layout, device: int, starts: list[int]) -> list[int]:
    """The F and I of a device in their block's order, as jobs: F numbered by slot, then I by slot."""
    num_stages, per_stage = layout.num_stages, layout.num_microbatches
    jobs = []
    for stage in (device, num_stages - 1 - device):
        first = stage * per_stage
        jobs += [(starts[stage], first), (starts[-1 - stage], first + layout.num_slots)]
    return [
        job
        for _, job in sorted(
            (start + INTERVAL * microbatch, job + microbatch)
            for microbatch in range(per_stage)
            for start, job in jobs
        )
    ]


def _with_weights(layout: Layout, orders: list[list[int]], most: int) -> tuple[tuple[Action, ...], ...]:
    """Slot by slot every device runs what is next in its order, or else a W.

    A W also goes before an F that would be one too many to hold. Where none is left for that, the device holds no
    more than its block does at that place, which is less than `most`: so the order never stops.
    """
    num_slots, per_stage = layout.num_slots, layout.slots_per_stage
    kinds: tuple[Kind, ...] = ("F", "I", "W")
    actions = [
        layout.action(stage, kind, microbatch, 0)
        for kind in kinds
        for stage in range(layout.num_stages)
        for microbatch in range(layout.num_microbatches)
    ]
    # The job on another device that each waits for; those of its own device stand before it in the order.
    free = 2 * num_slots
    forth, back = range(num_slots - per_stage), range(num_slots + per_stage, free)
    source = [*[free] * per_stage, *forth, *back, *[free] * per_stage]
    ended = [False] * free + [True]
    program: list[list[Action]] = [[] for _ in orders]
    heads, live = [0] * len(orders), [0] * len(orders)
    without_w: list[deque[int]] = [deque() for _ in orders]
    left = len(actions)
    while left:
        ending = []
        for device, order in enumerate(orders):
            job = order[heads[device]] if heads[device] < len(order) else free
            is_forward = job < num_slots
            if job < free and ended[source[job]] and not (is_forward and live[device] == most):
                heads[device] += 1
                ending.append(job)
                if is_forward:
                    live[device] += 1
                else:
                    without_w[device].append(job + num_slots)
            elif without_w[device]:
                job = without_w[device].popleft()
                live[device] -= 1
            else:
                continue
            program[device].append(actions[job])
            left -= 1
        for job in ending:
            ended[job] = True
    return tuple(map(tuple, program))


V_HALF = Generator(
    "v-half",
    "one V with I and W: half of 1f1b's memory, and half of its idle time",
    "2405.15362",
    _v_half,
    stages_per_device=2,
)
V_MIN = Generator(
    "v-min",
    "one V with I and W: a third of 1f1b's memory, and two thirds of its idle time",
    "2405.15362",
    _v_min,
    stages_per_device=2,
)
