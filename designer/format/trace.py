"""One step as it was measured, beside what was predicted: when every action ran, and how every message travelled.

A trace file is a Chrome trace (Perfetto opens it) that also holds, under keys of its own, the figures themselves and
the schedule that they are of. The picture, `traceEvents`, is made from them; reading passes it over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from . import file
from .check import examine
from .lowering import TIED
from .model import ModelShape
from .schedule import Action, Schedule, parse_token
from .tables import from_table

FORMAT = "contraflow.trace/1"
MAX_BYTES = 512 * 2**20

PURPOSES = ("data", "mirror", "tied", "mirror weights", "tied weights")
"""Of messages: those of lanes (see lowering.py), and new weights on their way back."""


class Span(NamedTuple):
    """One action on one device, in seconds since the first action of all began."""

    device: int
    action: Action
    begin: float
    end: float


class Delivery(NamedTuple):
    """One message, of what `action` made, on its lane from device to device; in seconds on the same clock."""

    source: int
    target: int
    purpose: str
    action: Action
    sent: float
    """The sender let go of it, without waiting."""
    left: float | None
    """The sender was rid of it; None where that was not seen, as on GPUs."""
    awaited: float
    """The receiver needed it to go on."""
    taken: float
    """The receiver had it."""

    @property
    def waited(self) -> float:
        """How long the receiver stood still for it."""
        return self.taken - self.awaited


@dataclass(frozen=True, slots=True)
class Times:
    """One telling of a step: all computes, device after device in program order, and the messages between devices."""

    spans: tuple[Span, ...]
    deliveries: tuple[Delivery, ...] = ()

    @property
    def makespan(self) -> float:
        """From the first begin to the last end of an action."""
        return max(span.end for span in self.spans) - min(span.begin for span in self.spans)


class Offset(NamedTuple):
    """How far a device's clock was ahead of that of rank 0, in seconds, and how wrong that may be."""

    seconds: float
    error: float


@dataclass(frozen=True, slots=True)
class Trace:
    """Step `step` of a run of `schedule` on `machine`; of a step with several passes, the last.

    `offsets`, by device, were already taken off. `predicted` is on the clock that `caption` describes.
    """

    schedule: Schedule
    step: int
    machine: str
    measured: Times
    offsets: tuple[Offset, ...]
    model: ModelShape | None = None
    predicted: Times | None = None
    caption: str = ""


def token(action: Action) -> str:
    """As in a schedule file; the reduction of an embedding that first and last stage share has no stage."""
    return "REDUCE_GRAD" if action.stage == TIED else str(action)


def dumps(trace: Trace, picture: Iterable[Mapping[str, Any]] = ()) -> str:
    """The trace as JSON text, with the events of a Chrome trace that draw it."""
    document = {
        "format": FORMAT,
        "step": trace.step,
        "machine": trace.machine,
        "caption": trace.caption,
        "model": None if trace.model is None else asdict(trace.model),
        "offsets": trace.offsets,
        "measured": _told(trace.measured),
        "predicted": None if trace.predicted is None else _told(trace.predicted),
        "schedule": json.loads(file.dumps(trace.schedule)),
        "displayTimeUnit": "ms",
    }
    head = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items())
    events = ",\n".join(json.dumps(event) for event in picture)
    return f'{{\n{head},\n"traceEvents": [\n{events}\n]\n}}\n'


def _told(times: Times) -> dict[str, Any]:
    return {
        "actions": [(device, token(action), begin, end) for device, action, begin, end in times.spans],
        "messages": [(*delivery[:3], token(delivery.action), *delivery[4:]) for delivery in times.deliveries],
    }


def load(path: str | Path) -> Trace:
    """The trace in a file. Raises ValueError, in one line, for what cannot be read or holds none."""
    try:
        with open(path, "rb") as source:
            text = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} names no file: {error}") from None
    if len(text) > MAX_BYTES:
        raise ValueError(f"{path} is larger than the {MAX_BYTES >> 20} MiB that a trace may have")
    return loads(text, str(path))


def loads(text: bytes | str, name: str = "the trace") -> Trace:
    """The trace in JSON text. Raises ValueError, in one line, for anything else.

    Whatever it holds beside is passed over. All measured actions are those of its schedule, in their order.
    """
    try:
        document: dict[str, Any] = json.loads(text)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f'it is not an object with "format": "{FORMAT}"')
        schedule, faults = examine(json.dumps(document["schedule"]), "its schedule")
        if schedule is None or faults:
            raise ValueError(f"its schedule has faults: {faults[0]}")
        predicted, model = document.get("predicted"), document.get("model")
        return Trace(
            schedule,
            int(document["step"]),
            str(document["machine"]),
            _times(document["measured"], schedule, "measured"),
            tuple(Offset(_finite(seconds), _finite(error)) for seconds, error in document["offsets"]),
            None if model is None else from_table(ModelShape, model, "its model"),
            None if predicted is None else _times(predicted, schedule, "predicted"),
            str(document.get("caption", "")),
        )
    except KeyError as error:
        raise ValueError(f"{name} is not a trace: {error.args[0]!r} is missing") from None
    except (ValueError, TypeError, OverflowError, RecursionError, AttributeError) as error:
        raise ValueError(f"{name} is not a trace: {' '.join(str(error).split())[:200]}") from None


def _times(value: Mapping[str, Any], schedule: Schedule, which: str) -> Times:
    spans = []
    for device, word, begin, end in value["actions"]:
        if type(device) is not int:
            raise ValueError(f"{device!r} is no device")
        spans.append(Span(device, _action(word), _finite(begin), _finite(end)))
        if not spans[-1].begin <= spans[-1].end:
            raise ValueError(f"{word} ends at {end}, before it begins")
    spans.sort(key=lambda span: span.device)
    for device, program in enumerate(schedule.program):
        computes = [action for action in program if action.kind != "REDUCE_GRAD"]
        if [span.action for span in spans if span.device == device] != computes:
            raise ValueError(f"the {which} actions of device {device} are not those of its program")
    if len(spans) != sum(action.kind != "REDUCE_GRAD" for program in schedule.program for action in program):
        raise ValueError(f"there are {which} actions of devices that the schedule has not")
    return Times(tuple(spans), tuple(_delivery(entry, schedule) for entry in value["messages"]))


def _delivery(entry: Sequence[Any], schedule: Schedule) -> Delivery:
    source, target, purpose, word, sent, left, awaited, taken = entry
    devices = range(schedule.layout.num_devices)
    if source not in devices or target not in devices or purpose not in PURPOSES:
        raise ValueError(f"there is no lane {source}->{target} for {purpose}")
    return Delivery(
        int(source),
        int(target),
        purpose,
        _action(word),
        _finite(sent),
        None if left is None else _finite(left),
        _finite(awaited),
        _finite(taken),
    )


def _action(word: str) -> Action:
    if word == "REDUCE_GRAD":
        return Action(TIED, "REDUCE_GRAD")
    action = parse_token(word)
    if action is None:
        raise ValueError(f"{word[:40]!r} is no action")
    return action


def _finite(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is no time")
    return seconds
