"""Editing a program by hand: an action moved, a microbatch sent the other way, a backward halved or made whole.

Every edit of a valid schedule gives a valid one, or an objection that names the waits in its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from .difference import Place
from .format.graph import NONE, Graph, build, waits
from .format.lowering import with_reductions
from .format.schedule import Action, Kind, Schedule
from .simulate import Timeline

Why = Literal["input", "stage", "order"]
"""`input`: for what makes its input. `stage`: for another of its own stage. `order`: for one before it there."""


class Wait(NamedTuple):
    """One action waits for another; both stand in the program as it is, before the edit."""

    action: Action
    place: Place
    other: Action
    there: Place
    why: Why


@dataclass(frozen=True, slots=True)
class Objection:
    """Why an edit cannot be: one line, and the chain of waits in its way, each for what waits next."""

    reason: str
    waits: tuple[Wait, ...] = ()


def moved(
    schedule: Schedule, device: int, position: int, by: int, graph: Graph | None = None
) -> Schedule | Objection:
    """The action at `position` of a device `by` places later, or earlier where that is negative.

    `graph` is that of the schedule, such as its preview's; it spares building it anew.
    """
    program, target = schedule.program[device], position + by
    if not 0 <= target < len(program):
        end = "first" if by < 0 else "last"
        return Objection(
            f"{program[position]} cannot move there: device {device} has the actions 0 to {len(program) - 1}, "
            f"and {program[0 if by < 0 else -1]} is the {end}"
        )
    graph = graph or build(schedule)
    obstacle = _obstacle(graph, graph.first[device] + position, graph.first[device] + target)
    if obstacle:
        return _objection(obstacle, later=by > 0)
    actions = list(program)
    actions.insert(target, actions.pop(position))
    return _with_program(schedule, device, actions)


def reach(schedule: Schedule, device: int, position: int, graph: Graph | None = None) -> tuple[int, int]:
    """The first and the last position that the action at `position` of a device can move to."""
    graph = graph or build(schedule)
    first, stop = graph.first[device : device + 2]
    before = _obstacle(graph, first + position, first)
    behind = _obstacle(graph, first + position, stop - 1)
    return (
        before[-1].there.position + 1 if before else 0,
        behind[0].place.position - 1 if behind else stop - first - 1,
    )


def halved(schedule: Schedule, device: int, position: int, later: int | None = 0) -> Schedule | Objection:
    """The B at `position` of a device as I and W: the W `later` actions behind the I, or None as late as can be."""
    program = schedule.program[device]
    whole = program[position]
    if whole.kind != "B":
        return Objection(f"{whole} is no B: only a whole backward has halves")
    last = len(program)
    for place, action in enumerate(program):
        if action.kind == "REDUCE_GRAD" and action.stage == whole.stage:
            last = place
    target = last if later is None else position + 1 + later
    weight = whole._replace(kind="W")
    if target > last < len(program):
        chain = (Wait(program[last], Place(device, last), whole, Place(device, position), "stage"),)
        return Objection(
            f"{weight} must come before {program[last]} ({_at(chain[0].place)}), which waits for it", chain
        )
    actions = [*program[:position], whole._replace(kind="I"), *program[position + 1 :]]
    actions.insert(target, weight)
    return _with_program(schedule, device, actions)


def fused(schedule: Schedule, device: int, position: int) -> Schedule | Objection:
    """The I or W at `position` of a device and its other half as one B, where the I stands."""
    program = schedule.program[device]
    half = program[position]
    if half.kind not in ("I", "W"):
        return Objection(f"{half} is neither I nor W: only the halves of a backward make a whole one")
    first, second = half._replace(kind="I"), half._replace(kind="W")
    actions = [
        half._replace(kind="B") if action == first else action for action in program if action != second
    ]
    return _with_program(schedule, device, actions)


def all_halved(schedule: Schedule) -> Schedule:
    """Every B as I and W, the W right behind."""
    return _rewritten(schedule, {"B": ("I", "W")})


def all_fused(schedule: Schedule) -> Schedule:
    """Every I and W as one B, where the I stands."""
    return _rewritten(schedule, {"I": ("B",), "W": ()})


def sent_other_way(
    schedule: Schedule, timeline: Timeline, microbatch: int, direction: int | None = None
) -> Schedule | Objection:
    """A microbatch in another direction, by default the next: its actions on the devices that hold their stages there.

    All actions are listed anew in the order in which they start on `timeline`, the schedule's own. Starts follow what
    is waited for, wherever it runs, so what comes out can be run; what was not sent elsewhere keeps its order.
    """
    layout = schedule.layout
    if len(layout.directions) == 1:
        return Objection(f"microbatch {microbatch} has no other way: the schedule has one direction")
    before = layout.direction_of[microbatch]
    after = (before + 1) % len(layout.directions) if direction is None else direction
    travels = [set(way.microbatches) - {microbatch} for way in layout.directions]
    travels[after].add(microbatch)
    directions = [
        replace(way, microbatches=tuple(sorted(numbers)))
        for way, numbers in zip(layout.directions, travels, strict=True)
    ]
    layout = replace(layout, directions=tuple(directions))
    graph, start = timeline.graph, timeline.start
    programs: list[list[Action]] = [[] for _ in schedule.program]
    # Sorting is stable: what starts at one instant stays in an order that respects all waits.
    for node in sorted(graph.order, key=start.__getitem__):
        action = graph.actions[node]
        if action.microbatch is not None:
            programs[layout.device_of(action.stage, action.microbatch)].append(action)
    found = replace(schedule, layout=layout, program=tuple(map(tuple, programs)))
    # A reduction waits for other actions than before, and all devices agree on the order of these.
    named = any(action.microbatch is None for program in schedule.program for action in program)
    return with_reductions(found) if named else found


def _with_program(schedule: Schedule, device: int, actions: Sequence[Action]) -> Schedule:
    programs = list(schedule.program)
    programs[device] = tuple(actions)
    return replace(schedule, program=tuple(programs))


def _rewritten(schedule: Schedule, kinds: Mapping[Kind, Sequence[Kind]]) -> Schedule:
    """Each action of a kind in `kinds` as actions of those kinds."""
    return replace(
        schedule,
        program=tuple(
            tuple(
                action._replace(kind=kind)
                for action in program
                for kind in kinds.get(action.kind, (action.kind,))
            )
            for program in schedule.program
        ),
    )


# What an action cannot pass.


def _obstacle(graph: Graph, moving: int, target: int) -> list[Wait]:
    """Of the nodes from `moving` to `target` the nearest that it cannot pass, as the waits between them; [] for none.

    It passes those that do not wait for it, nor it for them, but for their order: directly or by any others.
    """
    between = range(moving + 1, target + 1) if target > moving else range(moving - 1, target - 1, -1)
    if not between:
        return []
    walk = _Walk(graph, moving, between)
    if target < moving:
        walk.back(moving)
        found = next((node for node in between if node in walk.waiter), NONE)
        return walk.chain(moving, found) if found != NONE else []
    for node in between:
        walk.back(node)
        if moving in walk.waiter:
            return walk.chain(node, moving)
    return []


class _Walk:
    """From what waits to what is waited for, by the fewest waits, without the place of one node on its device."""

    def __init__(self, graph: Graph, moving: int, between: Sequence[int]):
        self.graph, self.moving = graph, moving
        self.waiter: dict[int, int] = {}
        """Of every node that was reached, the one that waits for it."""
        self.rank = [0] * len(graph.actions)
        for index, node in enumerate(graph.order):
            self.rank[node] = index
        # Nothing waits for what comes behind it in an order that respects all waits.
        self.least = min(self.rank[node] for node in (moving, *between))
        self.reductions = _in_fixed_order(graph, moving, between)

    def back(self, start: int) -> None:
        """Reach all that `start` waits for."""
        frontier = [start]
        while frontier:
            reached = []
            for node in frontier:
                for wait in self.waits(node):
                    if wait not in self.waiter and self.rank[wait] >= self.least:
                        self.waiter[wait] = node
                        reached.append(wait)
            frontier = reached

    def waits(self, node: int) -> Iterator[int]:
        graph = self.graph
        yield from waits(graph, node)
        if node != self.moving and node - 1 != self.moving and node > graph.first[graph.device[node]]:
            yield node - 1
        for earlier, later in self.reductions:
            if node == later:
                yield earlier

    def chain(self, start: int, goal: int) -> list[Wait]:
        """From `start`, which waits, to `goal`."""
        links: list[Wait] = []
        while goal != start:
            node = self.waiter[goal]
            links.append(_wait(self.graph, node, goal))
            goal = node
        return links[::-1]


def _in_fixed_order(graph: Graph, moving: int, between: Sequence[int]) -> list[tuple[int, int]]:
    """Reductions, as (earlier, later), that keep their order: devices name the stages that they share in one order."""
    actions, copies = graph.actions, graph.layout.copies
    if actions[moving].kind != "REDUCE_GRAD":
        return []
    here = graph.device[moving]
    shared = set(copies[actions[moving].stage]) - {here}
    return [
        (min(node, moving), max(node, moving))
        for node in between
        if actions[node].kind == "REDUCE_GRAD" and shared.intersection(copies[actions[node].stage])
    ]


def _wait(graph: Graph, node: int, other: int) -> Wait:
    why: Why = "order"
    if graph.producer[node] == other:
        why = "input"
    elif other in graph.local[node]:
        why = "stage"
    return Wait(graph.actions[node], _place(graph, node), graph.actions[other], _place(graph, other), why)


def _place(graph: Graph, node: int) -> Place:
    device = graph.device[node]
    return Place(device, node - graph.first[device])


# In words.


def _objection(chain: list[Wait], later: bool) -> Objection:
    first, last = chain[0], chain[-1]
    if later:
        stays = f"{last.other} must stay before {first.action} ({_at(first.place)})"
    else:
        stays = f"{first.action} must stay behind {last.other} ({_at(last.there)})"
    if last.action.kind == last.other.kind == "REDUCE_GRAD":
        return Objection(f"{stays}: all devices name the stages that they share in one order", tuple(chain))
    return Objection(f"{stays}: {'; '.join(_told(chain))}", tuple(chain))


def _told(chain: Sequence[Wait]) -> Iterator[str]:
    """A sentence for each wait; what only comes after another on its device is told with the wait before it."""
    index = 0
    while index < len(chain):
        wait = chain[index]
        said = f"{wait.action} waits for {wait.other} ({_at(wait.there)})"
        index += 1
        behind = wait.other
        while index < len(chain) and chain[index].why == "order":
            behind = chain[index].other
            index += 1
        yield said if behind == wait.other else f"{said}, which comes after {behind} there"


def _at(place: Place) -> str:
    return f"device {place.device}, action {place.position}"
