"""What a search may change and what it may not: the jobs of a schedule in whole ticks, without an order.

A *job* is an F, B, I or W, numbered from 0; a *sequence* is all jobs in an order that respects their waits, from which
every device takes its own: the one form in which programs are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from contraflow.designer.format.schedule import Action, Layout

NO_LANE = -1


Link = tuple[int, int]
"""One end of a wait: the job at the other end, and the ticks from the end of what is waited for until it is at hand."""


@dataclass(frozen=True)
class Problem:
    """Jobs with their waits, durations and memory. All times are in ticks; memory is in whole units of any size."""

    layout: Layout
    actions: Sequence[Action]
    device: Sequence[int]
    duration: Sequence[int]
    waits: Sequence[Sequence[Link]]
    followers: Sequence[Sequence[Link]]
    lane: Sequence[int]
    """By job: the lane that carries what it makes to another device, or NO_LANE."""
    transfer: Sequence[int]
    """By job: how long that occupies its lane."""
    latency: Sequence[int]
    """By job: how much later it arrives."""
    rest: Sequence[int]
    """What follows a job's end at least, beside its followers: the way of its stage's reduction."""
    opens: Sequence[int]
    """By job: what it takes up at its start, and it or another of its device gives back at an end."""
    closes: Sequence[int]
    """By job: what it gives back at its end."""
    unit: Sequence[int]
    """The group of microbatches that a job belongs to, numbered in travelling order: see gate.py."""
    room: Sequence[int]
    """By device: the most that its jobs may have taken up at any time."""
    tick: float
    """Of the clock."""

    @property
    def num_jobs(self) -> int:
        return len(self.actions)

    @property
    def num_devices(self) -> int:
        return self.layout.num_devices

    @cached_property
    def jobs_of(self) -> list[list[int]]:
        """By device."""
        found: list[list[int]] = [[] for _ in range(self.num_devices)]
        for job, device in enumerate(self.device):
            found[device].append(job)
        return found

    @cached_property
    def mirrored(self) -> Problem:
        """For list scheduling: time runs backwards, waits are followers, what was taken up is given back."""
        last = max(self.unit, default=0)
        return replace(
            self,
            waits=self.followers,
            followers=self.waits,
            opens=self.closes,
            closes=self.opens,
            unit=[last - unit for unit in self.unit],
        )

    def program(self, sequence: Sequence[int]) -> tuple[tuple[Action, ...], ...]:
        """The actions of every device in the order of a sequence."""
        programs: list[list[Action]] = [[] for _ in range(self.num_devices)]
        for job in sequence:
            programs[self.device[job]].append(self.actions[job])
        return tuple(map(tuple, programs))

    def starts(self, sequence: Sequence[int]) -> tuple[list[int], int]:
        """When each job starts at the earliest, and the makespan.

        As in simulate.py, but no reduction waits for another.
        """
        start, end, arrival = [0] * self.num_jobs, [0] * self.num_jobs, [0] * self.num_jobs
        free, carried = [0] * self.num_devices, [0] * (max(self.lane, default=0) + 1)
        device, duration, waits, rest = self.device, self.duration, self.waits, self.rest
        lanes, transfer, latency = self.lane, self.transfer, self.latency
        makespan = 0
        for job in sequence:
            here = device[job]
            time = free[here]
            for source, delay in waits[job]:
                ready = arrival[source] if delay else end[source]
                if ready > time:
                    time = ready
            start[job] = time
            time += duration[job]
            end[job] = free[here] = time
            lane = lanes[job]
            if lane >= 0:
                carried[lane] = max(carried[lane], time) + transfer[job]
                arrival[job] = carried[lane] + latency[job]
            if time + rest[job] > makespan:
                makespan = time + rest[job]
        return start, makespan

    def tails(self, sequence: Sequence[int]) -> list[int]:
        """How long it takes at least from each job's end to the makespan."""
        tail, device, duration, followers = list(self.rest), self.device, self.duration, self.followers
        following = [0] * self.num_devices
        for job in reversed(sequence):
            here = device[job]
            most = max(tail[job], following[here])
            for target, delay in followers[job]:
                need = delay + duration[target] + tail[target]
                if need > most:
                    most = need
            tail[job] = most
            following[here] = most + duration[job]
        return tail

    def peaks(self, sequence: Sequence[int]) -> list[int]:
        """By device: the most that its jobs have taken up."""
        level, most = [0] * self.num_devices, [0] * self.num_devices
        opens, closes = self.opens, self.closes
        for job in sequence:
            here = self.device[job]
            level[here] += opens[job]
            most[here] = max(most[here], level[here])
            level[here] -= closes[job]
        return most

    def fits(self, sequence: Sequence[int]) -> bool:
        """Whether every device has room for it."""
        return all(most <= room for most, room in zip(self.peaks(sequence), self.room, strict=True))
