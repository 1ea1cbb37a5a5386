"""What every action waits for: the one statement of the rule, as integer arrays built once.

An action of one stage on one subsequence waits for

- the *producer* of its input: the same subsequence at the previous stage (F) or the next stage (B, I);
  it is at most one, and the only wait that can cross devices;
- actions of its own stage, which live on its own device: the subsequence before it (F: causal attention reads its
  keys and values), its own F and the subsequence behind it (B, I: later subsequences add to the gradient of its keys
  and values), its I (W), every B and W of the stage (REDUCE_GRAD);
- the action before it in its device's program.

Checker, lowering, simulator and explanations all read these arrays. A program with faults has a graph too: what is
missing, or cannot be placed, is left out of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from .schedule import Action, Layout, Schedule

NONE = -1


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes are the actions, numbered device after device in program order."""

    layout: Layout
    actions: Sequence[Action]
    first: Sequence[int]
    """Device d runs the nodes `first[d]` up to `first[d + 1]`."""
    device: Sequence[int]
    slot: Sequence[int]
    """Slot of each node; NONE for REDUCE_GRAD and for actions outside the layout."""
    forward: Sequence[int]
    backward: Sequence[int]
    weight: Sequence[int]
    """Node of each slot's F; of its B or I; of its W. NONE where there is none."""
    producer: Sequence[int]
    """Node that makes the input of each node, or NONE."""
    consumer: Sequence[int]
    """The inverse of `producer`."""
    local: Sequence[tuple[int, ...]]
    """Nodes of the same stage that each node waits for."""
    order: Sequence[int]
    """Nodes in an order that respects all waits; shorter than `actions` where the program cannot be executed."""


def build(schedule: Schedule) -> Graph:
    """The graph of a schedule, in time linear in its actions."""
    layout = schedule.layout
    per_stage = layout.slots_per_stage
    first_slots = layout.first_slots
    lengths = [len(split) for split in layout.splits]
    num_microbatches = layout.num_microbatches
    num_stages = layout.num_stages
    num_slots = layout.num_slots

    actions: list[Action] = []
    first, device, slot = [0], [], []
    forward, backward, weight = [NONE] * num_slots, [NONE] * num_slots, [NONE] * num_slots
    node_of = {"F": forward, "B": backward, "I": backward, "W": weight}
    for position, program in enumerate(schedule.program):
        for action in program:
            stage, kind, microbatch, subsequence = action
            if microbatch is None or not 0 <= microbatch < num_microbatches or stage >= num_stages:
                slot.append(NONE)
            else:
                subsequence = subsequence or 0
                if subsequence >= lengths[microbatch]:
                    slot.append(NONE)
                else:
                    where = stage * per_stage + first_slots[microbatch] + subsequence
                    table = node_of[kind]
                    if table[where] == NONE:
                        table[where] = len(slot)
                    slot.append(where)
        actions += program
        device += [position] * len(program)
        first.append(len(slot))

    producer, consumer = [NONE] * len(slot), [NONE] * len(slot)
    local: list[tuple[int, ...]] = [()] * len(slot)
    _waits_of_slots(layout, forward, backward, weight, producer, consumer, local)
    _waits_of_reductions(schedule, first, slot, backward, weight, local)
    order = _executable_order(first, producer, local)
    return Graph(
        layout, actions, first, device, slot, forward, backward, weight, producer, consumer, local, order
    )


def _waits_of_slots(
    layout: Layout,
    forward: list[int],
    backward: list[int],
    weight: list[int],
    producer: list[int],
    consumer: list[int],
    local: list[tuple[int, ...]],
) -> None:
    per_stage = layout.slots_per_stage
    last_stage = (layout.num_stages - 1) * per_stage
    leads = [q == 0 for split in layout.splits for q in range(len(split))] * layout.num_stages
    ends = [q == len(split) - 1 for split in layout.splits for q in range(len(split))] * layout.num_stages
    for where, node in enumerate(forward):
        if node == NONE:
            continue
        if where >= per_stage:
            source = forward[where - per_stage]
            if source != NONE:
                producer[node] = source
                consumer[source] = node
        if not leads[where] and forward[where - 1] != NONE:
            local[node] = (forward[where - 1],)
    for where, node in enumerate(backward):
        if node == NONE:
            continue
        if where < last_stage:
            source = backward[where + per_stage]
            if source != NONE:
                producer[node] = source
                consumer[source] = node
        later = NONE if ends[where] else backward[where + 1]
        local[node] = tuple([wait for wait in (forward[where], later) if wait != NONE])
        if weight[where] != NONE:
            local[weight[where]] = (node,)


