"""What each device holds over time: activation in microbatches, or all of its memory in bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from itertools import pairwise

from contraflow.designer.costs.footprint import Footprint
from contraflow.designer.costs.prices import activation
from contraflow.designer.format.graph import NONE, Graph
from contraflow.designer.format.schedule import Action

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
        return sum(getattr(self, field.name) for field in fields(self))


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

    A sent tensor stays until it has arrived, and until its receive was posted: credits as in lowering.py. Gradients
    for an owner are held from its REDUCE_GRAD to the end of the pass, where the timeline has one; new weights for a
    copy stand beside the old ones for a moment after it.
    """
    graph = timeline.graph
    lanes = _lanes(graph)
    left = _left(footprint)
    return tuple(
        _Walk(timeline, footprint, lanes, left, device).curve() for device in range(graph.layout.num_devices)
    )


@dataclass(frozen=True, slots=True)
class _Lane:
    """Data from one device to another: nodes in the order in which they send, and in which the other takes."""

    senders: list[int]
    takers: list[int]
    credit: int


def _lanes(graph: Graph) -> dict[tuple[int, int], _Lane]:
    device, producer, consumer = graph.device, graph.producer, graph.consumer
    sent: dict[tuple[int, int], list[int]] = defaultdict(list)
    taken: dict[tuple[int, int], list[int]] = defaultdict(list)
    place = [0] * len(device)
    ahead: dict[tuple[int, int], int] = {}
    for node, target in enumerate(consumer):
        if target != NONE and device[target] != device[node]:
            senders = sent[device[node], device[target]]
            place[node] = len(senders)
            senders.append(node)
    for node, source in enumerate(producer):
        if source != NONE and device[source] != device[node]:
            lane = device[source], device[node]
            takers = taken[lane]
            ahead[lane] = max(ahead.get(lane, 1), place[source] - len(takers) + 1)
            takers.append(node)
    return {lane: _Lane(senders, taken[lane], ahead[lane]) for lane, senders in sent.items()}


def _left(footprint: Footprint) -> Mapping[str, Sequence[float]]:
    """By kind and slot: how much more is kept after an action than before, beside messages."""
    forward, backward, deferring, weight = [], [], [], []
    for activations, logits, deferred, key_values, owed in zip(
        footprint.activations,
        footprint.logits,
        footprint.deferred,
        footprint.key_values,
        footprint.owed,
        strict=True,
    ):
        opened = activations + logits
        forward.append(opened + key_values)
        backward.append(owed - opened - key_values)
        deferring.append(owed - opened - key_values + deferred)
        weight.append(-deferred)
    return {"F": forward, "B": backward, "I": deferring, "W": weight}


