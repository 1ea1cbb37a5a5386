"""Why a timeline is as long as it is: what every action waited for, the critical path, and idle time by its causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from .costs.prices import Prices, activation
from .format.graph import NONE, Graph
from .simulate import Timeline, simulate

Why = Literal["order", "input", "queue", "reduction"]
"""`order`: the action before it on its device. `input`: what made its input, and the message's way. `queue`: its
message waited in its lane behind that of another action. `reduction`: gradients of another copy, or those ahead."""

CAUSES = ("start-up", "drain", "data", "communication", "imbalance", "memory gate")


class Link(NamedTuple):
    """What `node` waited for: it could not start, or its message not leave, before that of `waited_for` was done."""

    node: int
    waited_for: int
    why: Why


@dataclass(frozen=True, slots=True)
class Idle:
    """One device's idle time by cause, on the timeline's clock; the causes add up to all of it.

    start-up: before its first action. drain: after its last. In between it waits for an input:
    communication: while that is on its way or queues in its lane;
    memory gate: while the next forward of the device's program is ready, but would hold more than the limit;
    imbalance: what of the other waiting goes away if each kind of action takes its mean time everywhere;
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


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of every node of the timeline's graph: what bound its start, and how much later it could be."""

    timeline: Timeline
    binding: Sequence[int]
    """Node that the start waited for last, of a REDUCE_GRAD its end; NONE where nothing was waited for."""
    ahead: Sequence[int]
    """Node whose message was in front of this node's in their lane, and kept it waiting; else NONE."""
    floats: Sequence[float]
    """The delay that each node bears without a longer makespan."""
    critical: tuple[Link, ...]
    """A chain of waits from the makespan back to time zero: its last link's `waited_for` starts at zero.

    All its actions have a float of 0, but for those whose message or gradients then waited for others.
    """
    idle: tuple[Idle, ...]

    def why(self, node: int) -> Why:
        """How `node` is bound to `binding[node]`."""
        return _why(self.timeline.graph, self.binding, node)

    def chain(self, node: int) -> Iterator[Link]:
        """From `node` back to time zero, each link's `waited_for` being the `node` of the next."""
        while self.binding[node] != NONE:
            link = Link(node, self.binding[node], self.why(node))
            yield link
            node = link.waited_for
            if link.why == "input":
                while self.ahead[node] != NONE:
                    yield Link(node, self.ahead[node], "queue")
                    node = self.ahead[node]


def explain(timeline: Timeline, limit: float | None = None) -> Explanation:
    """Explain a timeline, in a few passes over its nodes.

    `limit` is the activation that a device may hold, in whole microbatches through its share: what the memory gate is
    held against. Without one it is what each device holds at most.
    """
    graph = timeline.graph
    ahead = _ahead(timeline)
    binding = _bindings(timeline)
    explanation = Explanation(timeline, binding, ahead, _floats(timeline), (), ())
    last = max(range(len(graph.actions)), key=lambda node: (timeline.end[node], -node), default=NONE)
    critical = tuple(explanation.chain(last)) if last != NONE else ()
    return replace(explanation, critical=critical, idle=_idle(timeline, limit))


def _why(graph: Graph, binding: Sequence[int], node: int) -> Why:
    source = binding[node]
    if graph.slot[node] == NONE and graph.slot[source] == NONE:
        return "reduction"
    # Where a device's own product is its next action's input, the order alone already binds it.
    return "order" if graph.device[source] == graph.device[node] else "input"


def _previous(graph: Graph) -> list[int]:
    """The compute before each node on its device."""
    found = [NONE] * len(graph.actions)
    for low, high in pairwise(graph.first):
        before = NONE
        for node in range(low, high):
            found[node] = before
            if graph.slot[node] != NONE:
                before = node
    return found


