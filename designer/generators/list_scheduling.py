"""List scheduling: every idle device takes the most urgent action that is ready.

An action is ready when all that it waits for has ended and its input has arrived. A gate can hold forwards back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Protocol

from contraflow.designer.costs.prices import Prices
from contraflow.designer.format.schedule import Action, Kind, Layout

NONE = -1


class Gate(Protocol):
    """Decides which forwards may start, told of everything that starts and ends.

    What it does not admit, it does not admit before something has closed on that device.
    """

    def admits(self, device: int, slot: int) -> bool: ...
    def opened(self, device: int, slot: int) -> None: ...
    def closed(self, device: int, slot: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Listed:
    """The jobs of each device in the order in which they start, and the time at which the last of them ends."""

    started: Sequence[Sequence[int]]
    makespan: float


class Jobs:
    """Every action of a layout as a job at given prices, with backwards as B, or as I and W (`kinds`).

    Jobs are numbered by kind, then slot. What is known before a run starts is worked out once, for as many runs as
    there are orders and gates to try.
    """

    def __init__(self, layout: Layout, prices: Prices, kinds: Sequence[Kind]):
        self.layout, self.prices, self.kinds = layout, prices, kinds
        self.num_slots, self.free_messages = layout.num_slots, prices.free_messages
        self.cells = [
            (stage, m, q)
            for stage in range(layout.num_stages)
            for m, split in enumerate(layout.splits)
            for q in range(len(split))
        ]
        durations = prices.durations()
        self.duration = [cost for kind in kinds for cost in durations[kind]]
        self.device = [layout.device_of(stage, m) for stage, m, _ in self.cells] * len(kinds)
        self._connect()

    def _connect(self) -> None:
        """What a job frees on its own device as it ends, whom it sends to, and how many others it waits for."""
        layout, num_slots, per_stage = self.layout, self.num_slots, self.layout.slots_per_stage
        whole = len(self.kinds) == 2
        self.frees: list[tuple[int, ...]] = []
        self.sends: list[int] = []
        for slot, (_, m, q) in enumerate(self.cells):
            ends = q == len(layout.splits[m]) - 1
            self.frees.append((slot + num_slots,) if ends else (slot + num_slots, slot + 1))
            self.sends.append(slot + per_stage if slot + per_stage < num_slots else NONE)
        for job, (_, _, q) in enumerate(self.cells, start=num_slots):
            leads, to_weight = q == 0, () if whole else (job + num_slots,)
            self.frees.append(to_weight if leads else (*to_weight, job - 1))
            self.sends.append(job - per_stage if job - num_slots >= per_stage else NONE)
        if not whole:
            self.frees += [()] * num_slots
            self.sends += [NONE] * num_slots
        self.waits = [0] * len(self.duration)
        for freed, target in zip(self.frees, self.sends, strict=True):
            for job in freed:
                self.waits[job] += 1
            if target != NONE:
                self.waits[target] += 1

    def scheduled(self, order: Sequence[int], gate: Gate) -> Listed:
        """The program that comes out behind this gate, with the jobs in `order` from the most urgent on.

        Every device decides at the moment at which it is idle; devices do not see one another's queues.
        """
        return _Run(self, order, gate, self.waits, self.frees).run()

    def replayed(self, started: Sequence[Sequence[int]]) -> Listed:
        """What a program of these jobs, which must be executable, takes at these prices."""
        waits, frees = list(self.waits), list(self.frees)
        for jobs in started:
            for job, behind in pairwise(jobs):
                waits[behind] += 1
                frees[job] = (*frees[job], behind)
        return _Run(self, range(len(waits)), _Open(), waits, frees).run()

    def program(self, listed: Listed) -> tuple[tuple[Action, ...], ...]:
        """What has been scheduled, as actions."""
        return tuple(tuple(map(self._action, started)) for started in listed.started)

    def _action(self, job: int) -> Action:
        kind, slot = divmod(job, self.num_slots)
        stage, m, q = self.cells[slot]
        return self.layout.action(stage, self.kinds[kind], m, q)


class _Open:
    """A gate that holds nothing back."""

    def admits(self, device: int, slot: int) -> bool:
        return True

    def opened(self, device: int, slot: int) -> None: ...
    def closed(self, device: int, slot: int) -> None: ...


class _Run:
    """The state of one run. `waits` and `frees` are those of the jobs, or more."""

    def __init__(
        self,
        jobs: Jobs,
        order: Sequence[int],
        gate: Gate,
        waits: Sequence[int],
        frees: Sequence[tuple[int, ...]],
    ):
        self.jobs, self.order, self.gate, self.frees = jobs, order, gate, frees
        num_devices = jobs.layout.num_devices
        self.rank = [0] * len(order)
        for rank, job in enumerate(order):
            self.rank[job] = rank
        self.waits = list(waits)
        # Ranks: those that are ready, and those of them that the gate has refused.
        self.ready: list[list[int]] = [[] for _ in range(num_devices)]
        self.refused: list[list[int]] = [[] for _ in range(num_devices)]
        self.idle = [True] * num_devices
        self.events: list[tuple[float, int, bool]] = []
        self.lanes: dict[tuple[int, int], float] = {}
        self.started: list[list[int]] = [[] for _ in range(num_devices)]

    def run(self) -> Listed:
        jobs, events, idle = self.jobs, self.events, self.idle
        device, last_kind = jobs.device, len(jobs.duration) - jobs.num_slots
        frees, sends, waits = self.frees, jobs.sends, self.waits
        ready, rank = self.ready, self.rank
        for job, count in enumerate(waits):
            if not count:
                heappush(ready[device[job]], rank[job])
        for here in range(len(idle)):
            self._start_something(here, 0.0)
        time = 0.0
        # Moments that are equal on paper may differ by rounding; devices must see them as one.
        tolerance = 1e-9 * max(jobs.duration, default=0.0)
        while events:
            moment = events[0][0] + tolerance
            touched: set[int] = set()
            while events and events[0][0] <= moment:
                time, job, arrived = heappop(events)
                here = device[job]
                touched.add(here)
                if arrived:
                    self._release(job)
                    continue
                idle[here] = True
                if job >= last_kind:
                    self._close(here, job - last_kind)
                for freed in frees[job]:
                    waits[freed] -= 1
                    if not waits[freed]:
                        heappush(ready[here], rank[freed])
                target = sends[job]
                if target != NONE:
                    touched.add(self._send(job, target, time))
            for here in sorted(touched):
                if idle[here]:
                    self._start_something(here, time)
        return Listed(self.started, time)

    def _start_something(self, here: int, time: float) -> None:
        ready, gate = self.ready[here], self.gate
        while ready:
            rank = heappop(ready)
            job = self.order[rank]
            if job < self.jobs.num_slots:
                if not gate.admits(here, job):
                    self.refused[here].append(rank)
                    continue
                gate.opened(here, job)
            self.idle[here] = False
            self.started[here].append(job)
            heappush(self.events, (time + self.jobs.duration[job], job, False))
            return

    def _close(self, here: int, slot: int) -> None:
        self.gate.closed(here, slot)
        ready, refused = self.ready[here], self.refused[here]
        for rank in refused:
            heappush(ready, rank)
        refused.clear()

    def _send(self, job: int, target: int, time: float) -> int:
        """The device that something has happened on by now."""
        jobs = self.jobs
        source, there = jobs.device[job], jobs.device[target]
        if source == there or jobs.free_messages:
            self._release(target)
            return there
        latency, slowness = jobs.prices.network.link(source, there)
        lane = (source, there)
        gone = max(time, self.lanes.get(lane, 0.0)) + slowness * jobs.prices.transfer[job % jobs.num_slots]
        self.lanes[lane] = gone
        heappush(self.events, (gone + latency, target, True))
        return source

    def _release(self, job: int) -> None:
        self.waits[job] -= 1
        if not self.waits[job]:
            heappush(self.ready[self.jobs.device[job]], self.rank[job])
