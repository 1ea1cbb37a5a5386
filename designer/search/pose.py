"""A schedule, its prices and a cap as a problem: the jobs, and the sequence that the schedule gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from contraflow.designer.costs.prices import Prices
from contraflow.designer.design import Preview
from contraflow.designer.format.graph import NONE, Graph, build, waits
from contraflow.designer.format.lowering import with_reductions
from contraflow.designer.format.schedule import Layout, Schedule
from contraflow.designer.simulate import simulate

from .judge import SLACK, Judge
from .problem import NO_LANE, Link, Problem

FINEST = 10**6
"""The most parts into which a clock's unit is cut so that all prices are whole; beyond it they are rounded."""

TICKS = 10**7
"""Of a makespan, where prices are rounded (down, so that what is proven of ticks holds)."""

BYTES = 1024
"""In which memory is counted where the cap is in bytes."""


def pose(judge: Judge, shown: Preview) -> tuple[Problem, list[int]]:
    """The problem of a schedule, and its sequence. Raises CostError for a cap in bytes where the costs know of none."""
    schedule = computes(shown.schedule)
    layout, graph, prices = schedule.layout, build(schedule), shown.timeline.prices
    tick = _tick(prices, shown.makespan)
    tables = prices.durations()
    links, messages = _links(graph, prices, tick)
    opens, closes = _memory(judge, shown, graph)
    followers: list[list[Link]] = [[] for _ in links]
    for job, entries in enumerate(links):
        for source, delay in entries:
            followers[source].append((job, delay))
    problem = Problem(
        layout=layout,
        actions=graph.actions,
        device=graph.device,
        duration=[
            _ticks(tables[action.kind][slot], tick)
            for action, slot in zip(graph.actions, graph.slot, strict=True)
        ],
        waits=links,
        followers=followers,
        lane=[message.lane for message in messages],
        transfer=[message.transfer for message in messages],
        latency=[message.latency for message in messages],
        rest=_rest(schedule, graph, prices, tick),
        opens=opens,
        closes=closes,
        unit=_units(layout, graph),
        room=[0] * layout.num_devices,
        tick=tick,
    )
    start, place = simulate(graph, prices).start, {node: index for index, node in enumerate(graph.order)}
    sequence = sorted(place, key=lambda job: (start[job], place[job]))
    return replace(problem, room=room(judge, shown, problem.peaks(sequence))), sequence


def computes(schedule: Schedule) -> Schedule:
    """The schedule without its reductions."""
    program = tuple(
        tuple(action for action in actions if action.kind != "REDUCE_GRAD") for actions in schedule.program
    )
    return replace(schedule, program=program)


def room(judge: Judge, shown: Preview, peaks: Sequence[int]) -> list[int]:
    """By device: what jobs may take up so that the device keeps within the cap, told from a program and its peaks.

    In bytes a device holds more than is counted by job (messages, gradients of keys and values, what an action needs
    for itself): as much as there was beside a device's jobs is set aside.
    """
    if not judge.cap.in_bytes:
        return [int(judge.cap.amount * _whole(shown.schedule.layout) * (1 + SLACK) + SLACK)] * len(peaks)
    return [
        int((judge.cap.amount - held) // BYTES) + peak
        for held, peak in zip(judge.held(shown), peaks, strict=True)
    ]


def _whole(layout: Layout) -> float:
    """Tokens, counted once for every stage, of a whole microbatch through a device's share."""
    return layout.longest * layout.num_stages / layout.num_devices


def _tick(prices: Prices, makespan: float) -> float:
    """Such that all prices are whole where that can be, else a small part of the makespan."""
    network, parts = prices.network, 1
    values = {cost for table in prices.durations().values() for cost in table}
    values |= {link.slowness * cost for link in network.links for cost in prices.transfer}
    values |= {link.slowness * cost for link in network.links for cost in prices.reduction}
    for value in values | {link.latency for link in network.links}:
        fraction = Fraction(value).limit_denominator(FINEST)
        parts = lcm(parts, fraction.denominator)
        if parts > FINEST or abs(float(fraction) - value) > SLACK * value:
            return makespan / TICKS or 1.0
    return 1 / parts


def _ticks(time: float, tick: float) -> int:
    return int(time / tick + 1e-6)


class _Message(NamedTuple):
    lane: int = NO_LANE
    transfer: int = 0
    latency: int = 0


def _links(graph: Graph, prices: Prices, tick: float) -> tuple[list[list[Link]], list[_Message]]:
    """What every job waits for, and the message that it sends."""
    numbers: dict[tuple[int, int], int] = {}
    messages = [_Message()] * len(graph.actions)
    found: list[list[Link]] = []
    for node, here in enumerate(graph.device):
        links: list[Link] = []
        for source in waits(graph, node):
            there, delay = graph.device[source], 0
            if there != here and not prices.free_messages:
                latency, slowness = prices.network.link(there, here)
                transfer = _ticks(slowness * prices.transfer[graph.slot[source]], tick)
                lane = numbers.setdefault((there, here), len(numbers))
                messages[source] = _Message(lane, transfer, _ticks(latency, tick))
                delay = transfer + messages[source].latency
            links.append((source, delay))
        found.append(links)
    return found, messages


def _rest(schedule: Schedule, graph: Graph, prices: Prices, tick: float) -> list[int]:
    """The way of a stage's gradients to their owner, behind every backward that may be the stage's last."""
    layout, found = schedule.layout, [0] * len(graph.actions)
    if not any(prices.reduction):
        return found
    reduced = {
        (device, action.stage)
        for device, program in enumerate(with_reductions(schedule).program)
        for action in program
        if action.kind == "REDUCE_GRAD"
    }
    for node, action in enumerate(graph.actions):
        here, owner = graph.device[node], layout.owners[action.stage]
        if action.kind in ("B", "W") and here != owner and (here, action.stage) in reduced:
            latency, slowness = prices.network.link(here, owner)
            found[node] = _ticks(latency + slowness * prices.reduction[action.stage], tick)
    return found


def _memory(judge: Judge, shown: Preview, graph: Graph) -> tuple[list[int], list[int]]:
    """What jobs take up and give back: in tokens, from F to B or W; in bytes, from F to B or I and from I to W."""
    opens, closes = [0] * len(graph.actions), [0] * len(graph.actions)
    layout = graph.layout
    if judge.cap.in_bytes:
        judge.held(shown)  # where the costs know of no bytes, it says so
        footprint = shown.footprint
        assert footprint is not None
        parts = zip(footprint.activations, footprint.logits, footprint.key_values, strict=True)
        held = [round(sum(part) / BYTES) for part in parts]
        deferred = [round(size / BYTES) for size in footprint.deferred]
    else:
        held = deferred = [length for split in layout.splits for length in split] * layout.num_stages
    for forward, backward, weight, size, kept in zip(
        graph.forward, graph.backward, graph.weight, held, deferred, strict=True
    ):
        opens[forward] = size
        if weight == NONE:
            closes[backward] = size
        elif judge.cap.in_bytes:
            closes[backward], opens[backward], closes[weight] = size, kept, kept
        else:
            closes[weight] = size
    return opens, closes


def _units(layout: Layout, graph: Graph) -> list[int]:
    """One microbatch of every direction makes a unit."""
    unit = [0] * layout.num_microbatches
    for direction in layout.directions:
        for index, microbatch in enumerate(direction.microbatches):
            unit[microbatch] = index
    return [unit[action.microbatch or 0] for action in graph.actions]
