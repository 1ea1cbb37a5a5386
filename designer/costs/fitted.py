"""A law behind measured times: what an action takes in any stage of the same model, on any tokens.

A layer costs time for itself, its tokens, those before them, and the attention of the one to the other; embedding and
head cost time for themselves and their tokens; and every action has an overhead. No part costs less than nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from contraflow.designer.format.profile import PartTime, Profile

TOLERANCE = 1e-9
"""Of a relative residual: what is less is rounding."""


@dataclass(frozen=True, slots=True)
class Law:
    """Coefficients by kind of action, in the order of `features`."""

    coefficients: Mapping[str, Sequence[float]]
    error: float
    """How far the law is off on what it was fitted to: the mean relative error."""

    def seconds(self, kind: str, layers: int, first: bool, last: bool, start: int, stop: int) -> float | None:
        """What such an action takes; None for a kind of which no time was measured."""
        known = self.coefficients.get(kind)
        return None if known is None else _dot(known, features(layers, first, last, start, stop))


def features(layers: int, first: bool, last: bool, start: int, stop: int) -> list[float]:
    """What the time of an action grows with. Where two cannot be told apart, the time goes to the one in front."""
    tokens = stop - start
    each = [1.0, tokens, start, tokens * start, tokens * tokens]
    ends = [end * value for end in (first, last) for value in (1.0, tokens)]
    return [*(layers * value for value in each), *ends, 1.0]


def fit(profile: Profile) -> Law | None:
    """The law that comes nearest to a profile, relatively; None where the profile does not know its layers."""
    points = list(_points(profile))
    if not points:
        return None
    coefficients, errors = {}, []
    for kind in sorted({point.kind for point in points}):
        rows, found = [], [point for point in points if point.kind == kind]
        for layers, first, last, _, start, stop, seconds in found:
            rows.append([value / seconds for value in features(layers, first, last, start, stop)])
        coefficients[kind] = _least_squares(rows)
        errors += [abs(_dot(coefficients[kind], row) - 1) for row in rows]
    return Law(coefficients, sum(errors) / len(errors))


def _points(profile: Profile) -> Iterable[PartTime]:
    """All that was measured of stages whose layers are known; what took no time says nothing."""
    last = len(profile.layers) - 1
    for _, stage, kind, start, stop, seconds in profile.actions:
        if stage <= last and seconds:
            yield PartTime(profile.layers[stage], stage == 0, stage == last, kind, start, stop, seconds)
    yield from (part for part in profile.parts if part.seconds)


def _least_squares(rows: Sequence[Sequence[float]]) -> list[float]:
    """The coefficients of at least 0 with which the rows come nearest to 1: Lawson and Hanson's active set."""
    norms = [sqrt(sum(row[j] * row[j] for row in rows)) or 1.0 for j in range(len(rows[0]))]
    columns = [[row[j] / norm for row in rows] for j, norm in enumerate(norms)]
    gram = [[_dot(one, other) for other in columns] for one in columns]
    target = [sum(column) for column in columns]
    found, used = [0.0] * len(columns), list[int]()
    for _ in range(3 * len(columns)):
        slopes = [target[j] - _dot(gram[j], found) for j in range(len(columns))]
        best = max((j for j in range(len(columns)) if j not in used), key=lambda j: slopes[j], default=None)
        if best is None or slopes[best] <= TOLERANCE * sqrt(len(rows)):
            break
        used.append(best)
        while used:
            wanted = _solve([[gram[i][j] for j in used] for i in used], [target[i] for i in used])
            if all(value > 0 for value in wanted):
                break
            # As far towards that as no coefficient falls below 0; those that reach it leave.
            step = min(
                found[j] / (found[j] - value) for j, value in zip(used, wanted, strict=True) if value <= 0
            )
            for j, value in zip(used, wanted, strict=True):
                found[j] += step * (value - found[j])
            gone = [j for j, value in zip(used, wanted, strict=True) if value <= 0 and found[j] <= 1e-12]
            used = [j for j in used if j not in gone]
            for j in gone:
                found[j] = 0.0
        for j, value in zip(used, wanted if used else (), strict=True):
            found[j] = value
    return [value / norm for value, norm in zip(found, norms, strict=True)]


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss's elimination, the largest pivot first; a column that adds nothing to those before it gets 0."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        if abs(rows[column][column]) < 1e-13:
            rows[column] = [float(j == column) for j in range(size)] + [0.0]
        for row in range(size):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    return [rows[i][size] / rows[i][i] for i in range(size)]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
