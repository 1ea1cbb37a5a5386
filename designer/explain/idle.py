"""Idle time by its causes: of every gap in front of an action, and of every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from contraflow.designer.costs.prices import Prices, activation
from contraflow.designer.format.graph import NONE, Graph
from contraflow.designer.simulate import Timeline, simulate

CAUSES = ("start-up", "drain", "data", "communication", "imbalance", "memory gate")


class Gap(NamedTuple):
    """Why a device was idle right before one of its actions, on the timeline's clock; the parts add up to the gap.

    What is imbalance shows only in a whole device (see Idle): here it is part of `data`.
    """

    start_up: float = 0.0
    data: float = 0.0
    communication: float = 0.0
    memory_gate: float = 0.0

    def by_cause(self) -> dict[str, float]:
        """Those that there are, in the order of CAUSES."""
        values = zip(
            ("start-up", "data", "communication", "memory gate"),
            (self.start_up, self.data, self.communication, self.memory_gate),
            strict=True,
        )
        return {cause: value for cause, value in values if value}


@dataclass(frozen=True, slots=True)
class Idle:
    """One device's idle time by cause, on the timeline's clock; the causes add up to all of it.

    start-up: before its first action. drain: after its last; all of it where there is none.
    In between it waits for an input:
    communication: while that is on its way or queues in its lane;
    memory gate: while the next forward of the device's program is ready, but would hold more than the limit;
    imbalance: what of the other waiting goes away if each kind of action takes its mean time everywhere, not
    counting what then is communication or memory gate;
    data: the rest.
    """

    start_up: float
    drain: float
    data: float
    communication: float
    imbalance: float
    memory_gate: float

    def by_cause(self) -> dict[str, float]:
        """In the order of CAUSES."""
        values = (self.start_up, self.drain, self.data, self.communication, self.imbalance, self.memory_gate)
        return dict(zip(CAUSES, values, strict=True))


def gaps(timeline: Timeline, shut: Sequence[int]) -> dict[int, Gap]:
    """Of each compute that its device was idle before; `shut` as `gate` finds it."""
    graph, start, end, arrival = timeline.graph, timeline.start, timeline.end, timeline.arrival
    slot, producer = graph.slot, graph.producer
    found: dict[int, Gap] = {}
    for low, high in pairwise(graph.first):
        free, begun = 0.0, False
        for node in range(low, high):
            if slot[node] == NONE:
                continue
            begin = start[node]
            if begin > free:
                if begun:
                    # No later than the start: the input has arrived by then.
                    made = max(end[producer[node]], free)
                    ready, forward = made, shut[node]
                    if forward != NONE:
                        source = producer[forward]
                        ready = min(max(0.0 if source == NONE else arrival[source], free), made)
                    found[node] = Gap(0.0, ready - free, begin - made, made - ready)
                else:
                    found[node] = Gap(start_up=begin)
            free, begun = end[node], True
    return found


def gate(graph: Graph, limit: float | None) -> list[int]:
    """Of each node that is no forward, the next forward behind it if that in its place would hold too much; else NONE.

    Too much is more than the limit, in whole microbatches through the device's share; without one, more than the
    device ever holds. Subsequences travel in order, so nothing of its own device keeps that forward waiting.
    """
    held = activation(graph.layout)
    found = [NONE] * len(graph.actions)
    for low, high in pairwise(graph.first):
        # Before each node, and after the last.
        levels, level = [0.0], 0.0
        for node in range(low, high):
            kind, slot = graph.actions[node].kind, graph.slot[node]
            if kind == "F":
                level += held[slot]
            elif kind in ("B", "W"):
                level -= held[slot]
            levels.append(level)
        room = (max(levels) if limit is None else limit) + 1e-9
        coming = NONE
        for node in range(high - 1, low - 1, -1):
            if graph.actions[node].kind == "F":
                coming = node
            elif coming != NONE and levels[node - low] + held[graph.slot[coming]] > room:
                found[node] = coming
    return found


def by_device(timeline: Timeline, found: Mapping[int, Gap], shut: Sequence[int]) -> tuple[Idle, ...]:
    """Every device's idle time by cause, from the gaps in front of its actions."""
    devices = _of_devices(timeline, found)
    even = _evened(timeline.prices)
    if even == timeline.prices or not any(device.data for device in devices):
        return devices
    other = simulate(timeline.graph, even)
    evened = []
    for device, then in zip(devices, _of_devices(other, gaps(other, shut)), strict=True):
        # Waiting that only gets another cause has not gone away.
        renamed = max(then.communication - device.communication, 0.0)
        renamed += max(then.memory_gate - device.memory_gate, 0.0)
        imbalance = device.data - then.data - renamed
        # What rounding leaves of a difference is none.
        imbalance = 0.0 if imbalance < 1e-9 * timeline.makespan else imbalance
        evened.append(replace(device, data=device.data - imbalance, imbalance=imbalance))
    return tuple(evened)


def _of_devices(timeline: Timeline, found: Mapping[int, Gap]) -> tuple[Idle, ...]:
    """Idle time without a thought of imbalance."""
    graph, sums = timeline.graph, [[0.0] * len(Gap._fields) for _ in timeline.devices]
    for node, gap in found.items():
        parts = sums[graph.device[node]]
        for index, part in enumerate(gap):
            parts[index] += part
    devices = []
    for use, (start_up, data, communication, gated) in zip(timeline.devices, sums, strict=True):
        drain = timeline.makespan - use.last
        devices.append(Idle(start_up, drain, data, communication, 0.0, gated))
    return tuple(devices)


def _evened(prices: Prices) -> Prices:
    """Every action of a kind at the mean of its kind; the same prices where they are even."""

    def mean(table: Sequence[float]) -> Sequence[float]:
        # A sum may round what is equal into something else.
        return table if min(table) == max(table) else [sum(table) / len(table)] * len(table)

    return replace(
        prices,
        forward=mean(prices.forward),
        backward=mean(prices.backward),
        backward_input=mean(prices.backward_input),
        backward_weight=mean(prices.backward_weight),
    )
