"""Measured times of one machine: what an action, a message, a reduction and an update took before training."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from .model import ModelShape
from .tables import from_table

FORMAT = "contraflow.profile/1"


class ActionTime(NamedTuple):
    """Seconds of one kind of action: `stage` on `device`, for the tokens [start, stop) of a microbatch."""

    device: int
    stage: int
    kind: str
    start: int
    stop: int
    seconds: float


class PartTime(NamedTuple):
    """Seconds of one kind of action of a stage made so: `layers` layers, `first` with the embedding, `last` with head
    and loss; for the tokens [start, stop) of a microbatch."""

    layers: int
    first: bool
    last: bool
    kind: str
    start: int
    stop: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured, and on what."""

    machine: str
    actions: tuple[ActionTime, ...]
    latency: float = 0.0
    """Seconds from sending an empty message to having it."""
    seconds_per_token: float = 0.0
    """Seconds more for each token whose activation or gradient travels."""
    reductions: tuple[float, ...] = ()
    """Seconds, beside a latency, that a stage's weight gradients take to its owner; () where nothing is reduced."""
    after_step: float = 0.0
    """Seconds from the last gradient to the end of the step: the optimizer, and new weights for the copies."""
    model: ModelShape | None = None
    """Whose stages these are, where that is known; `batch_size` of its sequences were in a microbatch."""
    batch_size: int = 1
    layers: tuple[int, ...] = ()
    """By stage, those that the measured ones had; () where that is not known."""
    parts: tuple[PartTime, ...] = ()
    """Measured beside the stages, for the times of others."""


def merge(profiles: Sequence[Profile]) -> Profile:
    """One profile of all devices out of each device's own; what all must wait for counts at its slowest."""
    reductions = tuple(map(max, *(profile.reductions for profile in profiles))) if len(profiles) > 1 else ()
    return replace(
        profiles[0],
        actions=tuple(entry for profile in profiles for entry in profile.actions),
        latency=max(profile.latency for profile in profiles),
        seconds_per_token=max(profile.seconds_per_token for profile in profiles),
        reductions=reductions or profiles[0].reductions,
        after_step=max(profile.after_step for profile in profiles),
        parts=tuple(entry for profile in profiles for entry in profile.parts),
    )


def dumps(profile: Profile) -> str:
    """The profile as JSON text."""
    return json.dumps({"format": FORMAT, **asdict(profile)}, indent=1) + "\n"


def loads(text: bytes | str, name: str = "the profile") -> Profile:
    """The profile in JSON text. Raises ValueError, in one line, for anything else."""
    try:
        document: dict[str, Any] = json.loads(text)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f'it is not an object with "format": "{FORMAT}"')
        model = document.get("model")
        return Profile(
            str(document["machine"]),
            tuple(
                ActionTime(int(device), int(stage), str(kind), int(start), int(stop), _time(seconds))
                for device, stage, kind, start, stop, seconds in document["actions"]
            ),
            _time(document["latency"]),
            _time(document["seconds_per_token"]),
            tuple(map(_time, document["reductions"])),
            _time(document["after_step"]),
            None if model is None else from_table(ModelShape, model, "its model"),
            int(document.get("batch_size", 1)),
            tuple(map(int, document.get("layers", ()))),
            tuple(
                PartTime(
                    int(layers), bool(first), bool(last), str(kind), int(start), int(stop), _time(seconds)
                )
                for layers, first, last, kind, start, stop, seconds in document.get("parts", ())
            ),
        )
    except KeyError as error:
        raise ValueError(f"{name} is not a profile: {error.args[0]!r} is missing") from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{name} is not a profile: {str(error)[:200]}") from None


def _time(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{seconds} is no time")
    return seconds
