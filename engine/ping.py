"""How long messages are on their way, from one device to the next action of another, measured before anything else."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from contraflow.designer.format.lowering import Lane, Lowered, Message
from contraflow.designer.format.schedule import Action
from contraflow.engine.lanes import ProcessIncoming, ProcessOutgoing
from contraflow.engine.stand_in import Clock, TimedIncoming, TimedOutgoing
from contraflow.engine.topology import rank_of

_TAG = 101
_WARM, _ROUNDS = 1, 7
LONGEST = 0.012
"""Seconds that a stand-in takes at most here: after longer ones messages find their way no colder."""


class Flight(NamedTuple):
    """Of a lane: seconds of a message of one float, and more for each token."""

    latency: float
    seconds_per_token: float


def ping(
    lowered: Lowered, here: int, width: int, reduced: int, action: float
) -> dict[tuple[int, int], Flight]:
    """The flight on every directed pair of devices that have a lane; all processes call this together.

    One pair after the other, while the rest is idle: there and back, halved, so that no two clocks are compared.
    A message has `width` floats a token, one of a reduction `reduced` tokens. Each follows a stand-in of `action`
    seconds, or LONGEST: messages that follow one another at once are faster.
    """
    largest: dict[tuple[int, int], int] = {}
    for lane in lowered.lanes:
        pair = (min(lane.source, lane.target), max(lane.source, lane.target))
        tokens = max(message.tokens or reduced for message in lane.messages)
        largest[pair] = max(largest.get(pair, 0), tokens)
    found: dict[tuple[int, int], Flight] = {}
    for pair, tokens in sorted(largest.items()):
        dist.barrier()
        if here in pair:
            there = pair[1 - pair.index(here)]
            peer = rank_of(lowered.layout, there)
            times = _exchange(here, there, peer, tokens * width, min(action, LONGEST))
            if times is not None:
                small, full = times
                flight = Flight(small, max(full - small, 0.0) / tokens)
                found[pair] = found[pair[::-1]] = flight
    everywhere = [found] * dist.get_world_size()
    dist.all_gather_object(everywhere, found)
    return {pair: flight for part in everywhere for pair, flight in part.items()}


def _exchange(here: int, there: int, peer: int, size: int, rest: float) -> tuple[float, float] | None:
    """Seconds of a message of one float and of one of `size`: known to the lower device of the two."""
    sizes = [1] * (_WARM + _ROUNDS) + [size] * (_WARM + _ROUNDS)
    messages = tuple(Message(Action(0, "F", number), size) for number, size in enumerate(sizes))
    clock = Clock()
    to, fro = Lane(here, there, "data", messages, 1), Lane(there, here, "data", messages, 1)
    outgoing = TimedOutgoing(ProcessOutgoing(to, peer, None, _TAG, until_flush=True), clock)
    incoming = TimedIncoming(ProcessIncoming(fro, peer, None, _TAG, _empty, 1), clock, at_hand=0.0)
    payloads = {size: torch.zeros(size) for size in set(sizes)}
    incoming.begin()
    times = []
    for action, size in messages:
        if here < there:
            clock.start(perf_counter())
            clock.spend(rest)
            begun = clock.free
            outgoing.send(action, payloads[size])
            incoming.take(action)
            clock.spend(0.0)
            times.append((clock.free - begun - rest) / 2)
        else:
            incoming.take(action)
            clock.spend(rest)
            outgoing.send(action, payloads[size])
    outgoing.flush()
    return (median(times[_WARM : _WARM + _ROUNDS]), median(times[-_ROUNDS:])) if times else None


def _empty(message: Message) -> Tensor:
    return torch.empty(message.tokens)
