"""Idle time as spans on the clock, each with its cause: what is drawn between the actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from contraflow.designer.format.graph import NONE
from contraflow.designer.simulate import Timeline

from .idle import Gap


class Span(NamedTuple):
    """A device is idle from `start` to `end`, right before `node`: NONE after its last action."""

    start: float
    end: float
    cause: str
    """One of CAUSES, but for imbalance, which shows only in a whole device: here it is part of `data`."""
    node: int


def spans(timeline: Timeline, gaps: Mapping[int, Gap]) -> tuple[tuple[Span, ...], ...]:
    """Every device's idle time in the order of time, without overlaps."""
    return tuple(
        tuple(span for span in _of_device(timeline, gaps, low, high) if span.end > span.start)
        for low, high in pairwise(timeline.graph.first)
    )


def _of_device(timeline: Timeline, gaps: Mapping[int, Gap], low: int, high: int) -> Iterator[Span]:
    free = 0.0
    for node in range(low, high):
        if timeline.graph.slot[node] == NONE:
            continue
        if node in gaps:
            begin, parts = timeline.start[node], _in_time(gaps[node])
            for cause, length in parts[:-1]:
                yield Span(free, min(free + length, begin), cause, node)
                free = min(free + length, begin)
            yield Span(free, begin, parts[-1][0], node)
        free = timeline.end[node]
    yield Span(free, timeline.makespan, "drain", NONE)


def _in_time(gap: Gap) -> list[tuple[str, float]]:
    """The parts of a gap: at first what is waited for is still to be made, at last its message is on its way."""
    causes = ("start-up", "data", "memory gate", "communication")
    lengths = (gap.start_up, gap.data, gap.memory_gate, gap.communication)
    return [(cause, length) for cause, length in zip(causes, lengths, strict=True) if length]
