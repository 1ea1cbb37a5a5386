"""Activation held by each device over time, from the events that open and close it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from contraflow.designer.costs.prices import activation
from contraflow.designer.format.graph import NONE

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
