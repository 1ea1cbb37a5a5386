"""Which process plays which device, and the lanes between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from contraflow.designer.format.lowering import Lane, Lowered, Message
from contraflow.designer.format.schedule import Layout
from contraflow.engine.lanes import (
    TAGS,
    Incoming,
    Mark,
    Outgoing,
    ProcessIncoming,
    ProcessOutgoing,
    QueueLane,
    process_groups,
    unmarked,
)
from contraflow.engine.member import Member, Refused
from contraflow.engine.record import ClockRecorder, Edge

T = TypeVar("T")

EmptyFor = Callable[[Lane, Message], Tensor]
"""Makes the tensor in which a message of a lane arrives."""


@dataclass(slots=True)
class Lanes:
    """The ends that one process holds, by number in `Lowered.lanes`; `weights_*` carry new weights back."""

    incoming: dict[int, Incoming] = field(default_factory=dict)
    outgoing: dict[int, Outgoing] = field(default_factory=dict)
    weights_incoming: dict[int, Incoming] = field(default_factory=dict)
    weights_outgoing: dict[int, Outgoing] = field(default_factory=dict)

    def close(self) -> None:
        """End the threads of outgoing lanes."""
        for lane in [*self.outgoing.values(), *self.weights_outgoing.values()]:
            if isinstance(lane, ProcessOutgoing):
                lane.close()


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands: the devices it plays, and how it reaches the others.

    `backend` is None where one process plays every device.
    """

    devices: tuple[int, ...]
    torch_device: torch.device
    backend: str | None = None

    @classmethod
    def of(cls, member: Member, layout: Layout) -> Place:
        """That of one process among those that train together. Raises Refused unless each device has its own."""
        if layout.num_devices != member.world_size:
            raise Refused(
                f"the schedule has {layout.num_devices} devices, there are {member.world_size} processes"
            )
        return cls((device_of(layout, member.rank),), member.torch_device, member.backend)

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes of a float64 scalar."""
        if self.backend is None:
            return value
        value = value.to(self.torch_device)
        dist.all_reduce(value)
        return value

    def gather(self, own: T) -> list[T]:
        """What every process has, by rank; all call this together."""
        found = [own]
        if self.backend is not None:
            found *= dist.get_world_size()
            dist.all_gather_object(found, own)
        return found


def rank_of(layout: Layout, device: int) -> int:
    """The rank that plays a device."""
    return device if layout.ranks is None else layout.ranks[device]


def device_of(layout: Layout, rank: int) -> int:
    """The device that a rank plays."""
    return rank if layout.ranks is None else layout.ranks.index(rank)


def returns(lane: Lane) -> Lane:
    """The lane that carries new weights back along a lane of reductions."""
    return Lane(lane.target, lane.source, lane.purpose, lane.messages, len(lane.messages))


def connect(
    lowered: Lowered,
    place: Place,
    empty: EmptyFor,
    recorders: Mapping[int, ClockRecorder[Any]] | None = None,
    *,
    labelled: bool = False,
    until_flush: bool = False,
) -> Lanes:
    """Both ends, or this process's, of every lane; all ranks call this at the same time.

    `recorders`, by device, are told how messages between processes travel; `labelled` ones name their actions.
    With `until_flush` what was sent is kept so long, which spares a CPU the threads that let go of it before.
    """
    if place.backend is None:
        return _queues(lowered.lanes)
    layout, here = lowered.layout, place.devices[0]
    # (number, lane, purpose of its messages, whether it returns weights), in the order of the file for all ranks
    ends = [(number, lane, str(lane.purpose), False) for number, lane in enumerate(lowered.lanes)]
    ends += [
        (number, returns(lane), f"{lane.purpose} weights", True)
        for number, lane in enumerate(lowered.lanes)
        if lane.purpose != "data"
    ]
    edges = [
        (rank_of(layout, lane.source), rank_of(layout, lane.target), purpose) for _, lane, purpose, _ in ends
    ]
    lanes = Lanes()
    groups: Sequence[dist.ProcessGroup | None] = process_groups(edges, place.backend)
    for (number, lane, purpose, weights), edge, group in zip(ends, edges, groups, strict=True):
        mark: Mark = unmarked
        if recorders is not None:
            mark = partial(recorders[here].mark, Edge(lane.source, lane.target, purpose))
        if lane.source == here:
            outgoing = ProcessOutgoing(
                lane, edge[1], group, TAGS[purpose], mark, labelled=labelled, until_flush=until_flush
            )
            (lanes.weights_outgoing if weights else lanes.outgoing)[number] = outgoing
        if lane.target == here:
            # Reductions are posted when the program reaches them, so that their buffers live no longer than needed.
            ahead = lane.credit if purpose == "data" else 0
            incoming = ProcessIncoming(
                lane, edge[0], group, TAGS[purpose], partial(empty, lane), ahead, mark, labelled=labelled
            )
            (lanes.weights_incoming if weights else lanes.incoming)[number] = incoming
    return lanes


def _queues(lanes: Sequence[Lane]) -> Lanes:
    data = {number: QueueLane() for number in range(len(lanes))}
    weights = {number: QueueLane() for number, lane in enumerate(lanes) if lane.purpose != "data"}
    return Lanes(dict(data), dict(data), dict(weights), dict(weights))
