"""Forward-backward improvement behind a gate that always lets through what is known to fit, and climbing by it.

One *pass* list-schedules backwards in time, latest end first, then forwards, longest tail first (Li and Willis 1992;
Tormos and Lova 2001). Both runs keep to the memory that the sequence before them fits in (ReferenceGate), so that
each can move far from it and none gets stuck. A climb shakes the keys of a pass a little, improves what comes out
until nothing more is gained, and goes on from there unless it is worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from .gate import ReferenceGate
from .listing import listed
from .problem import Problem

SHAKES = (0.5, 1.0, 2.0, 4.0)
"""How far a key may be shaken, in longest durations."""

WORSE = 0.02
"""How often what is worse is gone on from, and how often a climb then returns to the best it knows."""


class Climb:
    """A sequence that gets better; equal seeds take equal steps."""

    def __init__(self, problem: Problem, sequence: Sequence[int], seed: float):
        self.problem, self._random = problem, Random(seed)
        self.best = self._current = list(sequence)
        self.makespan = self._level = problem.starts(sequence)[1]
        self._longest = max(problem.duration)

    def take(self, sequence: Sequence[int]) -> None:
        """Go on from a sequence that was found elsewhere."""
        self._current = list(sequence)
        self._level = self.problem.starts(sequence)[1]
        self._keep()

    def step(self) -> bool:
        """Shake and improve once; whether that gave a better one than any before."""
        draw = self._random
        found = one_pass(self.problem, self._current, self._shaken(), self._held_up())
        level = self.problem.starts(found)[1]
        found, level = improved(self.problem, found, level)
        if level <= self._level or draw.random() < WORSE:
            self._current, self._level = found, level
        if self._keep():
            return True
        if self._level > self.makespan and draw.random() < WORSE:
            self._current, self._level = self.best, self.makespan
        return False

    def _keep(self) -> bool:
        if self._level >= self.makespan:
            return False
        self.best, self.makespan = self._current, self._level
        return True

    def _shaken(self) -> list[float]:
        """By how much each job's key is off: of all jobs, or of those in a stretch of time."""
        draw, far = self._random, self._random.choice(SHAKES) * self._longest
        if draw.random() < 0.5:
            return [draw.uniform(-far, far) for _ in range(self.problem.num_jobs)]
        start, _ = self.problem.starts(self._current)
        width = self._level * draw.uniform(0.05, 0.3)
        first = draw.uniform(-width / 2, self._level - width / 2)
        return [draw.uniform(-far, far) if first <= time < first + width else 0.0 for time in start]

    def _held_up(self) -> dict[int, int]:
        """Times before which some jobs may not start, so that their devices can wait for something more urgent."""
        draw = self._random
        if draw.random() < 0.75:
            return {}
        start, _ = self.problem.starts(self._current)
        count = max(1, int(self.problem.num_jobs * draw.choice((0.01, 0.03, 0.1))))
        chosen = draw.sample(range(self.problem.num_jobs), count)
        return {job: start[job] + int(draw.random() * self._longest) for job in chosen}


def one_pass(
    problem: Problem,
    sequence: Sequence[int],
    shaken: Sequence[float] | None = None,
    held_up: Mapping[int, int] | None = None,
) -> list[int]:
    """A sequence in the order of its latest starts, which are told from its order backwards."""
    start, _ = problem.starts(sequence)
    duration, mirrored = problem.duration, problem.mirrored
    ends: list[float] = [-time - cost for time, cost in zip(start, duration, strict=True)]
    if shaken is not None:
        ends = [end + off for end, off in zip(ends, shaken, strict=True)]
    turned = listed(mirrored, ends, ReferenceGate(mirrored, sequence[::-1]))
    # Backwards, what starts a job is what ends it: the time from there on is its tail.
    ways = [-tail - cost for tail, cost in zip(turned.start, duration, strict=True)]
    return listed(problem, ways, ReferenceGate(problem, turned.sequence[::-1]), held_up).sequence


def improved(problem: Problem, sequence: list[int], level: int) -> tuple[list[int], int]:
    """Passes as long as each gives a shorter makespan, which is `level` at first."""
    while True:
        other = one_pass(problem, sequence)
        makespan = problem.starts(other)[1]
        if makespan >= level:
            return sequence, level
        sequence, level = other, makespan
