"""Compute program -> program with messages and reductions, and the proof that its lanes cannot mix or hang.

A *lane* is one directed edge between two devices. It carries sends on one end and receives on the other, in the
sender's order; the receiver posts its receives in that order, up to `credit` ahead of what it has taken, and takes
them in its own. There are three purposes: `data` (activations forward, gradients backward), `mirror` (a stage's weight
gradients to its owner and its new weights back) and `tied` (the same for a shared embedding weight).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from .graph import NONE, Graph, build
from .schedule import Action, Layout, Schedule

Purpose = Literal["data", "mirror", "tied"]
Operation = Literal["F", "B", "I", "W", "RECEIVE", "SEND", "SEND_GRAD", "RECEIVE_GRAD"]
Transport = Literal["lanes", "fifo", "rendezvous"]

TIED = -1
"""Stands for a stage in reductions of the embedding weight that first and last stage share."""


class Message(NamedTuple):
    """What `action` made: an activation, a gradient, or the weight gradients of its stage. `tokens` is 0 for those."""

    action: Action
    tokens: int


class Instruction(NamedTuple):
    """One entry of a lowered program.

    `action` is what runs, or what made the message that travels. `source` is what made the input of an F, B or I
    (None for the first F and for the B or I of the last stage). `lane` is an index into `Lowered.lanes`.
    """

    operation: Operation
    action: Action
    source: Action | None = None
    lane: int = NONE


@dataclass(frozen=True, slots=True)
class Lane:
    """Messages from device `source` to device `target`, in the sender's order."""

    source: int
    target: int
    purpose: Purpose
    messages: tuple[Message, ...]
    credit: int
    """How many receives the receiver must be able to post ahead of what it has taken; more gains nothing."""

    def __str__(self) -> str:
        return f"{self.purpose} lane {self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Lowered:
    """What every device does, with all communication in it. `owners[s]` is where stage s meets its optimizer."""

    layout: Layout
    programs: tuple[tuple[Instruction, ...], ...]
    lanes: tuple[Lane, ...]
    owners: tuple[int, ...]
    tied_copies: tuple[int, ...]
    """Devices that hold the shared embedding weight; the first of them owns it. () where nothing is tied."""


class LoweringError(RuntimeError):
    """The lowered program breaks a promise of its lanes: a fault of Contraflow, not of the file."""


def with_reductions(schedule: Schedule, tied: bool = False) -> Schedule:
    """The schedule with a REDUCE_GRAD wherever gradients must be summed and it names none.

    Each is placed as early as one common order of stages allows: by the later of the copies' finishing positions,
    ties by stage. A stage with one copy needs none, unless `tied` and it holds the shared embedding weight.
    """
    layout = schedule.layout
    needed = [len(copies) > 1 for copies in layout.copies]
    if tied and len(_tied_copies(layout)) > 1:
        needed[0] = needed[-1] = True
    if not any(needed):
        return schedule
    finish: list[dict[int, int]] = []
    named: set[int] = set()
    for program in schedule.program:
        last = {}
        for position, action in enumerate(program):
            if action.kind == "REDUCE_GRAD":
                named.add(action.stage)
            elif action.kind != "F":
                last[action.stage] = position
        finish.append(last)
    wanted = [stage for stage, need in enumerate(needed) if need and stage not in named]
    latest = {stage: max(finish[device].get(stage, 0) for device in layout.copies[stage]) for stage in wanted}
    wanted.sort(key=lambda stage: (latest[stage], stage))
    programs = []
    for device, program in enumerate(schedule.program):
        # What the author placed stays in front of what is added, so that all devices agree on the order.
        behind = max(
            (index for index, action in enumerate(program) if action.kind == "REDUCE_GRAD"), default=-1
        )
        inserts: dict[int, list[Action]] = defaultdict(list)
        for stage in wanted:
            if device in layout.copies[stage]:
                behind = max(behind, finish[device].get(stage, -1))
                inserts[behind].append(Action(stage, "REDUCE_GRAD"))
        actions = list(inserts[-1])
        for position, action in enumerate(program):
            actions.append(action)
            actions += inserts.get(position, ())
        programs.append(tuple(actions))
    return replace(schedule, program=tuple(programs))


