"""What each device holds over time: activation in microbatches, or all of its memory in bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from heapq import heappop, heappush
from itertools import chain, pairwise, repeat

from contraflow.designer.costs.footprint import Footprint
from contraflow.designer.costs.prices import activation
from contraflow.designer.format.graph import NONE, Graph
from contraflow.designer.format.schedule import Action, Layout

from .simulate import Timeline


@dataclass(frozen=True, slots=True)
class Curve:
    """A step function: `levels[i]` holds from `times[i]` up to `times[i + 1]`, the last one to the end."""

    times: Sequence[float]
    levels: Sequence[float]

    @property
    def peak(self) -> float:
        return max(self.levels)


def activation_curves(timeline: Timeline) -> tuple[Curve, ...]:
    """One curve per device, in whole microbatches through a device's share (schedule-file.md, "The unit clock").

    An F holds from its start to the end of its B or W (an I releases nothing); at one instant releases come first.
    """
    graph = timeline.graph
    held = activation(graph.layout)
    curves = []
    for low, high in pairwise(graph.first):
        times, levels, level = [0.0], [0.0], 0.0
        # A device's actions follow one another, so program order is the order of these events.
        for node in range(low, high):
            kind, where = graph.actions[node].kind, graph.slot[node]
            if where == NONE or kind == "I":
                continue
            if kind == "F":
                level += held[where]
                time = timeline.start[node]
            else:
                level -= held[where]
                time = timeline.end[node]
            if time == times[-1]:
                levels[-1] = level
            else:
                times.append(time)
                levels.append(level)
        # Sums of fractions such as 1/3 leave a trace of rounding, which is no memory.
        curves.append(Curve(times, [0.0 if abs(level) < 1e-9 else round(level, 12) for level in levels]))
    return tuple(curves)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Bytes of one moment by what they hold."""

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    batch: float = 0.0
    """Token ids and targets."""
    activations: float = 0.0
    key_values: float = 0.0
    owed: float = 0.0
    """Gradients of keys and values, added up over later subsequences."""
    logits: float = 0.0
    """Log-likelihoods between the last stage's F and its B or I."""
    deferred: float = 0.0
    """What I left for W."""
    messages: float = 0.0
    """Sent and not yet gone, asked for and not yet taken, at hand for the next stage, gradients for their owner."""
    transients: float = 0.0
    """What the action that runs needs for itself."""

    @property
    def total(self) -> float:
        return float(sum(getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class ByteCurve(Curve):
    """Bytes on one GPU: of an action its highest point from start to end, between actions what is kept."""

    most: Breakdown
    """At the highest point."""
    action: Action | None
    """What runs there; None where it is the end of the step."""
    kept: Sequence[float]
    """What is left after each action of the device's program."""
    highest: Sequence[float]
    """The highest point of each action of the device's program."""

    @property
    def peak(self) -> float:
        return self.most.total


def byte_curves(timeline: Timeline, footprint: Footprint) -> tuple[ByteCurve, ...]:
    """One curve per device, in O(actions), for a step of one pass on processes of their own.

    A sent tensor stays until it has arrived, for which its receive must have been posted: credits as in lowering.py.
    Received gradients are held from a stage's REDUCE_GRAD, or where the timeline has none from the end, to the end of
    the pass; then new weights come to stand beside the old ones. The update itself needs nothing.
    """
    messages, left = _messages(timeline, footprint), _left(footprint)
    return tuple(
        _curve(timeline, footprint, messages, left, device)
        for device in range(timeline.graph.layout.num_devices)
    )


@dataclass(frozen=True, slots=True)
class _Messages:
    """Receives and sends of data between devices."""

    first: Sequence[float]
    """By device: bytes of the receives that are posted before anything was taken."""
    posted: Sequence[float]
    """By node: bytes of the receive that is posted when the node takes its input."""
    gone: Sequence[float]
    """By node: when what it made has left the device; 0 where that is at once, or nothing is sent."""


def _messages(timeline: Timeline, footprint: Footprint) -> _Messages:
    graph, size = timeline.graph, footprint.message
    device, slot = graph.device, graph.slot
    senders: dict[tuple[int, int], list[int]] = defaultdict(list)
    takers: dict[tuple[int, int], list[int]] = defaultdict(list)
    place = [0] * len(device)
    credits: dict[tuple[int, int], int] = {}
    for node, target in enumerate(graph.consumer):
        if target != NONE and device[target] != device[node]:
            sent = senders[device[node], device[target]]
            place[node] = len(sent)
            sent.append(node)
    for node, source in enumerate(graph.producer):
        if source != NONE and device[source] != device[node]:
            lane = device[source], device[node]
            taken = takers[lane]
            credits[lane] = max(credits.get(lane, 1), place[source] - len(taken) + 1)
            taken.append(node)
    first, posted, gone = [0.0] * graph.layout.num_devices, [0.0] * len(device), [0.0] * len(device)
    for lane, sent in senders.items():
        taken, credit = takers[lane], credits[lane]
        first[lane[1]] += sum(size[slot[node]] for node in sent[:credit])
        for node, later in zip(taken, sent[credit:], strict=False):
            posted[node] = size[slot[later]]
        starts = chain(repeat(0.0, credit), (timeline.start[node] for node in taken))
        for node, ready in zip(sent, starts, strict=False):
            gone[node] = max(timeline.arrival[node], ready)
    return _Messages(first, posted, gone)


def _left(footprint: Footprint) -> Mapping[str, Sequence[float]]:
    """By kind and slot: how much more is kept after an action than before it, messages apart."""
    held = [
        activations + logits + key_values
        for activations, logits, key_values in zip(
            footprint.activations, footprint.logits, footprint.key_values, strict=True
        )
    ]
    backward = [owed - opened for owed, opened in zip(footprint.owed, held, strict=True)]
    return {
        "F": held,
        "B": backward,
        "I": [less + kept for less, kept in zip(backward, footprint.deferred, strict=True)],
        "W": [-kept for kept in footprint.deferred],
    }


def _curve(
    timeline: Timeline,
    footprint: Footprint,
    messages: _Messages,
    left: Mapping[str, Sequence[float]],
    device: int,
) -> ByteCurve:
    graph, message, extra = timeline.graph, footprint.message, footprint.extra
    nodes = range(graph.first[device], graph.first[device + 1])
    actions, slot, producer, consumer, device_of = (
        graph.actions, graph.slot, graph.producer, graph.consumer, graph.device,
    )  # fmt: skip
    starts, ends, posted, gone = timeline.start, timeline.end, messages.posted, messages.gone
    received, returned = _reductions(graph.layout, footprint, device)
    sharing = {stage for stage in (0, graph.layout.num_stages - 1) if device in graph.layout.copies[stage]}
    static = _static(footprint, device)
    level = static.total + messages.first[device]
    times, levels, kept, highest = [0.0], [level], list[float](), list[float]()
    most, peak, before = level, NONE, level
    leaving: list[tuple[float, float]] = []
    for node in nodes:
        time, where = starts[node], slot[node]
        while leaving and leaving[0][0] <= time:
            level -= heappop(leaving)[1]
        if where == NONE:
            stage = actions[node].stage
            sharing.discard(stage)
            # The shared embedding follows the later of its stages.
            level += received.pop(stage, 0.0) + (0.0 if sharing else received.pop(NONE, 0.0))
            top, end = level, time
        else:
            kind, end = actions[node].kind, ends[node]
            # The input itself was posted before, or is at hand.
            level += posted[node]
            top = level + extra[kind][where]
            if top > most:
                most, peak, before = top, node, level
            level += left[kind][where]
            if producer[node] != NONE:
                level -= message[where]
            target = consumer[node]
            if target != NONE:
                if device_of[target] == device:
                    level += message[where]
                elif gone[node] > end:
                    heappush(leaving, (gone[node], message[where]))
                    level += message[where]
            while leaving and leaving[0][0] <= end:
                level -= heappop(leaving)[1]
        if time == times[-1]:
            levels[-1] = top
        else:
            times.append(time)
            levels.append(top)
        if end == time:
            levels[-1] = level
        else:
            times.append(end)
            levels.append(level)
        kept.append(level)
        highest.append(top)
    level = max(level + sum(received.values()), static.total + returned)
    if level > most:
        most, peak, before = level, NONE, level
    if timeline.makespan > times[-1]:
        times.append(timeline.makespan)
        levels.append(level)
    levels[-1] = level
    held = _held(graph, footprint, nodes if peak == NONE else range(nodes.start, peak))
    messages_held = before - static.total - sum(held.values())
    if peak != NONE and actions[peak].kind == "F":
        # Of what it needs, an F leaves the better part, its input included.
        for name in ("activations", "logits", "key_values"):
            held[name] += getattr(footprint, name)[slot[peak]]
        messages_held -= message[slot[peak]] if producer[peak] != NONE else 0.0
    known = replace(static, messages=messages_held, **held)
    breakdown = replace(known, transients=most - known.total)
    return ByteCurve(times, levels, breakdown, None if peak == NONE else actions[peak], kept, highest)


def _static(footprint: Footprint, device: int) -> Breakdown:
    return Breakdown(
        weights=footprint.weights[device],
        gradients=footprint.gradients[device],
        optimizer=footprint.optimizer[device],
        batch=footprint.batch,
    )


def _reductions(layout: Layout, footprint: Footprint, device: int) -> tuple[dict[int, float], float]:
    """What a device receives of gradients, by stage that it owns, and of the new weights of those that it does not.

    An embedding that first and last stage share stands as NONE.
    """
    received, returned = dict[int, float](), 0.0
    for stage, (copies, owner) in enumerate(zip(layout.copies, layout.owners, strict=True)):
        if owner == device:
            received[stage] = (len(copies) - 1) * footprint.reduction[stage]
        elif device in copies:
            returned += footprint.returned[stage]
    gradients, weights = footprint.shared
    sharing = {*layout.copies[0], *layout.copies[-1]}
    if device == layout.owners[0]:
        received[NONE] = (len(sharing) - 1) * gradients
    elif device in sharing:
        returned += weights
    return received, returned


def _held(graph: Graph, footprint: Footprint, nodes: Sequence[int]) -> dict[str, float]:
    """What is kept behind these nodes, the first of a device, by its name in Breakdown."""
    slots: dict[str, list[int]] = {"F": [], "B": [], "I": [], "W": [], "REDUCE_GRAD": []}
    for node in nodes:
        slots[graph.actions[node].kind].append(graph.slot[node])
    back = slots["B"] + slots["I"]

    def difference(table: Sequence[float], opened: Sequence[int], closed: Sequence[int]) -> float:
        return sum(table[where] for where in opened) - sum(table[where] for where in closed)

    return {
        "activations": difference(footprint.activations, slots["F"], back),
        "key_values": difference(footprint.key_values, slots["F"], back),
        "owed": difference(footprint.owed, back, ()),
        "logits": difference(footprint.logits, slots["F"], back),
        "deferred": difference(footprint.deferred, slots["I"], slots["W"]),
    }
