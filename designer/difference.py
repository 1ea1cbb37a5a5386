"""What is different between two schedules: actions added, removed, moved; and the layouts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .format.schedule import Action, Schedule


class Place(NamedTuple):
    """Where an action stands: `position` counts from 0 in its device's program."""

    device: int
    position: int


@dataclass(frozen=True, slots=True)
class Moved:
    """An action that is in both programs, elsewhere."""

    action: Action
    before: Place
    after: Place


@dataclass(frozen=True, slots=True)
class Difference:
    """From one schedule to another. The moved are as few as can be: all else kept its order."""

    fields: dict[str, tuple[Any, Any]]
    """Fields of the file that differ, but for the program, with both values (None where there is none)."""
    added: tuple[tuple[Place, Action], ...]
    removed: tuple[tuple[Place, Action], ...]
    moved: tuple[Moved, ...]

    @property
    def same_program(self) -> bool:
        return not (self.added or self.removed or self.moved)


def difference(before: Schedule, after: Schedule) -> Difference:
    """What must be done to `before` to make it `after`, in O(n log n) of the actions."""
    old, new = _places(before), _places(after)
    moved = []
    for device, program in enumerate(after.program):
        # Of those that stay on the device, the longest run that kept its order need not move.
        stayed = [action for action in program if (device, action) in old]
        kept = _longest_rising([old[device, action].position for action in stayed])
        moved += [
            Moved(action, old[device, action], new[device, action])
            for index, action in enumerate(stayed)
            if index not in kept
        ]
    gone = {key: place for key, place in old.items() if key not in new}
    come = {key: place for key, place in new.items() if key not in old}
    elsewhere: dict[Action, list[tuple[int, Action]]] = {}
    for key in come:
        elsewhere.setdefault(key[1], []).append(key)
    for key in list(gone):
        targets = elsewhere.get(key[1])
        if targets:
            moved.append(Moved(key[1], gone.pop(key), come.pop(targets.pop(0))))
    moved.sort(key=lambda move: (move.after, move.before))
    return Difference(
        _fields(before, after),
        tuple(sorted((place, key[1]) for key, place in come.items())),
        tuple(sorted((place, key[1]) for key, place in gone.items())),
        tuple(moved),
    )


def _places(schedule: Schedule) -> dict[tuple[int, Action], Place]:
    """A reduction stands on several devices; everything else of a valid schedule on one."""
    return {
        (device, action): Place(device, position)
        for device, program in enumerate(schedule.program)
        for position, action in enumerate(program)
    }


def _fields(before: Schedule, after: Schedule) -> dict[str, tuple[Any, Any]]:
    old, new = _values(before), _values(after)
    return {name: (old[name], new[name]) for name in old if old[name] != new[name]}


def _values(schedule: Schedule) -> dict[str, Any]:
    """The fields of the file, but for the program."""
    layout = schedule.layout
    return {
        "name": schedule.name,
        "devices": layout.num_devices,
        "microbatches": layout.num_microbatches,
        "sequence": layout.sequences[0] if layout.alike else layout.sequences,
        "splits": layout.splits[0] if layout.alike else layout.splits,
        "layers": layout.layers,
        "directions": tuple((entry.name, entry.placement, entry.microbatches) for entry in layout.directions),
        "ranks": layout.ranks,
        "design": None if schedule.design is None else dict(schedule.design),
    }


def _longest_rising(values: Sequence[int]) -> set[int]:
    """Indices of a longest rising subsequence of distinct numbers."""
    # Of each length, the least value that such a subsequence ends with, and where that is.
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [value]
        last[length : length + 1] = [index]
    found: set[int] = set()
    index = last[-1] if last else -1
    while index >= 0:
        found.add(index)
        index = before[index]
    return found