def _bindings(timeline: Timeline) -> list[int]:
    graph, start, end, arrival = timeline.graph, timeline.start, timeline.end, timeline.arrival
    binding = _previous(graph)
    for node, before in enumerate(binding):
        source = graph.producer[node]
        if source != NONE and arrival[source] > (0.0 if before == NONE else end[before]):
            binding[node] = source
        elif before != NONE and not start[node] and not end[before]:
            # What costs nothing at time zero keeps nobody waiting.
            binding[node] = NONE
    for order, owner_of in _reduction_lanes(timeline).values():
        free = 0.0
        for before, node in pairwise([NONE, *order]):
            if before != NONE and free > start[node]:
                binding[node] = before
            free = max(free, start[node]) + _reduction(timeline, node, owner_of)
    for node, copy in _last_copies(timeline).items():
        if end[copy] > start[node]:
            binding[node] = copy
    return binding


def _message(timeline: Timeline, node: int) -> tuple[float, float] | None:
    """Latency and transfer of what a node sends to another device, if it does."""
    graph, prices = timeline.graph, timeline.prices
    target = graph.consumer[node]
    if target == NONE or graph.device[target] == graph.device[node]:
        return None
    latency, slowness = prices.network.link(graph.device[node], graph.device[target])
    return latency, slowness * prices.transfer[graph.slot[node]]


def _ahead(timeline: Timeline) -> list[int]:
    """Of each node, the node whose message kept its own waiting in their lane."""
    graph, ahead = timeline.graph, [NONE] * len(timeline.graph.actions)
    if timeline.prices.free_messages:
        return ahead
    lanes: dict[tuple[int, int], tuple[int, float]] = {}
    for node in range(len(graph.actions)):
        message = _message(timeline, node)
        if message is not None:
            lane = (graph.device[node], graph.device[graph.consumer[node]])
            before, free = lanes.get(lane, (NONE, 0.0))
            if free > timeline.end[node]:
                ahead[node] = before
            lanes[lane] = node, timeline.arrival[node] - message[0]
    return ahead


Lanes = dict[tuple[int, int], tuple[list[int], int]]


def _reduction_lanes(timeline: Timeline) -> Lanes:
    """The REDUCE_GRADs that send, lane by lane in the order in which they leave, with the lane's owner."""
    graph, lanes = timeline.graph, Lanes()
    posted = [node for node, slot in enumerate(graph.slot) if slot == NONE]
    for node in sorted(posted, key=lambda node: (timeline.start[node], node)):
        here, owner = graph.device[node], graph.layout.owners[graph.actions[node].stage]
        if here != owner:
            lanes.setdefault((here, owner), ([], owner))[0].append(node)
    return lanes


def _reduction(timeline: Timeline, node: int, owner: int) -> float:
    """How long a REDUCE_GRAD occupies its lane."""
    graph, prices = timeline.graph, timeline.prices
    slowness = prices.network.link(graph.device[node], owner).slowness
    return slowness * prices.reduction[graph.actions[node].stage]


def _last_copies(timeline: Timeline) -> dict[int, int]:
    """For the REDUCE_GRAD of each owner, that of the copy whose gradients come last."""
    graph = timeline.graph
    owners: dict[int, int] = {}
    copies: dict[int, int] = {}
    for node, slot in enumerate(graph.slot):
        if slot == NONE:
            stage = graph.actions[node].stage
            if graph.device[node] == graph.layout.owners[stage]:
                owners[stage] = node
            elif stage not in copies or timeline.end[node] > timeline.end[copies[stage]]:
                copies[stage] = node
    return {owners[stage]: copy for stage, copy in copies.items() if stage in owners}


