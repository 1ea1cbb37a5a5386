"""Random rules of list scheduling: what is urgent, as a weighted sum of where an action stands in the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from random import Random

from .climb import improved
from .gate import UnitGate
from .listing import listed
from .problem import Problem

LIKELY = (14.8, 10.6, 0.0, 0.0, 0.0, 23.9, 13.4, 0.0, 0.0, -100.0)
"""bsipipe's own, from which random ones begin; see generators/bsipipe.py."""

LAST = -100.0
"""Urgency of what only fills gaps."""


@dataclass(frozen=True)
class Rule:
    """Weights of an F: constant, stage, subsequence, unit, second leg; of a B or I the last four; and a W's urgency.

    Stage, subsequence and unit count from 0 to 1, the leg is 1 from half of the stages on. `alone` tells whether
    microbatches follow one another one by one, or one of every direction at a time.
    """

    weights: tuple[float, ...] = LIKELY
    alone: bool = False


def drawn(draw: Random) -> Rule:
    """Any rule that may be of use."""

    def sometimes(low: float, high: float) -> float:
        return draw.uniform(low, high) if draw.random() < 0.5 else 0.0

    forward = (
        draw.uniform(0, 25),
        draw.uniform(-5, 25),
        sometimes(-10, 10),
        sometimes(-20, 0),
        sometimes(-12, 12),
    )
    backward = (draw.uniform(0, 30), draw.uniform(0, 25), sometimes(-20, 0), sometimes(-12, 12))
    weight = LAST if draw.random() < 0.7 else draw.uniform(0, 30)
    return Rule((*forward, *backward, weight), draw.random() < 0.2)


def varied(rule: Rule, draw: Random) -> Rule:
    """A rule nearby."""
    weights = list(rule.weights)
    for _ in range(draw.randint(1, 3)):
        weights[draw.randrange(len(weights) - 1)] += draw.gauss(0, 3)
    return Rule(tuple(weights), rule.alone)


class Rules:
    """List schedules of a problem by rules."""

    def __init__(self, problem: Problem):
        self.problem = problem
        layout, most = problem.layout, max(problem.unit, default=0) + 1
        last = layout.num_stages
        self._features: list[tuple[str, tuple[float, ...], int]] = []
        for action, unit in zip(problem.actions, problem.unit, strict=True):
            microbatch = action.microbatch or 0
            depth = (action.subsequence or 0) / len(layout.splits[microbatch])
            where = (action.stage / last, depth, unit / most, float(2 * action.stage >= last))
            self._features.append((action.kind, where, layout.direction_of[microbatch]))
        self._alone = [
            problem.unit[job] * len(layout.directions) + max(layout.direction_of[action.microbatch or 0], 0)
            for job, action in enumerate(problem.actions)
        ]

    def sequence(self, rule: Rule) -> list[int] | None:
        """What a rule gives, improved by passes; None where it gets stuck."""
        gate = UnitGate(self.problem, self._alone if rule.alone else self.problem.unit)
        found = listed(self.problem, self._keys(rule.weights), gate).sequence
        if len(found) < self.problem.num_jobs or not self.problem.fits(found):
            return None
        return improved(self.problem, found, self.problem.starts(found)[1])[0]

    def _keys(self, weights: Sequence[float]) -> list[float]:
        constant, forward, backward, weight = weights[0], weights[1:5], weights[5:9], weights[9]
        keys = []
        for kind, where, direction in self._features:
            if kind == "W":
                urgency = weight
            elif kind == "F":
                urgency = constant + sum(map(mul, forward, where))
            else:
                urgency = sum(map(mul, backward, where))
            # Of equals backwards go first, then the directions in their order.
            keys.append(1e-6 * direction + 1e-5 * (kind == "F") - urgency)
        return keys
