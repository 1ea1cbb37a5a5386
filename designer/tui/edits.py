"""Changes of a program by hand: each gives another valid schedule, or says in words why there is none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from contraflow.designer.format.check import check
from contraflow.designer.format.graph import Graph, build, shortest_cycle
from contraflow.designer.format.lowering import with_reductions
from contraflow.designer.format.schedule import Action, Direction, Layout, Schedule
from contraflow.designer.simulate import Timeline


class Refused(ValueError):
    """An edit that would break the schedule; `chain` holds the nodes that would wait for each other, as they were."""

    def __init__(self, message: str, chain: tuple[int, ...] = ()):
        self.chain = chain
        super().__init__(message)


def moved(schedule: Schedule, graph: Graph, node: int, by: int) -> Schedule:
    """The schedule with an action one place earlier (-1) or later (1) on its device. Raises Refused."""
    device = graph.device[node]
    index = node - graph.first[device]
    other = index + by
    program = list(schedule.program[device])
    if not 0 <= other < len(program):
        raise Refused(
            f"{program[index]} is already the {'first' if by < 0 else 'last'} action of device {device}"
        )
    program[index], program[other] = program[other], program[index]
    exchanged = {node: node + by, node + by: node}
    return _valid(_with(schedule, device, program), exchanged)


def halved_or_joined(schedule: Schedule, graph: Graph, node: int) -> Schedule:
    """The schedule with a B as I and W, one behind the other; or with both as B, where I was. Raises Refused."""
    action, device = graph.actions[node], graph.device[node]
    stage, kind, microbatch, subsequence = action
    program: list[Action] = list(schedule.program[device])
    index = node - graph.first[device]
    match kind:
        case "B":
            halves = [
                Action(stage, "I", microbatch, subsequence),
                Action(stage, "W", microbatch, subsequence),
            ]
            program[index : index + 1] = halves
        case "I" | "W":
            whole = Action(stage, "B", microbatch, subsequence)
            program[program.index(Action(stage, "I", microbatch, subsequence))] = whole
            program.remove(Action(stage, "W", microbatch, subsequence))
        case _:
            raise Refused(f"{action} has no halves: only backwards have")
    return _valid(_with(schedule, device, program), {})


def sent_the_other_way(schedule: Schedule, timeline: Timeline, node: int) -> Schedule:
    """The schedule with an action's microbatch in the next direction, every action as early in line as it started.

    Raises Refused where there is one direction only.
    """
    layout, microbatch = schedule.layout, timeline.graph.actions[node].microbatch
    if microbatch is None:
        raise Refused("a reduction belongs to no microbatch")
    if len(layout.directions) == 1:
        raise Refused("there is one direction only; bsipipe, chimera, bitpipe and dualpipe have two")
    layout = replace(layout, directions=_other_way(layout, microbatch))
    graph = timeline.graph
    place = {node: number for number, node in enumerate(graph.order)}
    program: list[list[Action]] = [[] for _ in range(layout.num_devices)]
    # Nothing starts before what it waits for has ended: whatever device takes it, this order can be run.
    for node in sorted(graph.order, key=lambda node: (timeline.start[node], place[node])):
        action = graph.actions[node]
        if action.microbatch is not None:
            program[layout.device_of(action.stage, action.microbatch)].append(action)
    found = replace(schedule, layout=layout, program=tuple(map(tuple, program)))
    named = any(action.microbatch is None for own in schedule.program for action in own)
    return _valid(with_reductions(found) if named else found, {})


def _other_way(layout: Layout, microbatch: int) -> tuple[Direction, ...]:
    there = (layout.direction_of[microbatch] + 1) % len(layout.directions)
    found = []
    for number, direction in enumerate(layout.directions):
        own = {*direction.microbatches} - {microbatch} | ({microbatch} if number == there else set())
        found.append(replace(direction, microbatches=tuple(sorted(own))))
    return tuple(found)


def _with(schedule: Schedule, device: int, program: Sequence[Action]) -> Schedule:
    programs = list(schedule.program)
    programs[device] = tuple(program)
    return replace(schedule, program=tuple(programs))


def _valid(schedule: Schedule, exchanged: dict[int, int]) -> Schedule:
    graph = build(schedule)
    faults = check(schedule, graph)
    if not faults:
        return schedule
    chain = [node for link in shortest_cycle(graph) for node in link]
    raise Refused(f"{faults[0]}", tuple(dict.fromkeys(exchanged.get(node, node) for node in chain)))
