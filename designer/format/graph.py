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

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    order = _executable_order(first, device, producer, consumer, local)
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
        for index, action in enumerate(program):
            if action.kind != "REDUCE_GRAD" or action.stage >= schedule.layout.num_stages:
                continue
            slots = range(action.stage * per_stage, (action.stage + 1) * per_stage)
            nodes = [node for where in slots for node in (backward[where], weight[where])]
            low, high = first[position], first[position + 1]
            local[low + index] = tuple([node for node in nodes if low <= node < high])


def _executable_order(
    first: list[int],
    device: list[int],
    producer: list[int],
    consumer: list[int],
    local: list[tuple[int, ...]],
) -> list[int]:
    order: list[int] = []
    done = [False] * len(device)
    head = first[:-1]
    runnable = list(range(len(head)))
    while runnable:
        here = runnable.pop()
        node, stop = head[here], first[here + 1]
        while node < stop:
            source = producer[node]
            if source != NONE and not done[source]:
                break
            # Waits of the own stage live on the own device as a rule; a file with faults may put them elsewhere.
            if not all([done[wait] for wait in local[node]]):
                break
            done[node] = True
            order.append(node)
            target = consumer[node]
            node += 1
            if target != NONE and head[device[target]] == target and device[target] != here:
                runnable.append(device[target])
        head[here] = node
    return order


def stuck_heads(graph: Graph) -> list[int]:
    """The first node of each device that never runs; empty for an executable program."""
    done = set(graph.order)
    heads = []
    for low, high in pairwise(graph.first):
        heads += [node for node in range(low, high) if node not in done][:1]
    return heads


def shortest_cycle(graph: Graph) -> list[tuple[int, int]]:
    """A shortest chain of waits that closes on itself; [] if there is none.

    Each link is (node, what it waits for); the next link starts with that or with one in front of it on its device.
    Exact for up to some hundred stuck actions; of larger programs the chain passes through a device's first stuck
    action.
    """
    done = set(graph.order)
    stuck = [node for node in range(len(graph.actions)) if node not in done]
    starts = stuck if len(stuck) <= 400 else stuck_heads(graph)
    best: list[tuple[int, int]] = []
    best_cost = len(graph.actions) + 1
    for start in starts:
        cost, links = _cycle_through(graph, done, start, best_cost)
        if links:
            best, best_cost = links, cost
    return best


def waits(graph: Graph, node: int) -> list[int]:
    """Everything that `node` waits for but its predecessor in the program."""
    source = graph.producer[node]
    return [*([] if source == NONE else [source]), *graph.local[node]]


def _cycle_through(graph: Graph, done: set[int], start: int, limit: int) -> tuple[int, list[tuple[int, int]]]:
    closed = NONE  # stands for arriving at `start` again
    parent: dict[int, int] = {}
    costs = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if node == closed:
            links = []
            while node != start:
                behind = parent[node]
                if costs[node] > costs[behind]:
                    links.append((behind, start if node == closed else node))
                node = behind
            return costs[closed], links[::-1]
        cost = costs[node]
        steps = [(wait, cost + 1) for wait in waits(graph, node)]
        if node > graph.first[graph.device[node]]:
            steps.append((node - 1, cost))
        for target, price in steps:
            if target in done or price >= limit:
                continue
            if target == start:
                target = closed
            if price < costs.get(target, limit):
                costs[target] = price
                parent[target] = node
                (queue.append if price > cost else queue.appendleft)(target)
    return limit, []
