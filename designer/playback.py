"""A timeline played step by step: what every device does at a moment, and what it waits for, in words."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from .design import Preview
from .explain import Span
from .export.axis import figure
from .format.graph import NONE
from .memory import Curve

TOLD = 3
"""Devices of which the narration of a moment tells, where something happens on more."""


@dataclass(frozen=True, slots=True)
class DeviceMoment:
    """What a device does at a moment."""

    device: int
    node: int
    """The action that runs; NONE while it is idle."""
    next: int
    """The action after that, or the one that it is idle before; NONE behind the last."""
    waits_for: int
    """The action that keeps it waiting; NONE while it works, and behind its last action."""
    cause: str
    """Why it is idle, one of CAUSES; "" while it works."""
    until: float
    """When that ends."""
    held: float
    """Activation, in whole microbatches through a device's share."""
    bytes: float | None
    """On each of its GPUs; None where the costs know of no model."""
    sentence: str


@dataclass(frozen=True, slots=True)
class Moment:
    """What all devices do at a moment."""

    time: float
    devices: tuple[DeviceMoment, ...]
    ended: tuple[int, ...]
    """Actions that end at this very time, by device."""
    begun: tuple[int, ...]
    narration: str
    """One line about the devices on which something begins or ends."""


@dataclass(frozen=True)
class Playback:
    """A preview as a film; it can be entered at any time."""

    shown: Preview

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Every time at which an action begins or ends, from 0 on. Those that only rounding tells apart are one."""
        found = sorted(
            {0.0, *(time for program in self._programs for time in (*program.starts, *program.ends))}
        )
        return tuple(time for time, later in pairwise([*found, float("inf")]) if later - time > self._close)

    def next(self, time: float) -> float:
        """The first event after a time; the last one stays."""
        return self.times[min(bisect_right(self.times, time), len(self.times) - 1)]

    def previous(self, time: float) -> float:
        """The last event before a time; the first one stays."""
        return self.times[max(bisect_left(self.times, time) - 1, 0)]

    def next_wait(self, time: float) -> float | None:
        """When next a device begins to wait in the midst of its work; None where none does again."""
        index = bisect_right(self._waits, time)
        return self._waits[index] if index < len(self._waits) else None

    def previous_wait(self, time: float) -> float | None:
        """When last before a time a device began to wait in the midst of its work; None where none did."""
        index = bisect_left(self._waits, time) - 1
        return self._waits[index] if index >= 0 else None

    @cached_property
    def peak(self) -> tuple[float, int]:
        """When and on which device activation is highest for the first time."""
        return min(
            (time, device)
            for device, curve in enumerate(self.shown.curves)
            for time, level in zip(curve.times, curve.levels, strict=True)
            if level == self.shown.peak
        )

    def journey(self, microbatch: int) -> tuple[int, ...]:
        """The actions of a microbatch in the order in which they start."""
        return self._journeys.get(microbatch, ())

    def along(self, node: int, by: int) -> int:
        """From an action `by` further along its microbatch, or back where that is negative; it stops at the ends."""
        microbatch = self.shown.timeline.graph.actions[node].microbatch
        if microbatch is None:
            return node
        journey = self.journey(microbatch)
        return journey[min(max(journey.index(node) + by, 0), len(journey) - 1)]

    @cached_property
    def critical(self) -> frozenset[int]:
        """The actions on the critical path."""
        links = self.shown.explanation.critical
        return frozenset(node for link in links for node in (link.node, link.waited_for))

    def at(self, time: float) -> Moment:
        """What all devices do: what begins at that time runs already, what ends then has ended."""
        devices = tuple(self._device(device, time) for device in range(len(self._programs)))
        ended, begun = [], []
        for program in self._programs:
            ended += program.nodes[_within(program.ends, time - self._close, time)]
            begun += program.nodes[_within(program.starts, time - self._close, time)]
        return Moment(time, devices, tuple(ended), tuple(begun), self._narration(devices, ended, begun))

    # Tables behind the answers.

    @property
    def _close(self) -> float:
        """Times that lie no farther apart are told apart by rounding alone."""
        return 1e-9 * self.shown.makespan

    @cached_property
    def _programs(self) -> tuple[_Program, ...]:
        timeline = self.shown.timeline
        graph, found = timeline.graph, []
        for low, high in pairwise(graph.first):
            nodes = [node for node in range(low, high) if graph.slot[node] != NONE]
            starts, ends = ([table[node] for node in nodes] for table in (timeline.start, timeline.end))
            found.append(_Program(nodes, starts, ends))
        return tuple(found)

    @cached_property
    def _waits(self) -> list[float]:
        """When devices begin to wait between two of their actions."""
        return sorted(
            {
                span.start
                for spans in self.shown.explanation.spans
                for before, span in pairwise((None, *spans))
                if span is not None
                and span.cause not in ("start-up", "drain")
                and (before is None or before.end != span.start or before.node != span.node)
            }
        )

    @cached_property
    def _journeys(self) -> dict[int, tuple[int, ...]]:
        timeline = self.shown.timeline
        found: dict[int, list[int]] = {}
        # Sorting is stable: what starts at one time stays in an order that respects all waits.
        for node in sorted(timeline.graph.order, key=timeline.start.__getitem__):
            microbatch = timeline.graph.actions[node].microbatch
            if microbatch is not None:
                found.setdefault(microbatch, []).append(node)
        return {microbatch: tuple(nodes) for microbatch, nodes in found.items()}

    def _device(self, device: int, time: float) -> DeviceMoment:
        program, timeline = self._programs[device], self.shown.timeline
        index = bisect_right(program.ends, time)
        held = _level(self.shown.curves[device], time)
        size = None if self.shown.memory is None else _level(self.shown.memory[device], time)
        node = program.nodes[index] if index < len(program.nodes) else NONE
        if node != NONE and program.starts[index] <= time:
            following = program.nodes[index + 1] if index + 1 < len(program.nodes) else NONE
            until = program.ends[index]
            said = f"device {device} runs {timeline.graph.actions[node]} until {self._clock(until)}"
            return DeviceMoment(device, node, following, NONE, "", until, held, size, said)
        span = self._span(device, time)
        if node == NONE or span is None:
            said = f"device {device} is done"
            return DeviceMoment(device, NONE, node, NONE, "drain", timeline.makespan, held, size, said)
        source = timeline.graph.producer[node]
        said = self._waiting(device, span, source, time)
        return DeviceMoment(device, NONE, node, source, span.cause, span.end, held, size, said)

    def _span(self, device: int, time: float) -> Span | None:
        spans = self.shown.explanation.spans[device]
        index = bisect_right(spans, time, key=lambda span: span.start) - 1
        return spans[index] if index >= 0 and time < spans[index].end else None

    # In words.

    def _clock(self, time: float) -> str:
        return figure(time, self.shown.timeline.prices.clock, self.shown.makespan)

    def _waiting(self, device: int, span: Span, source: int, time: float) -> str:
        graph = self.shown.timeline.graph
        waiting = f"device {device} waits for {self._source(device, source, time)}, to run {graph.actions[span.node]}"
        if span.cause == "memory gate":
            return f"{waiting}: memory gate, the next forward is ready and would hold too much"
        return f"{waiting}: {span.cause}"

    def _source(self, device: int, source: int, time: float) -> str:
        """What makes the input that a device waits for, and how far it is."""
        timeline, found = self.shown.timeline, self.shown.explanation
        graph, name = timeline.graph, timeline.graph.actions[source]
        there = graph.device[source]
        if time >= timeline.end[source]:
            arrival = self._clock(timeline.arrival[source])
            said = f"the message of {name} from device {there}, which arrives at {arrival}"
            if found.ahead[source] != NONE and time < timeline.end[source] + found.queued(source):
                said += f" and queues behind that of {graph.actions[found.ahead[source]]}"
            return said
        if time >= timeline.start[source]:
            return f"{name}, which device {there} runs until {self._clock(timeline.end[source])}"
        return f"{name}, which device {there} begins at {self._clock(timeline.start[source])}"

    def _narration(self, devices: Sequence[DeviceMoment], ended: Sequence[int], begun: Sequence[int]) -> str:
        here = self.shown.timeline.graph.device
        touched = [devices[device] for device in sorted({here[node] for node in (*ended, *begun)})]
        if not touched:
            busy = sum(device.node != NONE for device in devices)
            return f"{busy} of {len(devices)} devices work"
        said = "; ".join(device.sentence for device in touched[:TOLD])
        more = len(touched) - TOLD
        return f"{said}; and {more} more" if more > 0 else said


@dataclass(frozen=True, slots=True)
class _Program:
    """The computes of a device, and when each starts and ends."""

    nodes: list[int]
    starts: list[float]
    ends: list[float]


def _within(values: Sequence[float], after: float, upto: float) -> slice:
    """Where in sorted values those are that are no more than `upto`, and more than `after`."""
    return slice(bisect_right(values, after), bisect_right(values, upto))


def _level(curve: Curve, time: float) -> float:
    return curve.levels[max(bisect_right(curve.times, time) - 1, 0)]
