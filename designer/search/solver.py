"""What CP-SAT does beside a climb, in a thread of its own: windows over the best sequence, or proofs of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from random import Random
from time import monotonic

from .problem import Problem
from .window import Answer, Window

BUILDING = 5e-5
"""Deterministic time that stands for what it takes to build a window, by job."""

FEWEST, FIRST = 24, 80
"""Jobs that a window has at least, and at first."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a task came to: a sequence if there is a new one, and a bound of the makespan if one is proven."""

    sequence: list[int] | None
    bound: int = 0


class Solver:
    """Does one task at a time. Tasks are measured in deterministic time: equal seeds and tasks give equal reports."""

    def __init__(self, seed: int, ends: float):
        """Nothing runs for longer than until the monotonic clock shows `ends`."""
        self._random, self._ends = Random(seed), ends
        self._thread = ThreadPoolExecutor(1, "solver")
        self._window: Window | None = None
        self._closing = False
        self._wanted = float(FIRST)
        self._tasks: list[Future[Report]] = []

    def improve(self, problem: Problem, sequence: Sequence[int], effort: float) -> Future[Report]:
        """Windows one after the other, each over what came of the one before."""
        return self._submitted(lambda: self._improved(problem, list(sequence), effort))

    def prove(self, problem: Problem, sequence: Sequence[int], effort: float) -> Future[Report]:
        """Any program that is better than the sequence, or the proof that there is none."""
        return self._submitted(lambda: self._proven(problem, list(sequence), effort))

    def close(self) -> None:
        """End what runs, at once."""
        self._closing = True
        while wait(self._tasks, timeout=0.02).not_done:
            if self._window is not None:
                self._window.stop()
        self._thread.shutdown()

    def _submitted(self, task: Callable[[], Report]) -> Future[Report]:
        future = self._thread.submit(task)
        self._tasks = [future]
        return future

    def _improved(self, problem: Problem, sequence: list[int], effort: float) -> Report:
        makespan = problem.starts(sequence)[1]
        while effort > 0 and not self._over:
            window = self._drawn(problem, sequence)
            answer = self._run(window, partial(window.solve, effort, *self._limits))
            effort -= answer.effort + BUILDING * len(window.inside)
            # As large as can be searched through within a part of the task.
            self._wanted = max(FEWEST, self._wanted * (1.05 if answer.finished else 0.8))
            if answer.sequence is not None and problem.starts(answer.sequence)[1] <= makespan:
                sequence = answer.sequence
                makespan = problem.starts(sequence)[1]
        return Report(sequence)

    def _proven(self, problem: Problem, sequence: list[int], effort: float) -> Report:
        window = Window(problem, sequence, 0, problem.starts(sequence)[1] + 1)
        answer = self._run(window, partial(window.prove, window.makespan, effort, *self._limits))
        return Report(answer.sequence, answer.bound)

    def _drawn(self, problem: Problem, sequence: Sequence[int]) -> Window:
        """Of about as many jobs as wanted, anywhere."""
        makespan = problem.starts(sequence)[1]
        width = max(
            1, int(makespan * min(1.0, self._wanted * self._random.uniform(0.5, 1.5) / problem.num_jobs))
        )
        first = self._random.randint(-width // 2, makespan - width // 2)
        return Window(problem, sequence, first, first + width)

    def _solved(self, window: Window, effort: float) -> Answer:
        return window.solve(effort, *self._limits)

    def _run(self, window: Window, solve: Callable[[], Answer]) -> Answer:
        if self._over:
            return Answer(None, False, 0, 0.0)
        self._window = window
        try:
            return solve()
        finally:
            self._window = None

    @property
    def _limits(self) -> tuple[int, float]:
        return self._random.randrange(2**31), max(0.01, self._ends - monotonic())

    @property
    def _over(self) -> bool:
        return self._closing or monotonic() >= self._ends
