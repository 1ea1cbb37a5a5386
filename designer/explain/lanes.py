"""What a timeline's nodes send to other devices, lane by lane, in the order in which the lanes carry it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from contraflow.designer.costs.prices import Prices
from contraflow.designer.format.graph import NONE
from contraflow.designer.simulate import Timeline

Lane = tuple[int, int]


class Message(NamedTuple):
    """It occupies its lane, from device to device, for its transfer; a latency later it is there."""

    lane: Lane
    latency: float
    transfer: float


def messages(timeline: Timeline) -> list[Message | None]:
    """What each compute sends to another device, if it does."""
    graph, prices = timeline.graph, timeline.prices
    device, slot, transfer = graph.device, graph.slot, prices.transfer
    # Most are alike, and making one costs more than finding it.
    alike: dict[tuple[int, int, float], Message] = {}
    found: list[Message | None] = [None] * len(graph.actions)
    for node, target in enumerate(graph.consumer):
        if target == NONE or device[node] == device[target]:
            continue
        key = (device[node], device[target], transfer[slot[node]])
        message = alike.get(key)
        if message is None:
            message = alike[key] = _message(prices, *key)
        found[node] = message
    return found


def _message(prices: Prices, source: int, target: int, price: float) -> Message:
    latency, slowness = prices.network.link(source, target)
    return Message((source, target), latency, slowness * price)


def ahead(timeline: Timeline, sent: Sequence[Message | None]) -> list[int]:
    """Of each compute, the one whose message kept its own waiting in their lane; NONE where it left at once."""
    end = timeline.end
    found = [NONE] * len(end)
    if timeline.prices.free_messages:
        return found
    lanes: dict[Lane, tuple[int, float]] = {}
    for node, message in enumerate(sent):
        if message is not None:
            lane, _, transfer = message
            before, free = lanes.get(lane, (NONE, 0.0))
            leaves = end[node]
            if free > leaves:
                found[node], leaves = before, free
            lanes[lane] = node, leaves + transfer
    return found


def reductions(timeline: Timeline) -> dict[Lane, list[tuple[int, Message]]]:
    """The REDUCE_GRADs that send, each from its device to the stage's owner, in the order in which they leave."""
    graph, prices, lanes = timeline.graph, timeline.prices, dict[Lane, list[tuple[int, Message]]]()
    posted = [node for node, slot in enumerate(graph.slot) if slot == NONE]
    for node in sorted(posted, key=lambda node: (timeline.start[node], node)):
        stage = graph.actions[node].stage
        here, owner = graph.device[node], graph.layout.owners[stage]
        if here != owner:
            message = _message(prices, here, owner, prices.reduction[stage])
            lanes.setdefault(message.lane, []).append((node, message))
    return lanes


def last_copies(timeline: Timeline) -> dict[int, int]:
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
