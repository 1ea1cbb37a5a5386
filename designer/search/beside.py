"""What the solver is given to do beside the rounds of a climb: windows over the best, or proofs that it is the best."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from .standing import Standing

if TYPE_CHECKING:
    from .solver import Report, Solver

WINDOWS = 0.08
"""Deterministic time of the windows beside one round."""

PROVABLE = 600
"""Jobs of a problem that is small enough to be tried as a whole."""

PROOF, LONGER = 2.0, 4
"""Deterministic time of the first proof, and how many times as long each further one takes."""

ROUNDS_OF_PROOF = 8
"""Rounds beside which a proof of deterministic time 1 runs."""


class Beside:
    """One task of the solver after another, each taken in after a number of rounds that is known when it begins."""

    def __init__(self, solver: Solver, standing: Standing):
        self._solver, self._standing = solver, standing
        self._future: Future[Report] | None = None
        self._rounds = 0
        self._proof = PROOF
        self._proves = False
        self._walked: list[int] = []
        """What windows have made of the best: as good, and other."""

    def begin(self, stale: int) -> None:
        """Give the solver something to do, if it has nothing; proofs once rounds have been `stale`."""
        if self._future is not None:
            return
        problem, best = self._standing.problem, self._standing.sequence
        if problem.num_jobs <= PROVABLE and stale and not self._proves:
            self._future = self._solver.prove(problem, best, self._proof)
            self._rounds, self._proves = max(1, round(ROUNDS_OF_PROOF * self._proof)), True
            self._proof *= LONGER
            return
        walked = self._walked
        if not walked or problem.starts(walked)[1] > problem.starts(best)[1]:
            walked = best
        self._future, self._rounds, self._proves = self._solver.improve(problem, walked, WINDOWS), 1, False

    def hear(self) -> None:
        """Take in a bound, which changes nothing but when a search ends, as soon as it is there."""
        if self._future is not None and self._proves and self._future.done():
            self._standing.bound = max(self._standing.bound, self._future.result().bound)

    def round_over(self) -> tuple[list[int], str] | None:
        """After a round: what was found, and how, if the task was to end here. Waits for it."""
        self._rounds -= 1
        if self._future is None or self._rounds:
            return None
        self.hear()
        report = self._future.result()
        self._future = None
        if report.sequence is None:
            return None
        if not self._proves:
            self._walked = report.sequence
        return report.sequence, "a proof" if self._proves else "a window"
