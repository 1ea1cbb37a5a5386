"""Measured times of a run: when every action began and ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .schedule import Action


class Span(NamedTuple):
    """One action on one device, in seconds since the step began."""

    device: int
    action: Action
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One step of a run: every action of every device."""

    step: int
    spans: tuple[Span, ...]

    @property
    def makespan(self) -> float:
        """From the first begin to the last end."""
        return max(span.end for span in self.spans) - min(span.begin for span in self.spans)
