"""Compute program -> program with messages and reductions, and the proof that its lanes cannot mix or hang.

A *lane* is one directed edge between two devices. It carries sends on one end and receives on the other, in the
sender's order; the receiver posts its receives in that order, up to `credit` ahead of what it has taken, and takes
them in its own. There are three purposes: `data` (activations forward, gradients backward), `mirror` (a stage's weight
gradients to its owner and its new weights back) and `tied` (the same for a shared embedding weight).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from .graph import NONE, Graph, build
from .schedule import Action, Layout, Schedule

Purpose = Literal["data", "mirror", "tied"]
Transport = Literal["lanes", "fifo", "rendezvous"]

TIED = -1
"""Stands for a stage in reductions of the embedding weight that first and last stage share."""


class Message(NamedTuple):
    """What `action` made: an activation, a gradient, or the weight gradients of its stage. `tokens` is 0 for those."""

    action: Action
    tokens: int


class Step(NamedTuple):
    """One entry of a lowered program: take a message, run an action, send what it made; any but `action` may be absent.

    `source` is what made the input of an F, B or I: None for the first stage's F and the last stage's B or I. It comes
    over the lane `takes`, or is at hand where the stages are neighbours on one device. A REDUCE_GRAD sends to the
    stage's owner, or takes there: one step for each other copy. Lanes are indices into `Lowered.lanes`.
    """

    action: Action
    source: Action | None = None
    takes: int = NONE
    sends: int = NONE


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
    programs: tuple[tuple[Step, ...], ...]
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
    has_gradients = any(action.kind != "F" for program in schedule.program for action in program)
    if not (any(needed) and has_gradients):
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


def forwards(schedule: Schedule) -> Schedule:
    """The schedule without its backwards, for evaluation: what is left waits for no more than before."""
    return replace(
        schedule,
        program=tuple(
            tuple(action for action in program if action.kind == "F") for program in schedule.program
        ),
    )


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
    actions, device, slot, producer, consumer = (
        graph.actions, graph.device, graph.slot, graph.producer, graph.consumer,
    )  # fmt: skip
    data_lanes: dict[int, int] = {}
    programs = []
    for here in range(layout.num_devices):
        program: list[Step] = []
        tied_left = {stage for stage in (0, layout.num_stages - 1) if here in layout.copies[stage]}
        for node in range(graph.first[here], graph.first[here + 1]):
            action = actions[node]
            if slot[node] == NONE:
                stage = action.stage
                copies = layout.copies[stage]
                program += _reduction(here, action, layout.owners[stage], copies, "mirror", lane_number, sent)
                if tied_copies and stage in tied_left:
                    tied_left.remove(stage)
                    if not tied_left:
                        shared = Action(TIED, "REDUCE_GRAD")
                        program += _reduction(
                            here, shared, tied_copies[0], tied_copies, "tied", lane_number, sent
                        )
                continue
            takes = sends = NONE
            source, target = producer[node], consumer[node]
            if source != NONE and device[source] != here:
                key = device[source] * layout.num_devices + here
                if key not in data_lanes:
                    data_lanes[key] = lane_number(device[source], here, "data")
                takes = data_lanes[key]
            if target != NONE and device[target] != here:
                key = here * layout.num_devices + device[target]
                if key not in data_lanes:
                    data_lanes[key] = lane_number(here, device[target], "data")
                sends = data_lanes[key]
                sent[sends].append(Message(action, tokens[slot[node]]))
            program.append(Step(action, None if source == NONE else actions[source], takes, sends))
        programs.append(tuple(program))
    credits = _credits(programs, sent)
    lanes = tuple(
        Lane(source, target, purpose, tuple(sent[number]), credits[number])
        for (source, target, purpose), number in numbers.items()
    )
    return Lowered(layout, tuple(programs), lanes, layout.owners, tied_copies)


def _reduction(
    here: int,
    action: Action,
    owner: int,
    copies: Sequence[int],
    purpose: Purpose,
    lane_number: Callable[[int, int, Purpose], int],
    sent: list[list[Message]],
) -> list[Step]:
    """The part of device `here` in bringing gradients to their owner."""
    if here != owner:
        lane = lane_number(here, owner, purpose)
        sent[lane].append(Message(action, 0))
        return [Step(action, sends=lane)]
    return [Step(action, takes=lane_number(copy, owner, purpose)) for copy in copies if copy != owner]


def _credits(programs: Sequence[Sequence[Step]], sent: Sequence[Sequence[Message]]) -> list[int]:
    """A lane's t-th take (from 0) of its message number j needs j receives posted before it: j - t + 1 ahead."""
    places = _places(sent)
    credits, taken = [1] * len(sent), [0] * len(sent)
    for program in programs:
        for action, source, lane, _ in program:
            if lane == NONE:
                continue
            place = places[lane].get(source or action)
            if place is None:
                raise LoweringError(f"{source or action} is received but never sent")
            ahead = place - taken[lane] + 1
            if ahead > credits[lane]:
                credits[lane] = ahead
            taken[lane] += 1
    return credits


