"""A measured step laid over the predicted one: which actions took longer, and what was waited for longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from operator import add, sub
from typing import NamedTuple

from .difference import difference
from .format.graph import NONE, Graph
from .format.schedule import Action, Schedule
from .format.trace import Delivery, Span, Times, Trace
from .simulate import Timeline


class OverlayError(ValueError):
    """A trace that is not of the schedule; the one-line message says what differs first."""


class Compared(NamedTuple):
    """Seconds predicted and measured of one thing: an action, all actions of a kind, a device's idle time, ..."""

    predicted: float
    measured: float

    @property
    def excess(self) -> float:
        """How much longer it took than predicted."""
        return self.measured - self.predicted

    @property
    def ratio(self) -> float | None:
        """Measured to predicted; None where nothing was predicted."""
        return self.measured / self.predicted if self.predicted else None


class Compute(NamedTuple):
    """One action's own time."""

    device: int
    action: Action
    time: Compared


class Wait(NamedTuple):
    """A device's idle time right before one of its actions, and what made the input that came from another device.

    What the time has more than predicted is the sum of three parts.
    """

    device: int
    action: Action
    time: Compared
    source: Action | None
    """None where the input, if any, was made on the device itself."""
    late: float
    """That `source` was done so much later, after this device had become free."""
    way: float
    """That its message took so much longer, from there on."""
    own: float
    """That the device itself let time pass, not waiting for any message."""


class Device(NamedTuple):
    """A device's computing, and its idling from the begin of the step to the end of its last action."""

    busy: Compared
    idle: Compared


@dataclass(frozen=True, slots=True)
class Overlay:
    """All comparisons of a step; computes and waits device after device in program order."""

    makespan: Compared
    bubble: Compared
    kinds: dict[str, Compared]
    """All of a kind together: F, B, I, W."""
    devices: tuple[Device, ...]
    computes: tuple[Compute, ...]
    waits: tuple[Wait, ...]

    def worst(self, number: int) -> list[Compute]:
        """The actions whose times lie farthest from the prediction, the farthest first."""
        return sorted(self.computes, key=lambda compute: -abs(compute.time.excess))[:number]

    def longest(self, number: int) -> list[Wait]:
        """The waits that exceed the predicted ones by most, the worst first."""
        longer = [wait for wait in self.waits if wait.time.excess > 0]
        return sorted(longer, key=lambda wait: -wait.time.excess)[:number]


def predicted(timeline: Timeline) -> Times:
    """A timeline in the form of a measured step."""
    graph, prices = timeline.graph, timeline.prices
    spans, deliveries = [], []
    free = [0.0] * graph.layout.num_devices
    for node, action in enumerate(graph.actions):
        if graph.slot[node] == NONE:
            continue
        here, source = graph.device[node], graph.producer[node]
        if source != NONE and graph.device[source] != here:
            there, end, arrival = graph.device[source], timeline.end[source], timeline.arrival[source]
            left = max(arrival - prices.network.link(there, here).latency, end)
            taken = max(arrival, free[here])
            deliveries.append(
                Delivery(there, here, "data", graph.actions[source], end, left, free[here], taken)
            )
        spans.append(Span(here, action, timeline.start[node], timeline.end[node]))
        free[here] = timeline.end[node]
    deliveries.sort(key=lambda delivery: delivery.sent)
    return Times(tuple(spans), tuple(deliveries))


def check(trace: Trace, schedule: Schedule) -> None:
    """Raises OverlayError where the trace is of another schedule; names and provenance may differ."""
    found = difference(trace.schedule, schedule)
    fields = [field for field in found.fields if field not in ("name", "design")]
    reason = f"its {' and '.join(fields)} differ" if fields else ""
    if not reason and not found.same_program:
        device, position, one, other = next(_parted(trace.schedule, schedule))
        reason = f"action {position} of device {device} was {one}, in the file it is {other}"
    if reason:
        raise OverlayError(f"it is of another schedule, {trace.schedule.name!r}: {reason}")


def _parted(ran: Schedule, written: Schedule) -> Iterator[tuple[int, int, Action | str, Action | str]]:
    for device, programs in enumerate(zip(ran.program, written.program, strict=True)):
        for position, (one, other) in enumerate(zip_longest(*programs, fillvalue="none")):
            if one != other:
                yield device, position, one, other


def overlay(graph: Graph, expected: Times, measured: Times) -> Overlay:
    """Hold two tellings of one step of the graph's schedule against each other."""
    computes = tuple(
        Compute(one.device, one.action, Compared(one.end - one.begin, other.end - other.begin))
        for one, other in zip(expected.spans, measured.spans, strict=True)
    )
    makespan = Compared(expected.makespan, measured.makespan)
    busy = [
        _sum(c.time for c in computes if c.device == device) for device in range(graph.layout.num_devices)
    ]
    return Overlay(
        makespan,
        Compared(
            *(1 - part / (len(busy) * whole or 1) for part, whole in zip(_sum(busy), makespan, strict=True))
        ),
        {
            kind: _sum(c.time for c in computes if c.action.kind == kind)
            for kind in sorted({compute.action.kind for compute in computes})
        },
        tuple(Device(time, Compared(*map(sub, makespan, time))) for time in busy),
        computes,
        tuple(_waits(graph, expected, measured)),
    )


def _sum(times: Iterable[Compared]) -> Compared:
    found = Compared(0.0, 0.0)
    for time in times:
        found = Compared(*map(add, found, time))
    return found


def _waits(graph: Graph, expected: Times, measured: Times) -> Iterator[Wait]:
    """The idle time before each action, and what it needed from another device."""
    nodes = [node for node, slot in enumerate(graph.slot) if slot != NONE]
    ways = [
        {delivery.action: delivery for delivery in times.deliveries if delivery.purpose == "data"}
        for times in (expected, measured)
    ]
    free = [Compared(*(min(span.begin for span in times.spans) for times in (expected, measured)))] * (
        graph.layout.num_devices
    )
    for node, one, other in zip(nodes, expected.spans, measured.spans, strict=True):
        here, source = one.device, graph.producer[node]
        gap = Compared(one.begin - free[here].predicted, other.begin - free[here].measured)
        made = None if source == NONE or graph.device[source] == here else graph.actions[source]
        late = way = 0.0
        if made in ways[0] and made in ways[1]:
            found = [_parts(ways[i][made], free[here][i]) for i in range(2)]
            late, way = Compared(found[0][0], found[1][0]).excess, Compared(found[0][1], found[1][1]).excess
        yield Wait(here, one.action, gap, made, late, way, gap.excess - late - way)
        free[here] = Compared(one.end, other.end)


def _parts(delivery: Delivery, free: float) -> tuple[float, float]:
    """From a device's being free: until the message is sent, and from then until it is taken."""
    sent = max(delivery.sent, free)
    return sent - free, max(delivery.taken - sent, 0.0)
