"""A stretch of time in which the order is free, as a model for OR-tools' CP-SAT; elsewhere the order stays.

Whatever a window's jobs do to the rest is known beforehand: one that ends at t with a tail of q makes for a makespan
of at least t + q. So the makespan within a window is exact, though the window leaves out all the rest. A window over
the whole schedule leaves out nothing: what is proven of it is proven of every program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd

from ortools.sat.python import cp_model

from .problem import Problem
from .symmetry import interchangeable


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a window."""

    sequence: list[int] | None
    """The best that was found, if any was."""
    finished: bool
    """Whether it is known that there is none better."""
    bound: int
    """No order of the window gives a shorter makespan (of `prove` alone)."""
    effort: float
    """Deterministic time that it took."""


class Window:
    """The jobs of a sequence that start from `first` on and before `last`, to be put in a better order."""

    def __init__(self, problem: Problem, sequence: Sequence[int], first: int, last: int):
        self.problem, self.sequence = problem, sequence
        self.start, self.makespan = problem.starts(sequence)
        self.tail = problem.tails(sequence)
        self.inside = [job for job in sequence if first <= self.start[job] < last]
        self._first, self._last = first, last
        self._begin: dict[int, cp_model.IntVar] = {}
        self._order: dict[tuple[int, int], cp_model.LinearExprT] = {}
        self._model, self._solver = cp_model.CpModel(), cp_model.CpSolver()

    def stop(self) -> None:
        """End `solve`, which another thread runs."""
        self._solver.stop_search()

    def solve(self, effort: float, seed: int, seconds: float) -> Answer:
        """An order with the least makespan and, of those, with the earliest ends of all devices.

        `effort` is in CP-SAT's deterministic time; `seconds` only guards against its misjudging it.
        """
        goal = self._pose(self.makespan)
        marks = self._marks()
        self._model.minimize(self.problem.num_devices * self.problem.num_devices * goal + sum(marks))
        for job, variable in self._begin.items():
            self._model.add_hint(variable, self.start[job])
        return self._solved(effort, seed, seconds)

    def prove(self, below: int, effort: float, seed: int, seconds: float) -> Answer:
        """Any order with a makespan of less than `below`, or the proof that there is none."""
        goal = self._pose(below - 1)
        for jobs in interchangeable(self.problem):
            for one, other in pairwise(jobs):
                self._model.add(self._begin[one] <= self._begin[other])
        self._model.minimize(goal)
        answer = self._solved(effort, seed, seconds)
        return replace(answer, bound=below) if answer.finished and answer.sequence is None else answer

    def _solved(self, effort: float, seed: int, seconds: float) -> Answer:
        parameters = self._solver.parameters
        parameters.num_workers = 1  # one alone is reproducible
        # Neither pays off: the models are small, and all relations but disjunctions are of two variables.
        parameters.cp_model_presolve = False
        parameters.linearization_level = 0
        parameters.random_seed = seed
        parameters.max_deterministic_time = effort
        parameters.max_time_in_seconds = seconds
        parameters.catch_sigint_signal = False
        status = self._solver.solve(self._model)
        finished = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        # What is infeasible has no bound of its own.
        bound = 0 if status == cp_model.INFEASIBLE else int(self._solver.best_objective_bound)
        sequence = None
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            sequence = self._ordered({job: self._solver.value(begin) for job, begin in self._begin.items()})
        return Answer(sequence, finished, bound, self._solver.deterministic_time)

    def _ordered(self, begin: dict[int, int]) -> list[int]:
        place = {job: index for index, job in enumerate(self.sequence)}
        duration = self.problem.duration
        inside = sorted(begin, key=lambda job: (begin[job], begin[job] + duration[job], place[job]))
        before = [job for job in self.sequence if self.start[job] < self._first]
        behind = [job for job in self.sequence if self.start[job] >= self._last]
        return before + inside + behind

    def _pose(self, most: int) -> cp_model.IntVar:
        """All that binds the jobs inside; the variable is their makespan, of at most `most`."""
        problem, model, duration = self.problem, self._model, self.problem.duration
        free, level, least = self._before()
        following = self._behind()
        goal = model.new_int_var(min(least, most), most, "makespan")
        intervals: list[list[cp_model.IntervalVar]] = [[] for _ in range(problem.num_devices)]
        within = set(self.inside)
        for job in self.inside:
            here, early = problem.device[job], free[problem.device[job]]
            for source, delay in problem.waits[job]:
                if source not in within:
                    early = max(early, self.start[source] + duration[source] + delay)
            tail = max(problem.rest[job], following[here])
            for target, delay in problem.followers[job]:
                if target not in within:
                    tail = max(tail, delay + duration[target] + self.tail[target])
            late = most - tail - duration[job]
            if late < early:
                model.add_bool_or([])  # no order is that fast
                late = early
            begin = self._begin[job] = model.new_int_var(early, late, str(problem.actions[job]))
            intervals[here].append(model.new_fixed_size_interval_var(begin, duration[job], ""))
            model.add(goal >= begin + duration[job] + tail)
        for job in self.inside:
            for target, delay in problem.followers[job]:
                if target in within:
                    model.add(self._begin[target] >= self._begin[job] + duration[job] + delay)
        self._leads = self._closure(within)
        for here, lane in enumerate(intervals):
            model.add_no_overlap(lane)
            self._keep_within_room(
                here, [job for job in self.inside if problem.device[job] == here], level[here]
            )
        return goal

    def _before(self) -> tuple[list[int], list[int], int]:
        """By device, from when on it is free and what it holds then; and the makespan of what has begun before."""
        problem, least = self.problem, 0
        free, level = [0] * problem.num_devices, [0] * problem.num_devices
        for job in self.sequence:
            if self.start[job] < self._first:
                here = problem.device[job]
                free[here] = self.start[job] + problem.duration[job]
                level[here] += problem.opens[job] - problem.closes[job]
                least = max(least, free[here] + problem.rest[job])
        return free, level, least

    def _behind(self) -> list[int]:
        """By device, how long it takes from the start of its first job behind the window to the makespan."""
        problem, following = self.problem, [0] * self.problem.num_devices
        for job in reversed(self.sequence):
            if self.start[job] >= self._last:
                following[problem.device[job]] = problem.duration[job] + self.tail[job]
        return following

    def _marks(self) -> list[cp_model.IntVar]:
        """By device: the longest way through the jobs inside."""
        problem, model = self.problem, self._model
        following, within = self._behind(), set(self.inside)
        marks = [model.new_int_var(0, self.makespan, "") for _ in range(problem.num_devices)]
        for job, begin in self._begin.items():
            here = problem.device[job]
            tail = max(problem.rest[job], following[here])
            for target, delay in problem.followers[job]:
                if target not in within:
                    tail = max(tail, delay + problem.duration[target] + self.tail[target])
            model.add(marks[here] >= begin + problem.duration[job] + tail)
        return marks

    def _keep_within_room(self, here: int, jobs: list[int], level: int) -> None:
        """Whenever a job takes up memory: what was held at first, and what those before it have changed."""
        problem = self.problem
        opens, closes, room = problem.opens, problem.closes, problem.room[here]
        if level + sum(opens[job] for job in jobs) <= room:
            return
        unit = gcd(*(opens[job] for job in jobs), *(closes[job] for job in jobs))
        for job in jobs:
            if opens[job]:
                others = [other for other in jobs if other != job and opens[other] != closes[other]]
                held = sum(
                    (opens[other] - closes[other]) // unit * self._goes_first(other, job) for other in others
                )
                self._model.add(held <= (room - level - opens[job]) // unit)

    def _goes_first(self, one: int, other: int) -> cp_model.LinearExprT:
        """1 where the one of two jobs of a device goes before the other, else 0."""
        if (one, other) in self._order:
            return self._order[one, other]
        model, begin, duration = self._model, self._begin, self.problem.duration
        if self._leads[one] >> other & 1 or self._leads[other] >> one & 1:
            first = self._leads[one] >> other & 1
            self._order[one, other], self._order[other, one] = first, 1 - first
        else:
            literal = model.new_bool_var("")
            model.add(begin[other] >= begin[one] + duration[one]).only_enforce_if(literal)
            model.add(begin[one] >= begin[other] + duration[other]).only_enforce_if(~literal)
            self._order[one, other], self._order[other, one] = literal, 1 - literal
        return self._order[one, other]

    def _closure(self, within: set[int]) -> dict[int, int]:
        """For each job inside, as bits, those that wait for it, be it through others."""
        found: dict[int, int] = {}
        for job in reversed(self.inside):
            found[job] = 0
            for target, _ in self.problem.followers[job]:
                if target in within:
                    found[job] |= found[target] | 1 << target
        return found