class _Walk:
    """One device's program, from action to action."""

    def __init__(
        self,
        timeline: Timeline,
        footprint: Footprint,
        lanes: Mapping[tuple[int, int], _Lane],
        left: Mapping[str, Sequence[float]],
        device: int,
    ) -> None:
        self.timeline, self.footprint, self.left, self.device = timeline, footprint, left, device
        self.nodes = range(timeline.graph.first[device], timeline.graph.first[device + 1])
        self.static = (
            footprint.weights[device] + footprint.gradients[device] + footprint.optimizer[device] + footprint.batch
        )
        self.at_first, self.asked, self.gone = 0.0, dict[int, float](), dict[int, float]()
        for (source, target), lane in lanes.items():
            if target == device:
                self._receives(lane)
            if source == device:
                self._sends(lane)
        self.receives, self.returned = self._reductions()

    def _receives(self, lane: _Lane) -> None:
        """`at_first`: what is asked for before anything was taken. `asked`: what each take makes room to ask for."""
        message, slot = self.footprint.message, self.timeline.graph.slot
        sizes = [message[slot[node]] for node in lane.senders]
        self.at_first += sum(sizes[: lane.credit])
        self.asked.update(zip(lane.takers, sizes[lane.credit :], strict=False))

    def _sends(self, lane: _Lane) -> None:
        """`gone`: when each node's tensor has left, for which its receive must be posted."""
        starts = [self.timeline.start[node] for node in lane.takers]
        posted = [0.0] * lane.credit + starts
        for node, time in zip(lane.senders, posted, strict=False):
            self.gone[node] = max(self.timeline.arrival[node], time)

    def _reductions(self) -> tuple[dict[int, float], float]:
        """What this device receives of each stage that it owns, and of new weights of those that it does not.

        An embedding that first and last stage share stands as NONE.
        """
        layout, footprint = self.timeline.graph.layout, self.footprint
        receives, returned = dict[int, float](), 0.0
        for stage, (copies, owner) in enumerate(zip(layout.copies, layout.owners, strict=True)):
            if owner == self.device and len(copies) > 1:
                receives[stage] = (len(copies) - 1) * footprint.reduction[stage]
            elif self.device in copies and owner != self.device:
                returned += footprint.returned[stage]
        gradients, weights = footprint.shared
        sharing = {*layout.copies[0], *layout.copies[-1]}
        if layout.owners[0] == self.device and len(sharing) > 1 and gradients:
            receives[NONE] = (len(sharing) - 1) * gradients
        elif self.device in sharing and layout.owners[0] != self.device:
            returned += weights
        return receives, returned

    def curve(self) -> ByteCurve:
        timeline, graph, device = self.timeline, self.timeline.graph, self.device
        message, extra, left = self.footprint.message, self.footprint.extra, self.left
        actions, slots, producers, consumers, devices = (
            graph.actions, graph.slot, graph.producer, graph.consumer, graph.device,
        )  # fmt: skip
        starts, ends, asked, gone, receives = timeline.start, timeline.end, self.asked, self.gone, dict(self.receives)
        # The shared embedding follows the later of the two stages, where this device has both.
        sharing = {stage for stage in (0, graph.layout.num_stages - 1) if device in graph.layout.copies[stage]}
        level = self.static + self.at_first
        times, levels, kept, highest = [0.0], [level], list[float](), list[float]()
        most, peak, before = level, NONE, level
        leaving: list[tuple[float, float]] = []
        for node in self.nodes:
            time, where = starts[node], slots[node]
            while leaving and leaving[0][0] <= time:
                level -= heappop(leaving)[1]
            if where == NONE:
                stage = actions[node].stage
                level += receives.pop(stage, 0.0)
                sharing.discard(stage)
                if not sharing:
                    level += receives.pop(NONE, 0.0)
                top, end = level, time
            else:
                kind, size, end = actions[node].kind, message[where], ends[node]
                source, target = producers[node], consumers[node]
                # What is taken was asked for before, and makes room to ask for the next.
                level += asked.get(node, 0.0)
                top = level + extra[kind][where]
                if top > most:
                    most, peak, before = top, node, level
                level += left[kind][where]
                if source != NONE:
                    level -= size
                if target != NONE:
                    if devices[target] == device:
                        level += size
                    elif gone[node] > end:
                        heappush(leaving, (gone[node], size))
                        level += size
            for moment, height in ((time, top), (end, level)):
                if moment == times[-1]:
                    levels[-1] = height
                else:
                    times.append(moment)
                    levels.append(height)
            kept.append(level)
            highest.append(top)
        # Where the timeline knows of no reductions they come at the end.
        level = max(level + sum(receives.values()), self.static + self.returned)
        if level > most:
            most, peak, before = level, NONE, level
        if timeline.makespan > times[-1]:
            times.append(timeline.makespan)
            levels.append(level)
        action = None if peak == NONE else actions[peak]
        return ByteCurve(times, levels, self._breakdown(peak, before, most), action, kept, highest)

    def _breakdown(self, peak: int, before: float, most: float) -> Breakdown:
        """Of the highest point: what was kept when node `peak` began, what an F leaves, and for the rest transients."""
        graph, footprint, device = self.timeline.graph, self.footprint, self.device
        kept = {name: 0.0 for name in ("activations", "key_values", "owed", "logits", "deferred")}

        def pass_over(node: int) -> None:
            kind, where = graph.actions[node].kind, graph.slot[node]
            if kind in "FBI":
                for name in ("activations", "key_values", "logits"):
                    kept[name] += (1 if kind == "F" else -1) * getattr(footprint, name)[where]
            if kind in "BI":
                kept["owed"] += footprint.owed[where]
            if kind in "IW":
                kept["deferred"] += (1 if kind == "I" else -1) * footprint.deferred[where]

        for node in self.nodes if peak == NONE else range(self.nodes.start, peak):
            if graph.slot[node] != NONE:
                pass_over(node)
        messages = before - self.static - sum(kept.values())
        if peak != NONE and graph.actions[peak].kind == "F":
            pass_over(peak)
            if graph.producer[peak] != NONE:
                messages -= footprint.message[graph.slot[peak]]
        return Breakdown(
            weights=footprint.weights[device],
            gradients=footprint.gradients[device],
            optimizer=footprint.optimizer[device],
            batch=footprint.batch,
            messages=messages,
            transients=most - self.static - sum(kept.values()) - messages,
            **kept,
        )
