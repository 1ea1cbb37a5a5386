"""Time laid over columns, the ruler that says so, and figures in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, log10

from contraflow.designer.costs.prices import Clock

from .chart import Chart

MIN_TICK_COLUMNS = 9
"""Between two marks of a ruler: room for a label and a gap."""


@dataclass(frozen=True, slots=True)
class Axis:
    """`width` columns, each `step` long; the first begins at `start`."""

    start: float
    step: float
    width: int

    def column(self, time: float) -> float:
        """Where `time` lies, in columns from the left edge."""
        return (time - self.start) / self.step

    def time(self, column: float) -> float:
        """The time at a place in columns from the left edge."""
        return self.start + column * self.step


def whole(makespan: float, width: int) -> Axis:
    """The axis that shows everything from 0 to the makespan (a schedule without time still gets columns)."""
    return Axis(0.0, (makespan or 1.0) / width, width)


def fitted(drawn: Chart, width: int) -> Axis:
    """Like `whole`, snapped to the actions."""
    axis = whole(drawn.preview.makespan, width)
    return Axis(0.0, snapped(drawn, axis.step), width)


def snapped(drawn: Chart, step: float) -> float:
    """At least `step`, and where at most a fifth more will do it, such that equal actions get equally many columns."""
    # Spares looking for a grain among actions that are narrower than a column anyway.
    if drawn.shortest < step:
        return step
    columns = drawn.grain / step
    if columns < 1 or floor(columns + 1e-6) < 0.8 * columns:
        return step
    return drawn.grain / floor(columns + 1e-6)


def scale(clock: Clock, largest: float) -> tuple[float, str]:
    """How many of a unit make 1 on the clock, and the unit's name: fit for figures up to `largest`."""
    if clock == "unit":
        return 1.0, ""
    for factor, name in ((1.0, "s"), (1e3, "ms")):
        if largest * factor >= 1:
            return factor, name
    return 1e6, "µs"


def figure(value: float, clock: Clock, largest: float | None = None) -> str:
    """A time in words; `largest` chooses the unit, so that figures shown together share one."""
    factor, name = scale(clock, abs(value) if largest is None else largest)
    digits = f"{value * factor:.6g}" if clock == "unit" else f"{value * factor:.4g}"
    return f"{digits} {name}".rstrip()


def marks(axis: Axis, factor: float = 1.0, room: float = MIN_TICK_COLUMNS) -> Iterator[tuple[float, str]]:
    """Time and label of every mark: multiples of 1, 2 or 5 times a power of ten, in units of `1 / factor`.

    At least `room` columns apart, and with room for the longest label where a column holds a character.
    """
    widest = len(f"{axis.time(axis.width) * factor:.6g}")
    least = axis.step * max(room, widest + 2) * factor
    power = 10.0 ** floor(log10(least))
    each = next((power * multiple for multiple in (1, 2, 5) if power * multiple >= least), power * 10)
    number = ceil(axis.start * factor / each - 1e-9)
    while axis.column(time := number * each / factor) <= axis.width + 1e-6:
        yield time, f"{number * each:.6g}"
        number += 1


def ticks(axis: Axis, factor: float = 1.0) -> Iterator[tuple[int, str]]:
    """Column and label of every mark of a ruler of characters."""
    for time, label in marks(axis, factor):
        column = round(axis.column(time))
        if column < axis.width:
            yield column, label


def ruler(axis: Axis, clock: Clock, largest: float, mark: str) -> str:
    """One line of `axis.width` columns: a mark at each tick, its label behind it, in the unit of `largest`."""
    line = [" "] * axis.width
    for column, label in ticks(axis, scale(clock, largest)[0]):
        if column + 1 + len(label) <= axis.width:
            line[column : column + 1 + len(label)] = [mark, *label]
    return "".join(line)