def lower(schedule: Schedule, tied: bool = False, graph: Graph | None = None) -> Lowered:
    """The lowered program of a valid schedule, proved. `graph` is the schedule's, if at hand.

    Raises LoweringError should a lane not match, which no valid schedule can bring about.
    """
    reduced = with_reductions(schedule, tied)
    if graph is None or reduced is not schedule:
        graph = build(reduced)
    lowered = _lower(reduced.layout, graph, _tied_copies(schedule.layout) if tied else ())
    stall = find_stall(lowered)
    if stall:
        raise LoweringError(stall)
    return lowered


def _tied_copies(layout: Layout) -> tuple[int, ...]:
    """Devices with the first or the last stage, stage 0's owner first."""
    owner = layout.owners[0]
    held = set(layout.copies[0]) | set(layout.copies[-1])
    return (owner, *sorted(held - {owner}))


def _lower(layout: Layout, graph: Graph, tied_copies: tuple[int, ...]) -> Lowered:
    numbers: dict[tuple[int, int, Purpose], int] = {}
    sent: list[list[Message]] = []

    def lane_number(source: int, target: int, purpose: Purpose) -> int:
        number = numbers.setdefault((source, target, purpose), len(sent))
        if number == len(sent):
            sent.append([])
        return number

    tokens = [length for split in layout.splits for length in split] * layout.num_stages
    actions, device, producer, consumer = graph.actions, graph.device, graph.producer, graph.consumer
    data_lanes = [[NONE] * layout.num_devices for _ in range(layout.num_devices)]
    programs = []
    for here in range(layout.num_devices):
        program: list[Instruction] = []
        tied_left = {0, layout.num_stages - 1} if here in tied_copies else set()
        tied_left = {stage for stage in tied_left if here in layout.copies[stage]}
        for node in range(graph.first[here], graph.first[here + 1]):
            action = actions[node]
            if action.kind == "REDUCE_GRAD":
                owner = layout.owners[action.stage]
                for source, target in _reduction_edges(here, owner, layout.copies[action.stage]):
                    lane = lane_number(source, target, "mirror")
                    program.append(_reduction(here, source, action, lane, sent))
                if action.stage in tied_left:
                    tied_left.remove(action.stage)
                    shared = Action(TIED, "REDUCE_GRAD")
                    for source, target in (
                        [] if tied_left else _reduction_edges(here, tied_copies[0], tied_copies)
                    ):
                        program.append(
                            _reduction(here, source, shared, lane_number(source, target, "tied"), sent)
                        )
                continue
            source_action = None
            source = producer[node]
            if source != NONE:
                source_action = actions[source]
                if device[source] != here:
                    lane = data_lanes[device[source]][here]
                    if lane == NONE:
                        lane = data_lanes[device[source]][here] = lane_number(device[source], here, "data")
                    program.append(Instruction("RECEIVE", source_action, None, lane))
            program.append(Instruction(action.kind, action, source_action))
            target = consumer[node]
            if target != NONE and device[target] != here:
                lane = data_lanes[here][device[target]]
                if lane == NONE:
                    lane = data_lanes[here][device[target]] = lane_number(here, device[target], "data")
                program.append(Instruction("SEND", action, None, lane))
                sent[lane].append(Message(action, tokens[graph.slot[node]]))
        programs.append(tuple(program))
    credits = _credits(programs, sent)
    lanes = tuple(
        Lane(source, target, purpose, tuple(sent[number]), credits[number])
        for (source, target, purpose), number in numbers.items()
    )
    return Lowered(layout, tuple(programs), lanes, layout.owners, tied_copies)


