"""A step as events of a Chrome trace, for Perfetto: predicted and measured are two processes of one file.

Slices of one track may not overlap there, so each device has a track for its computes, one for its waiting, and one for
each lane on which it sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from contraflow.designer.design import Preview
from contraflow.designer.format.trace import Times, Trace, token
from contraflow.designer.overlay import predicted

Event = dict[str, Any]


class _Slice(NamedTuple):
    """What one track shows from a time to a time, in seconds."""

    track: tuple[int, int, str]
    """Device, place among its tracks, and name."""
    name: str
    kind: str
    begin: float
    end: float


def dumps(preview: Preview) -> str:
    """The predicted step alone, as a file. On the unit clock, 1 is shown as a second."""
    events = ",\n".join(map(json.dumps, _process(1, "predicted", predicted(preview.timeline))))
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{events}\n]}}\n'


def picture(trace: Trace) -> Iterator[Event]:
    """The measured step, above it the predicted one where there is one."""
    if trace.predicted is not None:
        yield from _process(1, "predicted", trace.predicted)
    yield from _process(2, "measured", trace.measured)


def _process(number: int, name: str, times: Times) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}}
    tracks: dict[tuple[int, int, str], list[_Slice]] = {}
    for piece in _slices(times):
        tracks.setdefault(piece.track, []).append(piece)
    for place, track in enumerate(sorted(tracks), 1):
        here = {"pid": number, "tid": place}
        yield {"ph": "M", "name": "thread_name", **here, "args": {"name": track[2]}}
        yield {"ph": "M", "name": "thread_sort_index", **here, "args": {"sort_index": place}}
        free = 0
        for piece in sorted(tracks[track], key=lambda piece: piece.begin):
            # Of messages on their way together each shows from where the one before it ends, in whole nanoseconds.
            begin = max(round(piece.begin * 1e9), free)
            free = max(round(piece.end * 1e9), begin)
            event = {"ph": "X", "name": piece.name, "cat": piece.kind, **here}
            yield {**event, "ts": begin / 1000, "dur": (free - begin) / 1000}


def _slices(times: Times) -> Iterator[_Slice]:
    for device, action, begin, end in times.spans:
        yield _Slice((device, 0, f"device {device}"), token(action), action.kind, begin, end)
    lanes = sorted({delivery[:3] for delivery in times.deliveries})
    for delivery in times.deliveries:
        source, target, purpose, action, sent, left, awaited, taken = delivery
        name = token(action)
        lane = (
            source,
            2 + lanes.index((source, target, purpose)),
            f"device {source} sends {purpose} to {target}",
        )
        yield _Slice(lane, name, "send", sent, taken if left is None else left)
        yield _Slice((target, 1, f"device {target} waits"), name, "receive", awaited, taken)
