"""List scheduling: every idle device takes the most urgent action that is ready.

An action is ready when all that it waits for has ended and its input has arrived. A gate can hold forwards back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Protocol

from contraflow.designer.costs.prices import Prices
from contraflow.designer.format.schedule import Action, Kind, Layout

Urgency = Callable[[Kind, int, int, int], Any]
"""(kind, stage, microbatch, subsequence) -> a sort key: the least is the most urgent."""


class Gate(Protocol):
    """Decides which forwards may start, told of everything that starts and ends."""

    def admits(self, device: int, slot: int) -> bool: ...
    def opened(self, device: int, slot: int) -> None: ...
    def closed(self, device: int, slot: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Listed:
    """A program and the time at which its last action ends."""

    program: tuple[tuple[Action, ...], ...]
    makespan: float


def list_schedule(
    layout: Layout, prices: Prices, kinds: Sequence[Kind], urgency: Urgency, gate: Gate
) -> Listed:
    """The program that list scheduling gives for these prices, with backwards as B, or as I and W (`kinds`).

    Every device decides at the moment at which it is idle; devices do not see one another's queues.
    """
    return Jobs(layout, prices, kinds, urgency).scheduled(gate)


class Jobs:
    """What list scheduling knows before it starts, for as many runs as there are gates to try.

    Jobs are numbered by kind, then slot.
    """

    def __init__(self, layout: Layout, prices: Prices, kinds: Sequence[Kind], urgency: Urgency):
        self.layout, self.prices = layout, prices
        self.num_slots, self.per_stage = layout.num_slots, layout.slots_per_stage
        cells = [
            (stage, m, q)
            for stage in range(layout.num_stages)
            for m, split in enumerate(layout.splits)
            for q in range(len(split))
        ]
        self.device = [layout.device_of(stage, m) for stage, m, _ in cells]
        self.ends = [q == len(layout.splits[m]) - 1 for _, m, q in cells]
        self.leads = [q == 0 for _, _, q in cells]
        durations = prices.durations()
        self.duration = [cost for kind in kinds for cost in durations[kind]]
        self.actions = [layout.action(stage, kind, m, q) for kind in kinds for stage, m, q in cells]
        keys = [urgency(kind, *cell) for kind in kinds for cell in cells]
        self.job_of_rank = sorted(range(len(keys)), key=keys.__getitem__)
        self.rank = [0] * len(keys)
        for rank, job in enumerate(self.job_of_rank):
            self.rank[job] = rank
        self.split_backward = len(kinds) == 3

    def scheduled(self, gate: Gate) -> Listed:
        """The program that comes out behind this gate."""
        return _Run(self, gate).run()

    def waits(self) -> list[int]:
        """How many others each job waits for."""
        last = self.num_slots - self.per_stage
        forwards = [(slot >= self.per_stage) + (not self.leads[slot]) for slot in range(self.num_slots)]
        backwards = [1 + (slot < last) + (not self.ends[slot]) for slot in range(self.num_slots)]
        return forwards + backwards + [1] * (self.num_slots * self.split_backward)


class _Run:
    """The state of one run."""

    def __init__(self, jobs: Jobs, gate: Gate):
        self.gate, self.layout = gate, jobs.layout
        self.transfer, self.network = jobs.prices.transfer, jobs.prices.network
        self.free_messages = jobs.prices.free_messages
        self.num_slots, self.per_stage, self.split_backward = (
            jobs.num_slots,
            jobs.per_stage,
            jobs.split_backward,
        )
        self.device, self.ends, self.leads = jobs.device, jobs.ends, jobs.leads
        self.duration, self.actions = jobs.duration, jobs.actions
        self.rank, self.job_of_rank = jobs.rank, jobs.job_of_rank
        self.waiting = jobs.waits()
        self.events: list[tuple[float, int, bool]] = []
        self.ready: list[list[int]] = [[] for _ in range(self.layout.num_devices)]
        self.idle = [True] * self.layout.num_devices
        self.lanes: dict[tuple[int, int], float] = {}
        self.programs: list[list[Action]] = [[] for _ in range(self.layout.num_devices)]

    def run(self) -> Listed:
        for job, waits in enumerate(self.waiting):
            if not waits:
                heappush(self.ready[self.device[job % self.num_slots]], self.rank[job])
        for device in range(self.layout.num_devices):
            self._start_something(device, 0.0)
        time = 0.0
        # Moments that are equal on paper may differ by rounding; devices must see them as one.
        tolerance = 1e-9 * max(self.duration, default=0.0)
        while self.events:
            moment = self.events[0][0] + tolerance
            touched: set[int] = set()
            while self.events and self.events[0][0] <= moment:
                time, job, arrived = heappop(self.events)
                if arrived:
                    touched.add(self._release(job))
                else:
                    touched |= self._finish(job, time)
            for device in sorted(touched):
                if self.idle[device]:
                    self._start_something(device, time)
        return Listed(tuple(map(tuple, self.programs)), time)

    def _start_something(self, device: int, time: float) -> None:
        held_back = []
        ready = self.ready[device]
        while ready:
            rank = heappop(ready)
            job = self.job_of_rank[rank]
            if job < self.num_slots:
                if not self.gate.admits(device, job):
                    held_back.append(rank)
                    continue
                self.gate.opened(device, job)
            self.idle[device] = False
            self.programs[device].append(self.actions[job])
            heappush(self.events, (time + self.duration[job], job, False))
            break
        for rank in held_back:
            heappush(ready, rank)

    def _finish(self, job: int, time: float) -> set[int]:
        kind, slot = divmod(job, self.num_slots)
        device = self.device[slot]
        self.idle[device] = True
        touched = {device}
        if kind == 0:
            self._release(slot + self.num_slots)
            if not self.ends[slot]:
                self._release(slot + 1)
            if slot + self.per_stage < self.num_slots:
                touched.add(self._send(slot, slot + self.per_stage, time))
        elif kind == 1:
            if self.split_backward:
                self._release(slot + 2 * self.num_slots)
            else:
                self.gate.closed(device, slot)
            if not self.leads[slot]:
                self._release(job - 1)
            if slot >= self.per_stage:
                touched.add(self._send(slot, job - self.per_stage, time))
        else:
            self.gate.closed(device, slot)
        return touched

    def _send(self, slot: int, target: int, time: float) -> int:
        source, device = self.device[slot], self.device[target % self.num_slots]
        if source == device or self.free_messages:
            return self._release(target)
        lane = (source, device)
        latency, slowness = self.network.link(source, device)
        self.lanes[lane] = max(time, self.lanes.get(lane, 0.0)) + slowness * self.transfer[slot]
        heappush(self.events, (self.lanes[lane] + latency, target, True))
        return source

    def _release(self, job: int) -> int:
        device = self.device[job % self.num_slots]
        self.waiting[job] -= 1
        if not self.waiting[job]:
            heappush(self.ready[device], self.rank[job])
        return device
