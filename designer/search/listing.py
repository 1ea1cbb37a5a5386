"""List scheduling of a problem's jobs by any keys, behind a gate; of a mirrored problem it runs backwards in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from .gate import Gate
from .problem import Problem


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence and when each of its jobs starts; shorter than the problem where the gate let devices get stuck."""

    sequence: list[int]
    start: list[int]


def listed(
    problem: Problem, key: Sequence[float], gate: Gate, not_before: Mapping[int, int] | None = None
) -> Listed:
    """The sequence in which every idle device takes, of the jobs that are ready, the one with the least key.

    Some jobs are not ready before a time. Messages do not wait for one another.
    """
    device, duration, followers = problem.device, problem.duration, problem.followers
    count = problem.num_jobs
    by_rank = sorted(range(count), key=key.__getitem__)
    rank = [0] * count
    for place, job in enumerate(by_rank):
        rank[job] = place
    missing = [len(entries) for entries in problem.waits]
    # An event is time * width + job where a job has ended, + count where it has one wait less: whole numbers are quick.
    width = 2 * count
    events: list[int] = []
    for job, time in (not_before or {}).items():
        missing[job] += 1
        events.append(time * width + count + job)
    heapify(events)
    ready: list[list[int]] = [[] for _ in range(problem.num_devices)]
    for place, job in enumerate(by_rank):
        if not missing[job]:
            ready[device[job]].append(place)
    idle = [True] * problem.num_devices
    sequence: list[int] = []
    start = [0] * count
    admits, started = gate.admits, gate.started
    now, touched = 0, list(range(problem.num_devices))
    while True:
        for here in touched:
            if not idle[here]:
                continue
            queue, held_back = ready[here], []
            while queue:
                place = heappop(queue)
                job = by_rank[place]
                if admits(job):
                    started(job)
                    idle[here] = False
                    sequence.append(job)
                    start[job] = now
                    heappush(events, (now + duration[job]) * width + job)
                    break
                held_back.append(place)
            for place in held_back:
                heappush(queue, place)
        if not events:
            return Listed(sequence, start)
        now, touched = events[0] // width, []
        behind = (now + 1) * width
        while events and events[0] < behind:
            job = heappop(events) - now * width
            if job >= count:
                job -= count
                missing[job] -= 1
                if not missing[job]:
                    heappush(ready[device[job]], rank[job])
                    touched.append(device[job])
                continue
            idle[device[job]] = True
            touched.append(device[job])
            for target, delay in followers[job]:
                if delay:
                    heappush(events, (now + delay) * width + count + target)
                    continue
                missing[target] -= 1
                if not missing[target]:
                    heappush(ready[device[target]], rank[target])
                    touched.append(device[target])
