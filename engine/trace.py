"""What all processes recorded of a step, brought together on one clock."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

import torch
import torch.distributed as dist

from contraflow.designer.format.schedule import Action, Schedule
from contraflow.designer.format.trace import Delivery, Offset, Span, Times, Trace
from contraflow.engine.member import Member
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.record import Edge, Moment
from contraflow.engine.topology import rank_of

ROUNDS = 30
"""Of questions for a clock; the quickest answer counts."""
_TAG = 101


class Recorded(NamedTuple):
    """One step of one process, on its own clock; of an action that ran more than once, the last time."""

    seconds: float
    spans: dict[tuple[int, Action], Span]
    messages: dict[tuple[Edge, Action], dict[Moment, float]]


def start(pipeline: Pipeline) -> None:
    """Record what comes."""
    for recorder in pipeline.recorders.values():
        recorder.start()


def stop(pipeline: Pipeline, seconds: float) -> Recorded:
    """What was recorded of a step that took so long."""
    spans: dict[tuple[int, Action], Span] = {}
    messages: dict[tuple[Edge, Action], dict[Moment, float]] = {}
    for device, recorder in pipeline.recorders.items():
        recorder.stop()
        spans |= {(device, span.action): span for span in recorder.pop(device, 0.0)}
        for key, moments in recorder.pop_messages(0.0).items():
            messages.setdefault(key, {}).update(moments)
    return Recorded(seconds, spans, messages)


def gather(
    member: Member, schedule: Schedule, steps: Mapping[int, Recorded], pipeline: Pipeline
) -> Trace | None:
    """Of the recorded steps the one that took the median time on rank 0, from all processes; None on other ranks.

    All processes call this together, each with its own record of the same steps.
    """
    by_time = sorted(steps, key=lambda step: steps[step].seconds)
    chosen = [by_time[(len(by_time) - 1) // 2]]
    dist.broadcast_object_list(chosen)
    offsets = clock_offsets(member)
    own = steps[chosen[0]]
    parts: list[Recorded] | None = [own] * member.world_size if member.rank == 0 else None
    dist.gather_object(own, parts)
    if parts is None:
        return None
    layout = schedule.layout
    return Trace(
        schedule,
        chosen[0],
        f"{platform.node() or 'this machine'} ({member.torch_device.type})",
        together(parts, offsets),
        tuple(offsets[rank_of(layout, device)] for device in range(layout.num_devices)),
        pipeline.shape,
    )


def together(parts: Sequence[Recorded], offsets: Sequence[Offset]) -> Times:
    """The parts of all ranks on the clock of rank 0, from the begin of the first action."""
    shifts = [offset.seconds for offset in offsets]
    origin = min(
        span.begin - shift for part, shift in zip(parts, shifts, strict=True) for span in part.spans.values()
    )
    spans: list[Span] = []
    moments: dict[tuple[Edge, Action], dict[Moment, float]] = {}
    for part, shift in zip(parts, shifts, strict=True):
        shift += origin
        spans += [
            Span(device, action, begin - shift, end - shift)
            for device, action, begin, end in part.spans.values()
        ]
        for key, seen in part.messages.items():
            moments.setdefault(key, {}).update({moment: when - shift for moment, when in seen.items()})
    deliveries = [
        Delivery(*edge, action, seen["sent"], seen.get("left"), seen["awaited"], seen["taken"])
        for (edge, action), seen in moments.items()
    ]
    spans.sort(key=lambda span: span.device)
    return Times(tuple(spans), tuple(sorted(deliveries, key=lambda delivery: delivery.sent)))


def clock_offsets(member: Member) -> list[Offset]:
    """By rank, how far its clock is ahead of that of rank 0; all processes call this together, and rank 0 gets it.

    Half way between question and answer rank 0's clock shows what the other said, give or take half their time: so
    the quickest of several answers counts.
    """
    found = [Offset(0.0, 0.0)]
    said = torch.zeros(1, dtype=torch.float64, device=member.torch_device)
    for other in range(1, member.world_size):
        best = None
        for _ in range(ROUNDS):
            if member.rank == 0:
                asked = perf_counter()
                dist.send(said, other, tag=_TAG)
                dist.recv(said, other, tag=_TAG)
                theirs, now = float(said), perf_counter()
                answer = Offset(theirs - (asked + now) / 2, (now - asked) / 2)
                best = answer if best is None or answer.error < best.error else best
            elif member.rank == other:
                dist.recv(said, 0, tag=_TAG)
                float(said)  # on a GPU: wait until it is there
                said.fill_(perf_counter())
                dist.send(said, 0, tag=_TAG)
        found.append(best or Offset(0.0, 0.0))
    return found
