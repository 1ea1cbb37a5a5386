"""A rehearsal: the processes, lanes and messages of a schedule, with stand-ins that take the time of each action."""

from __future__ import annotations

import gc
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor

from contraflow.designer.format.lowering import Lane, Lowered, Message, lower
from contraflow.designer.format.schedule import Schedule
from contraflow.engine.batch import Batch
from contraflow.engine.executor import Executor, play_together
from contraflow.engine.lanes import Incoming, Outgoing
from contraflow.engine.member import Member
from contraflow.engine.ping import Flight, ping
from contraflow.engine.record import HostRecorder
from contraflow.engine.stand_in import Clock, StandIn, TimedIncoming, TimedOutgoing
from contraflow.engine.topology import Place, connect, device_of
from contraflow.engine.train import agree

Pair = tuple[int, int]

HEAD_START = 0.1
"""Seconds from the agreement on a start to the start: enough for every process to post its first receives."""

KEPT = 2**28
"""Bytes that a process may keep to the end of a pass of all that it sent."""


@dataclass(frozen=True, slots=True)
class Script:
    """What is played, each figure handed in by whoever prices."""

    seconds: Mapping[str, Sequence[float]]
    """Of every action, by kind and slot."""
    width: int
    """Floats of a message for each token."""
    reduced: int
    """The tokens whose messages are as large as that of a REDUCE_GRAD."""
    delays: Mapping[Pair, float]
    """Seconds that messages from device to device take longer, on purpose."""
    repeat: int


@dataclass(frozen=True, slots=True)
class Flights:
    """Reported first: how long messages are on their way from device to device, delays on purpose left out."""

    flights: Mapping[Pair, Flight]


@dataclass(frozen=True, slots=True)
class Played:
    """Reported after each pass: when every device ended, in seconds since all of them began."""

    ends: tuple[float, ...]


class Rehearsal:
    """The part of one process in rehearsing `schedule`: one device, or all of them where `place` says so."""

    def __init__(self, schedule: Schedule, script: Script, place: Place) -> None:
        self.place = place
        self.lowered: Lowered = lower(schedule)
        layout = self.lowered.layout
        self._script = script
        self._lanes = connect(self.lowered, place, self._empty, until_flush=self._sent() <= KEPT)
        self.clocks = {device: Clock() for device in place.devices}
        self.recorders = {device: HostRecorder() for device in place.devices}
        self._timed: list[TimedOutgoing] = []
        self.executors = {
            device: Executor(
                device,
                self.lowered,
                {
                    stage: StandIn(stage, layout, script.seconds, script.width, script.reduced, clock)
                    for stage, copies in enumerate(layout.copies)
                    if device in copies
                },
                self._incoming(device, clock),
                self._outgoing(device, clock),
                self.recorders[device],
            )
            for device, clock in self.clocks.items()
        }
        nothing = [torch.zeros(1, 1, dtype=torch.long).expand(1, length) for length in layout.sequences]
        self._batch = Batch(nothing, nothing)

    def play(self, start: float) -> None:
        """One pass over the program, whose first actions begin at `start`, on time.perf_counter."""
        for clock in self.clocks.values():
            clock.start(start)
        gc.disable()  # a collection would take as long as an action
        try:
            play_together(list(self.executors.values()), self._batch, 1, reduce=True)
        finally:
            gc.enable()
        for executor in self.executors.values():
            executor.pop_loss()

    def close(self) -> None:
        """End the threads of the lanes."""
        for lane in self._timed:
            lane.close()
        self._lanes.close()

    def _incoming(self, device: int, clock: Clock) -> dict[int, Incoming]:
        ends = self._lanes.incoming.items()
        return {n: TimedIncoming(end, clock) for n, end in ends if self.lowered.lanes[n].target == device}

    def _outgoing(self, device: int, clock: Clock) -> dict[int, Outgoing]:
        found: dict[int, Outgoing] = {}
        for number, end in self._lanes.outgoing.items():
            lane = self.lowered.lanes[number]
            if lane.source == device:
                delay = self._script.delays.get((lane.source, lane.target), 0.0)
                found[number] = timed = TimedOutgoing(end, clock, delay)
                self._timed.append(timed)
        return found

    def _sent(self) -> int:
        """Bytes that this process sends in a pass."""
        return sum(
            4 * self._script.width * (message.tokens or self._script.reduced)
            for lane in self.lowered.lanes
            if lane.source in self.place.devices
            for message in lane.messages
        )

    def _empty(self, lane: Lane, message: Message) -> Tensor:
        return torch.empty(message.tokens or self._script.reduced, self._script.width)


def rehearse(member: Member, *, text: str, script: Script) -> None:
    """Rehearse the schedule in `text`: the work of one process, for `launch.run`.

    Reports Flights, and Played for each of the script's passes.
    """
    schedule = agree(member, text, repr(script))
    layout = schedule.layout
    here = device_of(layout, member.rank)
    rehearsal = Rehearsal(schedule, script, Place((here,), member.torch_device, member.backend))
    member.status = lambda: str(rehearsal.executors[here].status)
    flights = ping(rehearsal.lowered, here, script.width, script.reduced, median(script.seconds["F"]))
    member.report(Flights(flights))
    for number in range(1, script.repeat + 1):
        rehearsal.executors[here].status.step = number
        start = _common_start()
        rehearsal.play(start)
        ends = [(0, 0.0)] * member.world_size
        dist.all_gather_object(ends, (here, rehearsal.clocks[here].last - start))
        member.report(Played(tuple(end for _, end in sorted(ends))))
    rehearsal.close()


def _common_start() -> float:
    """A moment on this process's time.perf_counter, the same for all where they have one clock.

    On one machine they have. Those of different machines begin as they leave a barrier.
    """
    dist.barrier()
    left = (platform.node(), perf_counter())
    everywhere = [left] * dist.get_world_size()
    dist.all_gather_object(everywhere, left)
    one_machine = len({node for node, _ in everywhere}) == 1
    return HEAD_START + (max(time for _, time in everywhere) if one_machine else left[1])
