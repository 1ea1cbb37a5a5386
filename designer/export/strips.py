"""Activation memory as strips of block characters, on the same axis as the chart above them."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil

from contraflow.designer.memory import Curve

from .axis import Axis
from .glyphs import Glyphs


def highest(curve: Curve, axis: Axis, until: float) -> list[float]:
    """The highest level in each column: a peak stays visible at any scale; 0 behind `until`."""
    times, levels = curve.times, curve.levels
    found = [0.0] * axis.width
    # A hair to the left, so that rounding does not let a column see its neighbour's level.
    edge = axis.start - 1e-6 * axis.step
    behind = bisect_left(times, edge)
    for column in range(axis.width):
        first = max(behind - 1, 0)
        if edge + (column + 2e-6) * axis.step >= until:
            break
        behind = bisect_left(times, edge + (column + 1) * axis.step, first)
        found[column] = levels[first] if behind - first <= 1 else max(levels[first:behind])
    return found


def strip(curve: Curve, axis: Axis, until: float, top: float, glyphs: Glyphs, height: int = 1) -> list[str]:
    """`height` lines, the upper one first. `top` fills all but an eighth, which parts a device from the next one."""
    full = 8 * height - 1
    # Rounded up: whatever is held at all is visible.
    eighths = [
        min(ceil(full * level / top - 1e-6), full) if top else 0 for level in highest(curve, axis, until)
    ]
    return [
        "".join([glyphs.levels[min(max(count - 8 * below, 0), 8)] for count in eighths])
        for below in reversed(range(height))
    ]
