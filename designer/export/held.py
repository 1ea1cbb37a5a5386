"""What the devices hold over time, in the measure that the costs know: bytes, or activation alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from contraflow.designer.design import Preview
from contraflow.designer.memory import Curve


@dataclass(frozen=True)
class Held:
    """One curve per device and how its levels are written: a level times `factor` is in `unit`."""

    curves: Sequence[Curve]
    title: str
    unit: str
    factor: float = 1.0
    cap: float | None = None
    """The level that a device has room for, where that is known."""
    caption: str = ""
    """The assumptions behind the levels, beyond those of the clock."""

    @cached_property
    def top(self) -> float:
        """Where the scale of a picture ends: at the highest peak, or at a cap above it."""
        return max(self.cap or 0.0, *[curve.peak for curve in self.curves]) or 1.0

    def number(self, level: float) -> str:
        """A level without its unit."""
        return f"{level * self.factor:.4g}"

    def figure(self, level: float) -> str:
        """A level with its unit."""
        return f"{self.number(level)} {self.unit}"


def held(preview: Preview) -> Held:
    """Bytes where the costs know of a model, else activation in whole microbatches through a device's share."""
    footprint, memory = preview.footprint, preview.memory
    if footprint is None or memory is None:
        return Held(preview.curves, "activation", "microbatches")
    unit, power = ("GiB", 30) if max(curve.peak for curve in memory) >= 2**30 else ("MiB", 20)
    return Held(memory, "memory of a GPU", unit, 2.0**-power, preview.costs.memory, footprint.caption)
