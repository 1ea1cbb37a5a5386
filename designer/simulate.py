"""The earliest-start timeline of a schedule on a clock, messages and reductions included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from contraflow.designer.costs.prices import Prices
from contraflow.designer.format.graph import NONE, Graph


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device's share of a timeline: `idle` counts from 0 to the makespan; it works from `first` to `last`."""

    busy: float
    idle: float
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """When every node of `graph` starts and ends; a REDUCE_GRAD from being posted to having arrived."""

    graph: Graph
    prices: Prices
    start: Sequence[float]
    end: Sequence[float]
    arrival: Sequence[float]
    """When what a node makes is where it is needed: `end`, and the way of its message where there is one."""
    makespan: float
    devices: tuple[DeviceUse, ...]

    @property
    def bubble(self) -> float:
        """1 - busy / (devices * makespan): idle time as a ratio, from time 0 to the end of the last action."""
        whole = len(self.devices) * self.makespan
        return 1 - sum(use.busy for use in self.devices) / whole if whole else 0.0


def simulate(graph: Graph, prices: Prices) -> Timeline:
    """Every action as early as its waits allow, in O(actions).

    Computes run one after the other on their device. A message leaves when it is made and its lane is free, occupies
    the lane for its transfer and arrives a latency later; reductions likewise, on lanes of their own.
    `graph` must be of an executable program (see check.py): otherwise ValueError.
    """
    if len(graph.order) != len(graph.actions):
        raise ValueError("the program cannot be executed: check it before simulating it")
    count = len(graph.actions)
    start, end, arrival = [0.0] * count, [0.0] * count, [0.0] * count
    free, busy = [0.0] * graph.layout.num_devices, [0.0] * graph.layout.num_devices
    reductions: list[int] = []
    lanes: dict[tuple[int, int], float] = {}
    transfer, tables, network = prices.transfer, prices.durations(), prices.network
    free_messages = prices.free_messages
    actions, device, slot, producer, consumer = (
        graph.actions, graph.device, graph.slot, graph.producer, graph.consumer,
    )  # fmt: skip
    for node in graph.order:
        here = device[node]
        time = free[here]
        table = tables.get(actions[node].kind)
        if table is None:
            reductions.append(node)
            start[node] = time
            continue
        source = producer[node]
        if source != NONE and arrival[source] > time:
            time = arrival[source]
        cost = table[slot[node]]
        start[node] = time
        time += cost
        end[node] = free[here] = time
        busy[here] += cost
        target = consumer[node]
        if free_messages or target == NONE or device[target] == here:
            arrival[node] = time
        else:
            lane = (here, device[target])
            latency, slowness = network.link(*lane)
            lanes[lane] = max(time, lanes.get(lane, 0.0)) + slowness * transfer[slot[node]]
            arrival[node] = lanes[lane] + latency
    _simulate_reductions(graph, prices, reductions, start, end)
    for node in reductions:
        arrival[node] = end[node]
    makespan = max(end, default=0.0)
    uses = []
    for here, (low, high) in enumerate(pairwise(graph.first)):
        nodes = [node for node in range(low, high) if slot[node] != NONE]
        first, last = (start[nodes[0]], end[nodes[-1]]) if nodes else (0.0, 0.0)
        uses.append(DeviceUse(busy[here], makespan - busy[here], first, last))
    return Timeline(graph, prices, start, end, arrival, makespan, tuple(uses))


def _simulate_reductions(
    graph: Graph, prices: Prices, reductions: list[int], start: list[float], end: list[float]
) -> None:
    owners, device = graph.layout.owners, graph.device
    lanes: dict[tuple[int, int], float] = {}
    arrived: dict[int, float] = {}
    for node in sorted(reductions, key=lambda node: (start[node], node)):
        stage = graph.actions[node].stage
        lane = (device[node], owners[stage])
        end[node] = start[node]
        if lane[0] != lane[1]:
            latency, slowness = prices.network.link(*lane)
            lanes[lane] = max(start[node], lanes.get(lane, 0.0)) + slowness * prices.reduction[stage]
            end[node] = lanes[lane] + latency
        arrived[stage] = max(arrived.get(stage, 0.0), end[node])
    for node in reductions:
        stage = graph.actions[node].stage
        if device[node] == owners[stage]:
            end[node] = arrived[stage]