def _reduction_edges(here: int, owner: int, copies: Sequence[int]) -> list[tuple[int, int]]:
    """The messages that device `here` takes part in when gradients go to the owner."""
    if here != owner:
        return [(here, owner)]
    return [(copy, owner) for copy in copies if copy != owner]


def _reduction(here: int, source: int, action: Action, lane: int, sent: list[list[Message]]) -> Instruction:
    if source != here:
        return Instruction("RECEIVE_GRAD", action, None, lane)
    sent[lane].append(Message(action, 0))
    return Instruction("SEND_GRAD", action, None, lane)


def _credits(programs: Sequence[Sequence[Instruction]], sent: Sequence[Sequence[Message]]) -> list[int]:
    """A lane's t-th take (from 0) of its message number j needs j receives posted before it: j - t + 1 ahead."""
    places = [{message.action: index for index, message in enumerate(messages)} for messages in sent]
    credits, taken = [1] * len(sent), [0] * len(sent)
    for program in programs:
        for operation, action, _, lane in program:
            if operation == "RECEIVE" or operation == "RECEIVE_GRAD":
                place = places[lane].get(action)
                if place is None:
                    raise LoweringError(f"{action} is received but never sent")
                credits[lane] = max(credits[lane], place - taken[lane] + 1)
                taken[lane] += 1
    return credits


def find_stall(lowered: Lowered, transport: Transport = "lanes") -> str | None:
    """Runs the messages without the compute; None when all arrive, otherwise what is left waiting for what.

    `lanes` is Contraflow's own transport: receives posted in the sender's order, at most `credit` ahead.
    Stricter ones show what other runtimes would do: `fifo` takes messages only in the order sent,
    `rendezvous` also holds a sender until its message is taken.
    """
    places = [
        {message.action: index for index, message in enumerate(lane.messages)} for lane in lowered.lanes
    ]
    num_sent, num_taken = [0] * len(places), [0] * len(places)
    heads = [0] * len(lowered.programs)
    held: list[int] = [NONE] * len(lowered.programs)
    waiting_for_send: dict[int, int] = {lane: NONE for lane in range(len(places))}
    runnable = list(range(len(heads)))
    while runnable:
        here = runnable.pop()
        program, head = lowered.programs[here], heads[here]
        while head < len(program):
            operation, action, _, lane = program[head]
            if lane != NONE:
                if operation == "SEND" or operation == "SEND_GRAD":
                    if held[here] == NONE:
                        if lowered.lanes[lane].messages[num_sent[lane]].action != action:
                            return f"{lowered.lanes[lane]} sends {action} out of its order"
                        num_sent[lane] += 1
                        if waiting_for_send[lane] != NONE:
                            runnable.append(waiting_for_send[lane])
                            waiting_for_send[lane] = NONE
                        held[here] = lane
                    if transport == "rendezvous" and num_taken[lane] < num_sent[lane]:
                        break
                    held[here] = NONE
                else:
                    place = places[lane].get(action, NONE)
                    ahead = lowered.lanes[lane].credit if transport == "lanes" else 1
                    if place >= num_sent[lane] or place >= num_taken[lane] + ahead:
                        waiting_for_send[lane] = here
                        break
                    num_taken[lane] += 1
                    if held[lowered.lanes[lane].source] == lane:
                        runnable.append(lowered.lanes[lane].source)
            head += 1
        heads[here] = head
    for here, (program, head) in enumerate(zip(lowered.programs, heads, strict=True)):
        if head < len(program):
            operation, action, _, lane = program[head]
            return f"device {here} stops at {operation} {action} on the {lowered.lanes[lane]}"
    for lane, messages in enumerate(lane.messages for lane in lowered.lanes):
        if num_taken[lane] != len(messages):
            return f"{lowered.lanes[lane]} has {len(messages)} messages, {num_taken[lane]} are received"
    return None
