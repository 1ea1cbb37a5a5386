"""How urgent an action of two opposing Vs is: a weighted sum over where it stands, which list scheduling ranks by.

No one weighting is best: which gap an action falls into is a matter of luck, and differs from shape to shape. A rule
is one weighting; a generator tries several and keeps the fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contraflow.designer.format.schedule import Kind, Layout

from .list_scheduling import Jobs


@dataclass(frozen=True, slots=True)
class Weights:
    """What the urgency of an action grows by, from where it stands. All depths are from 0 to 1.

    `depth` is its stage's in the pipeline, `subsequence` its own in the microbatch, `unit` counts basic units,
    `second_leg` holds on the way back of a V and `second_leg_depth` is the stage's depth there, `up` holds for the
    second direction: where both are alike, they meet and wait for one another.
    """

    constant: float = 0.0
    depth: float = 0.0
    subsequence: float = 0.0
    unit: float = 0.0
    second_leg: float = 0.0
    second_leg_depth: float = 0.0
    up: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """One weighting, by kind of action; the kinds say whether backwards are split.

    A `mirrored` rule plans from the end of the step to its beginning: read backwards, a schedule is one of the same
    shape whose forwards take what backwards took.
    """

    weights: tuple[tuple[Kind, Weights], ...]
    mirrored: bool = False

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind for kind, _ in self.weights)


def whole(forward: Sequence[float], backward: Sequence[float], mirrored: bool = False) -> Rule:
    """A rule for whole backwards."""
    return Rule((("F", Weights(*forward)), ("B", Weights(*backward))), mirrored)


def split(
    forward: Sequence[float], backward_input: Sequence[float], backward_weight: Sequence[float]
) -> Rule:
    """A rule for backwards as I and W."""
    kinds: tuple[Kind, ...] = ("F", "I", "W")
    weights = (Weights(*forward), Weights(*backward_input), Weights(*backward_weight))
    return Rule(tuple(zip(kinds, weights, strict=True)))


def ordered(rule: Rule, jobs: Jobs, unit: Sequence[int]) -> list[int]:
    """Jobs of the rule's kinds from the most urgent on; of equals backwards first, then down, then older units."""
    layout, num_slots = jobs.layout, jobs.num_slots
    keys = _keys(rule, layout, unit)
    starts = sorted(
        (number * num_slots for number in range(len(jobs.kinds))),
        key=lambda start: "BIFW".index(jobs.kinds[start // num_slots]),
    )
    microbatches = sorted(range(layout.num_microbatches), key=lambda m: (layout.direction_of[m], unit[m]))
    order = [
        start + layout.slot(stage, m, q)
        for start in starts
        for m in microbatches
        for q in range(len(layout.splits[m]))
        for stage in range(layout.num_stages)
    ]
    return sorted(order, key=keys.__getitem__)


def _keys(rule: Rule, layout: Layout, unit: Sequence[int]) -> list[float]:
    """By job: the least is the most urgent."""
    found: list[float] = []
    num_stages, lengths = layout.num_stages, [len(split) for split in layout.splits]
    for _, weights in rule.weights:
        by_stage = []
        for stage in range(num_stages):
            depth = stage / num_stages
            urgency = weights.constant + weights.depth * depth
            if 2 * stage >= num_stages:
                urgency += weights.second_leg + weights.second_leg_depth * depth
            by_stage.append(urgency)
        by_cell = [
            weights.unit * unit[m] + weights.up * layout.direction_of[m] + weights.subsequence * q / length
            for m, length in enumerate(lengths)
            for q in range(length)
        ]
        found += [-(stage + cell) for stage in by_stage for cell in by_cell]
    return found
