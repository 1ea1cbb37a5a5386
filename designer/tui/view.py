"""Where the chart's eye is: columns per time and lines per device. Pure; the widgets ask here."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil

from contraflow.designer.export.axis import figure, fitted, snapped
from contraflow.designer.export.chart import Bars, Chart
from contraflow.designer.format.graph import NONE

MAX_ACTION_COLUMNS = 24
"""Zooming in ends where the shortest action is about this wide."""

HEIGHTS = ((4, 5), (4, 4), (3, 4), (3, 3), (3, 2), (2, 2), (2, 1), (1, 1))
"""Lines per device in the chart and in the memory strips, the most legible first."""


def step(drawn: Chart, width: int, zoom: int) -> float:
    """Time of a column: everything fits `width` at zoom 0; each step of zoom doubles the scale."""
    fit = fitted(drawn, max(width, 1)).step
    return snapped(drawn, fit / 2**zoom) if zoom else fit


def most_zoom(drawn: Chart, width: int) -> int:
    """The largest useful zoom."""
    zoom = 0
    while drawn.shortest and drawn.shortest / step(drawn, width, zoom) < MAX_ACTION_COLUMNS / 2 and zoom < 40:
        zoom += 1
    return zoom


def columns(drawn: Chart, step: float) -> int:
    """How many columns the whole time takes."""
    return ceil(drawn.preview.makespan / step - 1e-6)


def heights(devices: int, lines: int) -> tuple[int, int]:
    """Lines per device in the chart and in the memory strips that fit into `lines`, or one each."""
    return next((pair for pair in HEIGHTS if devices * sum(pair) <= lines), (1, 1))


@dataclass(frozen=True, slots=True)
class Place:
    """A device at a time."""

    device: int
    time: float


def bar_at(bars: Bars, time: float) -> int:
    """The bar that runs at `time`, or NONE."""
    bar = bisect_right(bars.starts, time) - 1
    return bar if bar >= 0 and time < bars.ends[bar] else NONE


def neighbour(bars: Bars, time: float, by: int) -> float:
    """The middle of the bar behind (1) or before (-1) the one that runs at `time`; of the outermost at the ends."""
    behind = bisect_right(bars.starts, time)
    here = bar_at(bars, time)
    bar = behind if by > 0 else (behind if here == NONE else here) - 1
    bar = min(max(bar, 0), len(bars.starts) - 1)
    return (bars.starts[bar] + bars.ends[bar]) / 2


def described(drawn: Chart, place: Place) -> str:
    """What a device does at a time, in words."""
    bars, clock = drawn.bars[place.device], drawn.preview.timeline.prices.clock
    largest = drawn.preview.makespan
    bar = bar_at(bars, place.time)
    if bar == NONE:
        behind = bisect_right(bars.starts, place.time)
        low = bars.ends[behind - 1] if behind else 0.0
        high = bars.starts[behind] if behind < len(bars.starts) else largest
        return f"device {place.device}: idle, {figure(low, clock, largest)} to {figure(high, clock, largest)}"
    graph = drawn.preview.timeline.graph
    action = graph.actions[bars.nodes[bar]]
    words = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}[action.kind]
    found = (
        f"device {place.device}: {action}  {figure(bars.starts[bar], clock, largest)} to "
        f"{figure(bars.ends[bar], clock, largest)}, {words} of stage {action.stage}"
    )
    if action.microbatch is None:
        return found
    low_token, high_token = graph.layout.borders(action.microbatch)[action.subsequence or 0]
    direction = graph.layout.directions[graph.layout.direction_of[action.microbatch]].name
    return f"{found}, tokens {low_token} to {high_token - 1} of microbatch {action.microbatch} ({direction})"
