"""Which microbatches can change places without a difference to any program's makespan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from .problem import Problem


def interchangeable(problem: Problem) -> list[list[int]]:
    """Groups of first jobs, one for each microbatch, which may be taken to start in that order.

    Microbatches of one direction that cost the same are alike. So are two directions that mirror one another.
    """
    alike: dict[Hashable, list[int]] = defaultdict(list)
    layout = problem.layout
    costs = _costs(problem)
    for microbatch, first in enumerate(_first_jobs(problem)):
        alike[layout.direction_of[microbatch], costs[microbatch]].append(first)
    groups = list(alike.values())
    if len(groups) == 2 and _mirrored(problem):
        # Both begin with their own first; which of the two comes first makes no difference either.
        groups.append([groups[0][0], groups[1][0]])
    return [group for group in groups if len(group) > 1]


def _first_jobs(problem: Problem) -> list[int]:
    found = [0] * problem.layout.num_microbatches
    for job, action in enumerate(problem.actions):
        if action.kind == "F" and action.stage == 0 and not action.subsequence:
            found[action.microbatch or 0] = job
    return found


def _costs(problem: Problem) -> list[Hashable]:
    """Of each microbatch all that its jobs cost."""
    found: list[list[Hashable]] = [[] for _ in range(problem.layout.num_microbatches)]
    for job, action in enumerate(problem.actions):
        delays = sorted(delay for _, delay in problem.followers[job])
        what = action.stage, action.subsequence or 0, action.kind
        costs = problem.duration[job], problem.rest[job], problem.opens[job], problem.closes[job]
        found[action.microbatch or 0].append((*what, *costs, *delays))
    return [tuple(sorted(jobs, key=repr)) for jobs in found]


def _mirrored(problem: Problem) -> bool:
    """Whether exchanging the two directions, and the devices with their mirrors, changes nothing."""
    layout, costs = problem.layout, _costs(problem)
    if len(layout.directions) != 2 or len(set(problem.room)) > 1:
        return False
    here, there = layout.directions
    mirror = dict(zip(here.placement, there.placement, strict=True))
    return (
        len(here.microbatches) == len(there.microbatches)
        and len(set(costs)) == 1
        and all(mirror.get(place) == device for device, place in mirror.items())
        and len({*here.placement, *there.placement}) == len(mirror)
        and all(mirror[place] == other for place, other in zip(here.placement, there.placement, strict=True))
    )