def _floats(timeline: Timeline) -> list[float]:
    """From the end backwards: how late each node may start, with every lane in the order that it had."""
    graph, start, end, makespan = timeline.graph, timeline.start, timeline.end, timeline.makespan
    latest = [makespan] * len(graph.actions)
    """Of a compute its end, of a REDUCE_GRAD its being posted."""
    for order, owner in _reduction_lanes(timeline).values():
        free = makespan
        for node in reversed(order):
            latency = timeline.prices.network.link(graph.device[node], owner).latency
            free = min(free, makespan - latency) - _reduction(timeline, node, owner)
            latest[node] = free
    floats = [0.0] * len(graph.actions)
    next_start = [makespan] * graph.layout.num_devices
    lanes: dict[tuple[int, int], float] = {}
    for node in reversed(graph.order):
        here = graph.device[node]
        if graph.slot[node] == NONE:
            floats[node] = latest[node] - start[node]
            # It is posted when the compute before it has ended, whenever that is.
            next_start[here] = min(next_start[here], latest[node])
            continue
        by = min(latest[node], next_start[here])
        message = _message(timeline, node)
        if message is not None:
            target = graph.consumer[node]
            latency, transfer = message
            lane = (here, graph.device[target])
            wanted = start[target] + floats[target] - latency
            by = min(by, min(wanted, lanes.get(lane, makespan)) - transfer)
            lanes[lane] = min(wanted, lanes.get(lane, makespan)) - transfer
        floats[node] = by - end[node]
        next_start[here] = start[node] + floats[node]
    return [0.0 if abs(value) < 1e-9 * makespan else value for value in floats]


def _idle(timeline: Timeline, limit: float | None) -> tuple[Idle, ...]:
    found = _waits(timeline, limit)
    if not any(idle.data for idle in found):
        return found
    even = _waits(simulate(timeline.graph, _evened(timeline.prices)), limit)
    evened = []
    for idle, other in zip(found, even, strict=True):
        imbalance = max(idle.data - other.data, 0.0)
        # What rounding leaves of a difference is none.
        imbalance = 0.0 if imbalance < 1e-9 * timeline.makespan else imbalance
        evened.append(replace(idle, data=idle.data - imbalance, imbalance=imbalance))
    return tuple(evened)


def _evened(prices: Prices) -> Prices:
    """Every action of a kind at the mean of its kind."""

    def mean(table: Sequence[float]) -> list[float]:
        return [sum(table) / len(table)] * len(table)

    return replace(
        prices,
        forward=mean(prices.forward),
        backward=mean(prices.backward),
        backward_input=mean(prices.backward_input),
        backward_weight=mean(prices.backward_weight),
    )


def _waits(timeline: Timeline, limit: float | None) -> tuple[Idle, ...]:
    """Idle time without a thought of imbalance."""
    graph, start, end, arrival = timeline.graph, timeline.start, timeline.end, timeline.arrival
    held = activation(graph.layout)
    found = []
    for low, high in pairwise(graph.first):
        nodes = [node for node in range(low, high) if graph.slot[node] != NONE]
        if not nodes:
            found.append(Idle(timeline.makespan, 0.0, 0.0, 0.0, 0.0, 0.0))
            continue
        levels = _levels(graph, nodes, held)
        room = (max(levels, default=0.0) if limit is None else limit) + 1e-9
        data = communication = gated = 0.0
        coming = _next_forwards(graph, nodes)
        for index in range(1, len(nodes)):
            node, free = nodes[index], end[nodes[index - 1]]
            if start[node] <= free:
                continue
            made = min(max(end[graph.producer[node]], free), start[node])
            communication += start[node] - made
            ready = made
            forward = coming[index]
            if forward != NONE and levels[index - 1] + held[graph.slot[forward]] > room:
                source = graph.producer[forward]
                ready = min(max(0.0 if source == NONE else arrival[source], free), made)
            gated += made - ready
            data += ready - free
        idle_end = timeline.makespan - end[nodes[-1]]
        found.append(Idle(start[nodes[0]], idle_end, data, communication, 0.0, gated))
    return tuple(found)


def _levels(graph: Graph, nodes: Sequence[int], held: Sequence[float]) -> list[float]:
    """Activation held once each node has run."""
    level, levels = 0.0, []
    for node in nodes:
        kind, slot = graph.actions[node].kind, graph.slot[node]
        if kind == "F":
            level += held[slot]
        elif kind != "I":
            level -= held[slot]
        levels.append(level)
    return levels


def _next_forwards(graph: Graph, nodes: Sequence[int]) -> list[int]:
    """For each node that is no forward, the next forward behind it."""
    found, coming = [NONE] * len(nodes), NONE
    for index in range(len(nodes) - 1, -1, -1):
        if graph.actions[nodes[index]].kind == "F":
            coming = nodes[index]
        else:
            found[index] = coming
    return found
