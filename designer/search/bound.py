"""What no program can beat: by device, its work between the shortest ways to it and behind it."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from .problem import Problem


def lower_bound(problem: Problem, sequence: Sequence[int]) -> int:
    """Ticks that every program takes; `sequence` is any.

    Each device alone, its jobs arriving along the shortest ways and followed by what comes behind each, may even
    interrupt them: Jackson's preemptive schedule, the one that is best (Carlier and Pinson 1989).
    """
    heads, tails = _ways(problem, sequence)
    longest = max((head + problem.duration[job] + tails[job] for job, head in enumerate(heads)), default=0)
    return max([longest, *(_preemptive(problem, jobs, heads, tails) for jobs in problem.jobs_of)])


def _ways(problem: Problem, sequence: Sequence[int]) -> tuple[list[int], list[int]]:
    """How early each job can start, and what follows its end at least, were no device ever busy."""
    heads, tails = [0] * problem.num_jobs, list(problem.rest)
    for job in sequence:
        end = heads[job] + problem.duration[job]
        for target, delay in problem.followers[job]:
            heads[target] = max(heads[target], end + delay)
    for job in reversed(sequence):
        for target, delay in problem.followers[job]:
            tails[job] = max(tails[job], delay + problem.duration[target] + tails[target])
    return heads, tails


def _preemptive(problem: Problem, jobs: Sequence[int], heads: Sequence[int], tails: Sequence[int]) -> int:
    arriving = sorted(jobs, key=heads.__getitem__, reverse=True)
    waiting: list[tuple[int, int]] = []
    left = {job: problem.duration[job] for job in jobs}
    time = most = 0
    while arriving or waiting:
        if not waiting:
            time = max(time, heads[arriving[-1]])
        while arriving and heads[arriving[-1]] <= time:
            job = arriving.pop()
            heappush(waiting, (-tails[job], job))
        tail, job = waiting[0]
        until = time + left[job]
        if arriving and heads[arriving[-1]] < until:
            left[job] -= heads[arriving[-1]] - time
            time = heads[arriving[-1]]
            continue
        heappop(waiting)
        time = until
        most = max(most, time - tail)
    return most
