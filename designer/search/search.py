"""The search: rules, climbs, windows and proofs, all judged by the designer's own rules.

All that is drawn comes from the seed, and all work is counted in steps and in CP-SAT's deterministic time, not in
seconds: equal searches find equal programs in equal order, and time only tells how far they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from random import Random
from time import monotonic

from contraflow.designer.costs import CostModel
from contraflow.designer.design import preview
from contraflow.designer.format.schedule import Schedule

from .beside import Beside
from .bound import lower_bound
from .climb import Climb
from .judge import Cap, Judge
from .pose import pose
from .problem import Problem
from .rules import LIKELY, Rule, Rules, drawn, varied
from .standing import Progress, Standing

FOREVER = 1e9
"""Seconds."""

GIVEN = "the file"
"""What found the program from which a search begins, if it keeps within the cap."""

TRIES = 60_000
"""Jobs that are list-scheduled by rules at first, passes not counted."""

ROUND = 30_000
"""Jobs that a round of climbing shakes."""

STALE = 12
"""Rounds without a better program after which a climb begins anew, by turns by another rule and with the best."""

GIB = 2**30

REPAIRS = 20
"""Rules by which a start is looked for."""


class NoStart(ValueError):
    """No program was found that keeps within the cap; the one-line message says what would do."""


def search(
    schedule: Schedule,
    cost_model: CostModel,
    cap: Cap,
    *,
    seed: int = 0,
    seconds: float = FOREVER,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Better and better programs of a schedule's layout: first the given one, if it keeps within the cap.

    Ends after `seconds`, soon after `stop()` says so, or with the proof that none is better. Yields often, so that
    it can be shown and left at any time; every program that it yields is valid, within the cap, and none is worse than
    the one before.
    Raises InvalidScheduleError, CostError, NoStart, or ModuleNotFoundError where OR-tools is not installed.
    """
    ends = monotonic() + seconds
    from .solver import Solver

    judge = Judge(schedule, cost_model, cap)
    given = preview(schedule, cost_model)
    problem, sequence = pose(judge, given)
    standing = Standing(judge, problem, lower_bound(problem, sequence))

    def over() -> bool:
        return standing.optimal or stop() or monotonic() >= ends

    draw = Random(seed)
    if not standing.take(given, sequence, GIVEN):
        _repair(standing, draw, over)
    yield standing.progress(better=True)
    # Reductions that the file puts late are posted as early as can be.
    if standing.judged(sequence, "earlier reductions"):
        yield standing.progress(better=True)
    yield from _by_rules(standing, draw, over)
    if not over():
        with closing(Solver(seed, ends)) as solver:
            yield from _in_rounds(standing, Beside(solver, standing), draw, over)
    yield standing.progress()


def _repair(standing: Standing, draw: Random, over: Callable[[], bool]) -> None:
    """Find any program that keeps within the cap. Raises NoStart."""
    for attempt in range(REPAIRS):
        if over():
            raise NoStart("the search ended before it found a program that keeps within the cap")
        rule = Rule(LIKELY if attempt < 4 else drawn(draw).weights, alone=attempt % 2 == 0)
        sequence = Rules(standing.problem).sequence(rule)
        if sequence is not None and standing.judged(sequence, "a rule"):
            return
    # With room for one microbatch alone: no program holds less activation.
    problem = replace(standing.problem, room=_of_one_microbatch(standing.problem))
    sequence = Rules(problem).sequence(Rule(alone=True))
    if sequence is not None and standing.judged(sequence, "a rule"):
        return
    raise NoStart(_too_small(standing, sequence))


def _of_one_microbatch(problem: Problem) -> list[int]:
    """By device: what the largest microbatch takes up, all of it before its first backward."""
    most = [0] * problem.num_devices
    for microbatch in range(problem.layout.num_microbatches):
        alone = [0] * problem.num_devices
        for job, action in enumerate(problem.actions):
            if action.microbatch == microbatch:
                alone[problem.device[job]] += problem.opens[job]
        most = list(map(max, most, alone))
    return most


def _by_rules(standing: Standing, draw: Random, over: Callable[[], bool]) -> Iterator[Progress]:
    rules, best = Rules(standing.problem), Rule()
    level: float | None = None
    for attempt in range(max(8, TRIES // standing.problem.num_jobs)):
        if over():
            return
        rule = Rule(alone=attempt == 1)
        if attempt >= 2:
            rule = varied(best, draw) if draw.random() < 0.5 else drawn(draw)
        sequence = rules.sequence(rule)
        if sequence is None:
            continue
        makespan = standing.problem.starts(sequence)[1]
        if level is None or makespan <= level:
            best, level = rule, makespan
        if standing.judged(sequence, "a rule"):
            yield standing.progress(better=True)


def _in_rounds(
    standing: Standing, beside: Beside, draw: Random, over: Callable[[], bool]
) -> Iterator[Progress]:
    """Climbs, with the solver beside them, until it is over."""
    climb = Climb(standing.problem, standing.sequence, draw.random())
    steps = max(4, ROUND // standing.problem.num_jobs)
    stale = 0
    while True:
        beside.begin(stale)
        before = standing.makespan
        for _ in range(steps):
            found = climb.step()
            beside.hear()
            if found and standing.judged(climb.best, "a climb"):
                yield standing.progress(better=True)
            if over():
                return
        other = beside.round_over()
        if other is not None and standing.judged(*other):
            climb.take(standing.sequence)
            yield standing.progress(better=True)
        yield standing.progress()
        if over():
            return
        stale = stale + 1 if standing.makespan >= before else 0
        if climb.problem is not standing.problem or (stale and stale % STALE == 0):
            anew = (stale // STALE) % 2 == 1
            start = _other_start(standing.problem, draw) if anew else None
            climb = Climb(standing.problem, start or standing.sequence, draw.random())


def _other_start(problem: Problem, draw: Random) -> list[int] | None:
    """The best of a few random rules."""
    rules = Rules(problem)
    tries = max(4, TRIES // 4 // problem.num_jobs)
    found = [rules.sequence(drawn(draw)) for _ in range(tries)]
    return min(filter(None, found), key=lambda sequence: problem.starts(sequence)[1], default=None)


def _too_small(standing: Standing, sequence: list[int] | None) -> str:
    """`sequence` holds as little as can be."""
    judge, problem = standing.judge, standing.problem
    if judge.cap.in_bytes:
        least = "" if sequence is None else _least(judge.held(judge.shown(problem.program(sequence))))
        return f"no program was found that keeps within {judge.cap.amount / GIB:.2f} GiB{least}"
    needed = _of_one_microbatch(problem)
    most = max(needed)
    whole = problem.layout.longest * problem.layout.num_stages / problem.layout.num_devices
    return (
        f"no program was found that keeps within {judge.cap.amount:g} whole microbatches: device "
        f"{needed.index(most)} holds {most / whole:.4g} of one microbatch alone, before its first backward"
    )


def _least(held: list[float]) -> str:
    most = max(held)
    return f": with one microbatch after the other device {held.index(most)} still holds {most / GIB:.2f} GiB"
