"""What bound the start of every node, and how much later each could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from contraflow.designer.format.graph import NONE, Graph
from contraflow.designer.simulate import Timeline

from .lanes import Lane, Message, last_copies

Reductions = Mapping[Lane, Sequence[tuple[int, Message]]]


def bindings(timeline: Timeline, reductions: Reductions) -> list[int]:
    """The node that each start waited for last, of a REDUCE_GRAD its end; NONE where nothing was waited for."""
    graph, start, end, arrival = timeline.graph, timeline.start, timeline.end, timeline.arrival
    binding = _previous(graph)
    for node, before in enumerate(binding):
        source = graph.producer[node]
        if source != NONE and arrival[source] > (0.0 if before == NONE else end[before]):
            binding[node] = source
        elif before != NONE and not start[node] and not end[before]:
            # What costs nothing at time zero keeps nobody waiting.
            binding[node] = NONE
    for order in reductions.values():
        free, before = 0.0, NONE
        for node, message in order:
            if free > start[node]:
                binding[node] = before
            free, before = max(free, start[node]) + message.transfer, node
    for node, copy in last_copies(timeline).items():
        if end[copy] > start[node]:
            binding[node] = copy
    return binding


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


def floats(timeline: Timeline, sent: Sequence[Message | None], reductions: Reductions) -> list[float]:
    """From the end backwards: the delay that each node bears, with every lane in the order that it had."""
    graph, start, end, makespan = timeline.graph, timeline.start, timeline.end, timeline.makespan
    device, consumer, slot = graph.device, graph.consumer, graph.slot
    # When a REDUCE_GRAD must be posted at the latest.
    posted: dict[int, float] = {}
    for order in reductions.values():
        free = makespan
        for node, gradients in reversed(order):
            free = min(free, makespan - gradients.latency) - gradients.transfer
            posted[node] = free
    found = [0.0] * len(graph.actions)
    next_start = [makespan] * graph.layout.num_devices
    lanes: dict[Lane, float] = {}
    for node in reversed(graph.order):
        here = device[node]
        if slot[node] == NONE:
            latest = posted.get(node, makespan)
            found[node] = latest - start[node]
            # It is posted when the compute before it has ended, whenever that is.
            next_start[here] = min(next_start[here], latest)
            continue
        by = next_start[here]
        message = sent[node]
        if message is not None:
            lane, latency, transfer = message
            target = consumer[node]
            leaves = start[target] + found[target] - latency
            if lane in lanes and lanes[lane] < leaves:
                leaves = lanes[lane]
            leaves -= transfer
            lanes[lane] = leaves
            if leaves < by:
                by = leaves
        found[node] = by - end[node]
        next_start[here] = start[node] + found[node]
    return [0.0 if abs(value) < 1e-9 * makespan else value for value in found]
