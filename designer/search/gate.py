"""What may take up memory: two gates in front of list scheduling, neither of which ever lets it get stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .problem import Problem


class Gate(Protocol):
    """Decides which jobs may start, told of every one that does."""

    def admits(self, job: int) -> bool: ...
    def started(self, job: int) -> None: ...


class UnitGate:
    """Lets a job of a unit start only where room is left for what older units have yet to bring to its device.

    The concatenation gate of generators/concatenation.py, for every layout and for both directions of time. It can
    get stuck only where a single unit has no room.
    """

    def __init__(self, problem: Problem, unit: Sequence[int]):
        self._problem, self._unit = problem, unit
        self._level = [0] * problem.num_devices
        self._to_come = [[0] * (max(unit, default=0) + 1) for _ in range(problem.num_devices)]
        for job, here in enumerate(problem.device):
            gain = problem.opens[job] - problem.closes[job]
            if gain > 0:
                self._to_come[here][unit[job]] += gain

    def admits(self, job: int) -> bool:
        problem, here = self._problem, self._problem.device[job]
        if problem.opens[job] <= problem.closes[job]:
            return True
        older = sum(self._to_come[here][: self._unit[job]])
        return self._level[here] + older + problem.opens[job] <= problem.room[here]

    def started(self, job: int) -> None:
        problem, here = self._problem, self._problem.device[job]
        gain = problem.opens[job] - problem.closes[job]
        self._level[here] += gain
        if gain > 0:
            self._to_come[here][self._unit[job]] -= gain


class ReferenceGate:
    """Lets a job overtake others of a sequence that fits only where the rest of that sequence would still fit.

    What remains of the sequence can then be run from any moment on, so it never gets stuck.
    """

    def __init__(self, problem: Problem, sequence: Sequence[int]):
        self._problem = problem
        self._level = [0] * problem.num_devices
        end = problem.num_jobs
        self._next, self._previous = [end] * (end + 1), [-1] * (end + 1)
        self._first = [end] * problem.num_devices
        last = [-1] * problem.num_devices
        for job in sequence:
            here = problem.device[job]
            if last[here] < 0:
                self._first[here] = job
            else:
                self._next[last[here]] = job
            self._previous[job] = last[here]
            last[here] = job

    def admits(self, job: int) -> bool:
        problem = self._problem
        opens, closes = problem.opens, problem.closes
        gain = opens[job] - closes[job]
        here = problem.device[job]
        other = self._first[here]
        if other == job:
            return True
        level, room, follows = self._level[here] + opens[job], problem.room[here], self._next
        if level > room:
            return False
        if gain <= 0:
            return True
        level -= closes[job]
        while other != job:
            level += opens[other]
            if level > room:
                return False
            level -= closes[other]
            other = follows[other]
        return True

    def started(self, job: int) -> None:
        problem = self._problem
        here = problem.device[job]
        self._level[here] += problem.opens[job] - problem.closes[job]
        before, behind = self._previous[job], self._next[job]
        if before < 0:
            self._first[here] = behind
        else:
            self._next[before] = behind
        self._previous[behind] = before