def _waits_of_reductions(
    schedule: Schedule,
    first: list[int],
    slot: list[int],
    backward: list[int],
    weight: list[int],
    local: list[tuple[int, ...]],
) -> None:
    per_stage = schedule.layout.slots_per_stage
    for position, program in enumerate(schedule.program):
        seen: set[int] = set()
        for index, action in enumerate(program):
            stage = action.stage
            if action.kind != "REDUCE_GRAD" or stage >= schedule.layout.num_stages or stage in seen:
                continue
            seen.add(stage)
            slots = range(stage * per_stage, (stage + 1) * per_stage)
            nodes = [node for where in slots for node in (backward[where], weight[where])]
            low, high = first[position], first[position + 1]
            local[low + index] = tuple([node for node in nodes if low <= node < high])


def _executable_order(
    first: list[int],
    producer: list[int],
    local: list[tuple[int, ...]],
) -> list[int]:
    order: list[int] = []
    done = [False] * len(producer)
    head = first[:-1]
    runnable = list(range(len(head)))
    blocked: dict[int, list[int]] = {}
    while runnable:
        here = runnable.pop()
        node, stop = head[here], first[here + 1]
        while node < stop:
            source = producer[node]
            # Waits of the own stage live on the own device as a rule; a file with faults may put them elsewhere.
            unmet = [wait for wait in local[node] if not done[wait]]
            if source != NONE and not done[source]:
                unmet.append(source)
            if unmet:
                blocked.setdefault(unmet[0], []).append(here)
                break
            done[node] = True
            order.append(node)
            if node in blocked:
                runnable += blocked.pop(node)
            node += 1
        head[here] = node
    return order


def waits(graph: Graph, node: int) -> list[int]:
    """Everything that `node` waits for but its predecessor in the program."""
    source = graph.producer[node]
    return [*([] if source == NONE else [source]), *graph.local[node]]


def shortest_cycle(graph: Graph) -> list[tuple[int, int]]:
    """A shortest chain of waits that closes on itself; [] if there is none.

    Each link is (node, what it waits for); the next link starts with that or with one in front of it on its device.
    """
    stairs = _stairs(graph)
    starts = sorted({node for lanes in stairs for nodes, _ in lanes.values() for node in nodes})
    best: list[tuple[int, int]] = []
    # Most are short: looking for those first bounds all searches. None passes a device twice.
    limit = 1
    while starts and not best and limit < 2 * len(stairs):
        for start in starts:
            most = len(best) - 1 if best else limit
            best = _cycle_through(graph.device, stairs, start, most) or best
        limit *= 2
    return best


Stairs = list[dict[int, tuple[list[int], list[int]]]]


def _stairs(graph: Graph) -> Stairs:
    """Of each device, by the device waited for: the stuck nodes that wait for one farther on than all before them.

    An action waits for all that those before it on its device wait for, so a shortest cycle can be made of these.
    """
    stuck = [True] * len(graph.actions)
    for node in graph.order:
        stuck[node] = False
    stairs: Stairs = [{} for _ in graph.first[1:]]
    for node in range(len(graph.actions)):
        if not stuck[node]:
            continue
        for wait in waits(graph, node):
            nodes, targets = stairs[graph.device[node]].setdefault(graph.device[wait], ([], []))
            if stuck[wait] and (not targets or wait > targets[-1]):
                nodes.append(node)
                targets.append(wait)
    return stairs


def _cycle_through(device: Sequence[int], stairs: Stairs, start: int, most: int) -> list[tuple[int, int]]:
    """The fewest links from `start` to itself or to one behind it; [] where that takes more than `most`."""
    home = device[start]
    farthest = {home: start}
    origin: dict[int, tuple[int, int]] = {}
    frontier = [start]
    for _ in range(most):
        reached = []
        for here in frontier:
            for there, (nodes, targets) in stairs[device[here]].items():
                index = bisect_right(nodes, here) - 1
                if index < 0:
                    continue
                node, target = nodes[index], targets[index]
                if there == home and target >= start:
                    links = [(node, target)]
                    while here != start:
                        node, behind = origin[here]
                        links.append((node, here))
                        here = behind
                    return links[::-1]
                if target > farthest.get(there, NONE):
                    farthest[there] = target
                    origin[target] = (node, here)
                    reached.append(target)
        frontier = reached
    return []
