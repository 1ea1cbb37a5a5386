"""Two schedules on one clock: what changed from A to B in figures, and which actions start earlier or later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .design import Preview, preview
from .difference import Difference, difference
from .format.graph import NONE
from .format.schedule import Action


@dataclass(frozen=True, slots=True)
class Delta:
    """A figure of A and of B; None where the costs do not know it."""

    name: str
    a: float | None
    b: float | None

    @property
    def change(self) -> float | None:
        """What B has more than A."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def ratio(self) -> float | None:
        """How many times A's is B's; None where A's is nothing."""
        return self.b / self.a if self.a and self.b is not None else None


@dataclass(frozen=True, slots=True)
class DeviceDelta:
    """The figures of one device. Where one schedule has no such device its figures are None."""

    device: int
    busy: Delta
    idle: Delta
    peak: Delta
    """Of activation, in whole microbatches through a device's share."""
    memory: Delta
    """Bytes on each of its GPUs."""


class Ghost(NamedTuple):
    """An action of A, to be drawn under B's."""

    start: float
    end: float
    action: Action
    node: int
    """The action of that name in B's timeline, on whatever device; NONE where B has none."""


@dataclass(frozen=True)
class Comparison:
    """A and B on the clock of B's costs."""

    a: Preview
    """Priced by B's costs, whatever it was shown with."""
    b: Preview

    @cached_property
    def figures(self) -> tuple[Delta, ...]:
        """makespan, step, bubble, peak, memory, between nodes and tokens per s, in this order."""
        a, b = self.a, self.b
        sent = [None if shown.traffic is None else shown.traffic.total for shown in (a, b)]
        return (
            Delta("makespan", a.makespan, b.makespan),
            Delta("step", a.step, b.step),
            Delta("bubble", a.bubble, b.bubble),
            Delta("peak", a.peak, b.peak),
            Delta("memory", a.peak_bytes, b.peak_bytes),
            Delta("between nodes", *sent),
            Delta("tokens per s", a.tokens_per_second, b.tokens_per_second),
        )

    @cached_property
    def devices(self) -> tuple[DeviceDelta, ...]:
        """Every device that A or B has."""
        rows = [_by_device(shown) for shown in (self.a, self.b)]
        nothing = (None,) * 4
        return tuple(
            DeviceDelta(device, *map(Delta, ("busy", "idle", "peak", "memory"), *pair))
            for device in range(max(map(len, rows)))
            for pair in [[row[device] if device < len(row) else nothing for row in rows]]
        )

    @cached_property
    def difference(self) -> Difference:
        """What turns A's file into B's."""
        return difference(self.a.schedule, self.b.schedule)

    @cached_property
    def ghosts(self) -> tuple[tuple[Ghost, ...], ...]:
        """By device of A, the computes of A in their order."""
        graph, start, end = self.a.timeline.graph, self.a.timeline.start, self.a.timeline.end
        there = _computes(self.b)
        rows: list[list[Ghost]] = [[] for _ in self.a.schedule.program]
        for node, action in enumerate(graph.actions):
            if graph.slot[node] != NONE:
                rows[graph.device[node]].append(
                    Ghost(start[node], end[node], action, there.get(action, NONE))
                )
        return tuple(map(tuple, rows))

    @cached_property
    def shift(self) -> tuple[float | None, ...]:
        """By node of B's timeline: how much later it starts than in A; None where A has no compute of that name."""
        before, found = _computes(self.a), []
        for action, start in zip(self.b.timeline.graph.actions, self.b.timeline.start, strict=True):
            node = before.get(action)
            found.append(None if node is None else start - self.a.timeline.start[node])
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the figures do not compare, if they do not."""
        return tuple(unlike((self.a, self.b)))


def compare(a: Preview, b: Preview) -> Comparison:
    """A is priced anew where its costs are others than B's. Raises CostError where B's costs do not fit A."""
    return Comparison(a if a.costs.name == b.costs.name else preview(a.schedule, b.costs), b)


def _by_device(shown: Preview) -> list[tuple[float | None, ...]]:
    memory = [None] * len(shown.curves) if shown.memory is None else [curve.peak for curve in shown.memory]
    uses = zip(shown.timeline.devices, shown.curves, memory, strict=True)
    return [(use.busy, use.idle, curve.peak, size) for use, curve, size in uses]


def _computes(shown: Preview) -> dict[Action, int]:
    """The node of every compute; a reduction stands on several devices."""
    graph = shown.timeline.graph
    return {action: node for node, action in enumerate(graph.actions) if graph.slot[node] != NONE}


def unlike(previews: Sequence[Preview]) -> Iterator[str]:
    """Why the makespans of these schedules are not of the same work, or not on one clock."""
    layouts = [shown.schedule.layout for shown in previews]
    tokens = [sum(layout.sequences) for layout in layouts]
    if len(set(tokens)) > 1:
        yield f"the schedules train on different numbers of tokens ({_listed(tokens)}): their work is not the same"
    if previews[0].timeline.prices.clock == "unit":
        for what, values in (
            ("devices", [layout.num_devices for layout in layouts]),
            ("tokens in a microbatch", [layout.longest for layout in layouts]),
        ):
            if len(set(values)) > 1:
                yield (
                    f"the schedules have different numbers of {what} ({_listed(values)}), so 1 is not the same time "
                    "for each; --costs MODEL-HARDWARE puts them on one clock"
                )


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
