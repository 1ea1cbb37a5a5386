"""A beside the present design, in words. Pure."""

from __future__ import annotations

from contraflow.designer.comparison import Comparison, Delta
from contraflow.designer.export.axis import figure
from contraflow.designer.export.text import percent

from .session import in_words

GIB = 2**30


def in_a_line(found: Comparison) -> str:
    """The figures that a schedule is judged by, from A's to the present ones."""
    told = [f"{delta.name} {_from_to(found, delta)}" for delta in found.figures if delta.name in _JUDGED]
    return f"A is {found.a.schedule.name}: {', '.join(told)}"


def in_lines(found: Comparison) -> list[str]:
    """Every figure that the costs know of both, the peaks of all devices, and why the two do not compare."""
    known = [delta for delta in found.figures if delta.change is not None]
    peaks = [(row.device, row.peak) for row in found.devices]
    return [
        f"A  {found.a.schedule.name}",
        "from A to the present design",
        *(f"{delta.name:<14} {_from_to(found, delta)}" for delta in known),
        "",
        *(f"peak, device {device:<2} {_from_to(found, delta)}" for device, delta in peaks),
        *(["", *map(in_words, found.warnings)] if found.warnings else []),
    ]


_JUDGED = ("makespan", "bubble", "peak")


def _from_to(found: Comparison, delta: Delta) -> str:
    clock = found.b.timeline.prices.clock

    def words(value: float | None) -> str:
        match delta.name:
            case _ if value is None:
                return "-"
            case "makespan" | "step":
                return figure(value, clock)
            case "bubble":
                return percent(value)
            case "memory" | "between nodes":
                return f"{value / GIB:.3g} GiB"
            case _:
                return f"{value:.4g}"

    return f"{words(delta.a)} to {words(delta.b)}"
