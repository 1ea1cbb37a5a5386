"""Where a search stands: the best program, all that is proven, and who is to judge what is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic

from contraflow.designer.design import Preview

from .judge import SLACK, Judge
from .pose import room
from .problem import Problem

ROUNDING = 2e-5
"""Of a makespan: what the rounding of prices to ticks may come to."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The best program that is known, and what is proven of all others."""

    shown: Preview
    """The best: checked, simulated, within the cap."""
    bound: float
    """No program of the layout within the cap has a shorter makespan."""
    seconds: float
    """Since the search began."""
    how: str
    """What found the best."""
    better: bool
    """Whether it is better than what was known before."""
    optimal: bool
    """Whether there is none better, but for the rounding of prices to ticks."""


class Standing:
    """The best so far. `problem` has less room than at first where a program held more than it was taken for."""

    def __init__(self, judge: Judge, problem: Problem, bound: int):
        self.judge, self.problem, self.bound = judge, problem, bound
        self.best: Preview | None = None
        self.sequence: list[int] = []
        """Of the best."""
        self._how, self._began = "", monotonic()

    @property
    def makespan(self) -> float:
        """Of the best; without one, more than any."""
        return float("inf") if self.best is None else self.best.makespan

    @property
    def optimal(self) -> bool:
        """Whether it is proven that nothing is better."""
        return self.bound * self.problem.tick >= self.makespan * (1 - ROUNDING)

    def judged(self, sequence: Sequence[int], how: str) -> bool:
        """Whether a sequence is better than the best; then it is the best."""
        if self.problem.starts(sequence)[1] * self.problem.tick > self.makespan * (1 + ROUNDING):
            return False
        return self.take(self.judge.shown(self.problem.program(sequence)), sequence, how)

    def take(self, shown: Preview, sequence: Sequence[int], how: str) -> bool:
        """The same of a program that is already shown."""
        if not self.judge.keeps(shown):
            self._tighten(shown, sequence)
            return False
        if shown.makespan >= self.makespan * (1 - SLACK):
            return False
        self.best, self.sequence, self._how = shown, list(sequence), how
        return True

    def progress(self, *, better: bool = False) -> Progress:
        """Raises AssertionError before there is a program."""
        assert self.best is not None
        bound = min(self.bound * self.problem.tick, self.makespan)
        seconds = monotonic() - self._began
        return Progress(self.best, bound, seconds, self._how, better, self.optimal)

    def _tighten(self, shown: Preview, sequence: Sequence[int]) -> None:
        found = room(self.judge, shown, self.problem.peaks(sequence))
        less = [min(one, other) for one, other in zip(found, self.problem.room, strict=True)]
        self.problem = replace(self.problem, room=less)