def _places(sent: Iterable[Sequence[Message]]) -> list[dict[Action, int]]:
    """Of each lane, the place of every message in the sender's order."""
    return [{message[0]: place for place, message in enumerate(messages)} for messages in sent]


def find_stall(lowered: Lowered, transport: Transport = "lanes") -> str | None:
    """Runs the messages without the compute; None when all arrive, otherwise what is left waiting for what.

    `lanes` is Contraflow's own transport: receives posted in the sender's order, at most `credit` ahead.
    Stricter ones show what other runtimes would do: `fifo` takes messages only in the order sent,
    `rendezvous` also holds a sender until its message is taken. Reductions run beside the program and hold up none.
    """
    left = _places(lane.messages for lane in lowered.lanes)
    ahead = [lane.credit if transport == "lanes" else 1 for lane in lowered.lanes]
    num_sent, num_taken = [0] * len(left), [0] * len(left)
    heads = [0] * len(lowered.programs)
    has_sent = [False] * len(lowered.programs)
    receiver: list[int] = [NONE] * len(left)
    runnable = list(range(len(heads)))
    while runnable:
        here = runnable.pop()
        program, head = lowered.programs[here], heads[here]
        while head < len(program):
            action, source, takes, sends = program[head]
            beside = action.kind == "REDUCE_GRAD"
            if takes != NONE and not has_sent[here]:
                place = left[takes].get(source or action)
                if place is None or (
                    not beside and (place >= num_sent[takes] or place >= num_taken[takes] + ahead[takes])
                ):
                    receiver[takes] = here
                    break
                del left[takes][source or action]
                num_taken[takes] += 1
                if transport == "rendezvous":
                    runnable.append(lowered.lanes[takes].source)
            if sends != NONE:
                if not has_sent[here]:
                    messages = lowered.lanes[sends].messages
                    if num_sent[sends] == len(messages) or messages[num_sent[sends]].action != action:
                        return f"{lowered.lanes[sends]} sends {action} out of its order"
                    num_sent[sends] += 1
                    if receiver[sends] != NONE:
                        runnable.append(receiver[sends])
                        receiver[sends] = NONE
                if transport == "rendezvous" and not beside and num_taken[sends] < num_sent[sends]:
                    has_sent[here] = True
                    break
                has_sent[here] = False
            head += 1
        heads[here] = head
    for here, (program, head) in enumerate(zip(lowered.programs, heads, strict=True)):
        if head < len(program):
            action, source, takes, sends = program[head]
            if has_sent[here]:
                return f"device {here} waits to be rid of {action} on the {lowered.lanes[sends]}"
            return (
                f"device {here} waits for {source or action} on the {lowered.lanes[takes]}, to run {action}"
            )
    for lane, sent, taken in zip(lowered.lanes, num_sent, num_taken, strict=True):
        if not sent == taken == len(lane.messages):
            return f"{lane} has {len(lane.messages)} messages, of which {sent} are sent and {taken} taken"
    return None
