"""How near to what is possible: the published orders, ours, what search finds, and what nothing can beat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from markdown import table
from plot import Curve, Panel, plot

from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, DesignError, Preview, make, preview
from contraflow.designer.format.check import load

SEARCHED = Path(__file__).with_name("searched")
SHAPES = (
    (4, 4, 2),
    (4, 4, 4),
    (8, 4, 4),
    (8, 4, 8),
    (8, 8, 4),
    (8, 8, 8),
    (8, 16, 8),
    (16, 16, 8),
    (16, 32, 8),
)
"""(devices, microbatches, subsequences)"""
PROVEN = SEARCHED / "proven.json"
"""By name of a searched program: what the search has proven that no program within its cap can beat."""
PICTURE = Path(__file__).with_name("bounds.svg")
ROUNDING = 1e-6
CAPS = (2.0, 2.25, 2.5, 2.75, 3.0)
"""Whole microbatches of activation."""
PUBLISHED = ("seq1f1b", "seq1f1b-interleaved", "seq1f1b-zb", "terapipe")
OURS = ("bsipipe", "bsipipe-zb")
TOKENS = 128
"""Of a subsequence."""

INTRODUCTION = """\
# How near to what is possible

Made by `make study` on the unit clock with equal subsequences: F of a whole microbatch through a device's share takes
1, B 2, I and W 1 each, messages nothing; 3 x microbatches would be no idle time at all. *Peak* and *cap* count
activation in whole microbatches. The searched programs are the files in `searched/`, which `make searched` makes anew.

The bound holds for every program of two opposing Vs, whatever it holds: the innermost devices wait for P/2 - 1
forwards at first, and where backwards are whole for as many backwards at last. A star marks a makespan that is at its
bound, or that the search has proven to be the least within its cap.

![makespan over no idle time, by cap](bounds.svg)
"""


class Shape(NamedTuple):
    """Devices, microbatches and subsequences of each."""

    devices: int
    microbatches: int
    subsequences: int

    def design(self, generator: str, budget: float | None = None) -> Design:
        """The knobs of this shape."""
        return Design(
            generator,
            self.devices,
            self.microbatches,
            self.subsequences,
            sequence=TOKENS * self.subsequences,
            budget=budget,
        )

    def shown(self, generator: str, budget: float | None = None) -> Preview | None:
        """What a generator gives; None where it has nothing to say of this shape."""
        try:
            return preview(make(self.design(generator, budget)), unit)
        except DesignError:
            return None

    def bound(self, generator: str) -> float:
        """What no program of the generator's layout and kinds of backwards can beat."""
        wait = (self.devices - 2) / (4 * self.subsequences)
        return 3 * self.microbatches + (wait if generator == "bsipipe-zb" else 3 * wait)

    def searched(self, generator: str, cap: float) -> str:
        """What a searched program is called."""
        return f"{generator}-p{self.devices}-m{self.microbatches}-k{self.subsequences}-cap{cap:g}"

    def __str__(self) -> str:
        return f"P={self.devices} M={self.microbatches} k={self.subsequences}"


class Found(NamedTuple):
    """A makespan, and whether nothing is faster within the cap."""

    makespan: float
    least: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One cap: by generator of ours what it gives within it, and what search has found."""

    cap: float
    made: dict[str, Found]
    searched: dict[str, Found]


def rows(shape: Shape) -> Iterator[Row]:
    """What ours come to in a shape, cap by cap."""
    proven = json.loads(PROVEN.read_text()) if PROVEN.exists() else {}
    for cap in CAPS:
        made, searched = {}, {}
        for name in OURS:
            known = proven.get(shape.searched(name, cap), 0)
            bound = max(shape.bound(name), known)
            shown = shape.shown(name, cap)
            assert shown is not None
            made[name] = Found(shown.makespan, shown.makespan <= bound + ROUNDING)
            path = SEARCHED / f"{shape.searched(name, cap)}.schedule.json"
            if path.exists():
                makespan = preview(load(path), unit).makespan
                searched[name] = Found(makespan, makespan <= bound + ROUNDING)
        yield Row(cap, made, searched)


def text() -> str:
    """The page; its picture lies beside it."""
    parts, panels = [INTRODUCTION], []
    for shape in map(Shape._make, SHAPES):
        published = {name: shown for name in PUBLISHED if (shown := shape.shown(name))}
        found = list(rows(shape))
        parts.append(f"## {shape}\n")
        cells = ([name, f"{shown.makespan:.10g}", f"{shown.peak:g}"] for name, shown in published.items())
        parts.append(table(("published", "makespan", "peak"), cells))
        parts.append(table(HEADS, map(_cells, found)))
        parts.append(f"Bounds: {', '.join(f'{name} {shape.bound(name):.10g}' for name in OURS)}.\n")
        panels.append(panel(shape, published, found))
    PICTURE.write_text(plot(panels, "cap, whole microbatches", "makespan / 3M"), encoding="utf-8")
    return "\n".join(parts)


HEADS = ("cap", "bsipipe", "searched", "bsipipe-zb", "searched")


def _cells(row: Row) -> list[str]:
    cells = [f"{row.cap:g}"]
    for name in OURS:
        for found in (row.made.get(name), row.searched.get(name)):
            cells.append("" if found is None else f"{found.makespan:.10g}{'*' if found.least else ''}")
    return cells


def panel(shape: Shape, published: dict[str, Preview], found: list[Row]) -> Panel:
    """A shape in the picture: makespans over that of no idle time."""
    whole = 3 * shape.microbatches
    curves = []
    for name in OURS:
        bound = shape.bound(name) / whole
        curves.append(Curve(f"{name}, bound", [(CAPS[0], bound), (CAPS[-1], bound)], dashed=True))
        curves.append(Curve(name, [(row.cap, row.made[name].makespan / whole) for row in found]))
        points = [(row.cap, row.searched[name].makespan / whole) for row in found if name in row.searched]
        if points:
            curves.append(Curve(f"{name}, searched", points, joined=False))
    near = {name: shown for name, shown in published.items() if shown.peak <= CAPS[-1] + 0.25}
    curves += [
        Curve(name, [(shown.peak, shown.makespan / whole)], joined=False) for name, shown in near.items()
    ]
    return Panel(str(shape), curves)
