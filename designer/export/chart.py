"""A preview's timeline as columns of numbers, device by device: made once, drawn at any scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import sub
from typing import Literal, NamedTuple

from contraflow.designer.design import Preview
from contraflow.designer.format.graph import NONE
from contraflow.designer.format.schedule import Direction
from contraflow.designer.simulate import Timeline

State = Literal["forward", "backward", "input", "weight", "idle", "reduction"]

LETTERS: dict[str, str] = {"forward": "F", "backward": "B", "input": "I", "weight": "W"}
_STATES: dict[str, State] = {"F": "forward", "B": "backward", "I": "input", "W": "weight"}


class Look(NamedTuple):
    """What a cell shows, without saying in which colour.

    `tone` tells the two directions apart, or in a schedule of one direction every other stage of a device;
    `second` marks every other stage of a device where the tone is taken by the directions.
    """

    state: State
    tone: int = 0
    second: bool = False


IDLE = Look("idle")
REDUCTION = Look("reduction")


@dataclass(frozen=True, slots=True)
class Bars:
    """One device's computes in program order: bar i is node `nodes[i]` and looks like `Chart.looks[looks[i]]`."""

    nodes: Sequence[int]
    starts: Sequence[float]
    ends: Sequence[float]
    lengths: Sequence[float]
    looks: Sequence[int]
    reductions: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Chart:
    """What a Gantt chart needs of a preview."""

    preview: Preview
    bars: tuple[Bars, ...]
    looks: tuple[Look, ...]
    """Those that occur."""
    tones: tuple[str, ...]
    """What the tones stand for, in words; empty where there is only one."""

    @cached_property
    def shortest(self) -> float:
        """The shortest action that takes any time."""
        lengths = [length for bars in self.bars for length in bars.lengths if length > 0]
        return min(lengths, default=0.0)

    @cached_property
    def grain(self) -> float:
        """The shortest action, where all times are multiples of it; otherwise 0."""
        lengths = {length for bars in self.bars for length in bars.lengths}
        times = lengths.union(*(bars.starts for bars in self.bars))
        multiples = (
            all(abs(time / self.shortest - round(time / self.shortest)) < 1e-6 for time in times)
            if self.shortest
            else False
        )
        return self.shortest if multiples else 0.0


def chart(preview: Preview) -> Chart:
    """The columns of a preview."""
    graph, timeline = preview.timeline.graph, preview.timeline
    layout = graph.layout
    legs = [_legs(direction) for direction in layout.directions]
    most = max(max(leg) for leg in legs)
    two = len(layout.directions) > 1
    looks: dict[Look, int] = {}
    # By kind, stage and microbatch; kinds that do not occur leave no look behind.
    table: dict[str, list[list[int]]] = {}
    for kind in sorted({action.kind for action in graph.actions} & _STATES.keys(), key="FBIW".index):
        of_leg = [
            [looks.setdefault(_look(kind, number, leg, two), len(looks)) for leg in of_direction]
            for number, of_direction in enumerate(legs)
        ]
        table[kind] = [
            [of_leg[direction][stage] for direction in layout.direction_of]
            for stage in range(layout.num_stages)
        ]
    found = [_bars(timeline, low, high, table) for low, high in pairwise(graph.first)]
    tones: tuple[str, ...] = ()
    if two:
        tones = tuple(direction.name for direction in layout.directions[:2])
    elif most:
        tones = ("1st", "2nd") if most == 1 else ("1st, 3rd, ...", "2nd, 4th, ...")
        tones = (f"{tones[0]} stage of a device", tones[1])
    return Chart(preview, tuple(found), tuple(looks), tones)


def _legs(direction: Direction) -> list[int]:
    """For each stage, how many earlier ones of this direction share its device."""
    seen: dict[int, int] = {}
    found = []
    for device in direction.placement:
        found.append(seen.get(device, 0))
        seen[device] = found[-1] + 1
    return found


def _look(kind: str, direction: int, leg: int, two: bool) -> Look:
    return Look(_STATES[kind], direction % 2, leg % 2 == 1) if two else Look(_STATES[kind], leg % 2)


def _bars(timeline: Timeline, low: int, high: int, table: dict[str, list[list[int]]]) -> Bars:
    slots, actions = timeline.graph.slot, timeline.graph.actions
    nodes: Sequence[int] = range(low, high)
    starts, ends = timeline.start[low:high], timeline.end[low:high]
    reductions: list[tuple[float, float]] = []
    if NONE in slots[low:high]:
        reductions = [(timeline.start[node], timeline.end[node]) for node in nodes if slots[node] == NONE]
        nodes = [node for node in nodes if slots[node] != NONE]
        starts, ends = [timeline.start[node] for node in nodes], [timeline.end[node] for node in nodes]
    shown = [
        table[kind][stage][microbatch]
        for stage, kind, microbatch, _ in actions[low:high]
        if microbatch is not None
    ]
    return Bars(nodes, starts, ends, list(map(sub, ends, starts)), shown, tuple(reductions))
