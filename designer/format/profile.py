"""Measured times of one machine: what an action, a message, a reduction and an update took before training."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

FORMAT = "contraflow.profile/1"


class ActionTime(NamedTuple):
    """Seconds of one kind of action: `stage` on `device`, for the tokens [start, stop) of a microbatch."""

    device: int
    stage: int
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


def merge(profiles: Sequence[Profile]) -> Profile:
    """One profile of all devices out of each device's own; what all must wait for counts at its slowest."""
    reductions = tuple(map(max, *(profile.reductions for profile in profiles))) if len(profiles) > 1 else ()
    return Profile(
        profiles[0].machine,
        tuple(entry for profile in profiles for entry in profile.actions),
        max(profile.latency for profile in profiles),
        max(profile.seconds_per_token for profile in profiles),
        reductions or profiles[0].reductions,
        max(profile.after_step for profile in profiles),
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
