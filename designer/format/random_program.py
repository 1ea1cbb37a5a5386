"""Random valid schedules, from a seed alone: what must hold for every schedule is tried on these."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapify, heappop, heappush
from random import Random

from .graph import build, waits
from .schedule import Action, Direction, Layout, Schedule


def random_schedule(
    rng: Random,
    *,
    max_devices: int = 4,
    max_stages: int = 6,
    max_directions: int = 3,
    max_microbatches: int = 4,
    max_subsequences: int = 4,
    max_tokens: int = 6,
    num_layers: int = 4,
) -> Schedule:
    """Any placement, any split, any order that the waits allow; backwards as B or as I and W.

    A subsequence has at most `max_tokens` tokens. Where the schedule lists `layers`, zeros among them, they add up to
    `num_layers`. The stages are more than `max_stages` only where the devices need so many.
    """
    num_devices = rng.randint(1, max_devices)
    num_directions = rng.randint(1, max_directions)
    least = -(-num_devices // num_directions)
    num_stages = rng.randint(least, max(least, max_stages))
    splits = _splits(rng, rng.randint(1, max_microbatches), max_subsequences, max_tokens)
    layout = Layout(
        num_devices,
        tuple(map(sum, splits)),
        splits,
        _directions(rng, num_devices, num_stages, num_directions, len(splits)),
        _layers(rng, num_layers, num_stages) if rng.random() < 0.4 else None,
        tuple(rng.sample(range(num_devices), num_devices)) if rng.random() < 0.3 else None,
    )
    name = f"random p{num_devices} s{num_stages} d{num_directions} m{len(splits)}"
    return shuffled(Schedule(name, layout, ((),) * num_devices), rng)


def shuffled(schedule: Schedule, rng: Random) -> Schedule:
    """Another valid program of the same layout: backwards cut anew into I and W, or not, in any order.

    Some of them name some of the reductions, in one order on all devices.
    """
    unordered = replace(schedule, program=_actions(schedule.layout, rng))
    graph = build(unordered)
    waiting = [0] * len(graph.actions)
    followers: list[list[int]] = [[] for _ in graph.actions]
    for node, action in enumerate(graph.actions):
        needed = waits(graph, node)
        # One common order of reductions: each keeps its place behind the one in front of it.
        if action.kind == "REDUCE_GRAD" and graph.actions[node - 1].kind == "REDUCE_GRAD":
            needed.append(node - 1)
        waiting[node] = len(needed)
        for wait in needed:
            followers[wait].append(node)
    keys = [rng.random() for _ in graph.actions]
    ready = [(keys[node], node) for node, count in enumerate(waiting) if not count]
    heapify(ready)
    programs: list[list[Action]] = [[] for _ in schedule.program]
    while ready:
        _, node = heappop(ready)
        programs[graph.device[node]].append(graph.actions[node])
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(ready, (keys[follower], follower))
    return replace(schedule, program=tuple(map(tuple, programs)))


def _actions(layout: Layout, rng: Random) -> tuple[tuple[Action, ...], ...]:
    """What each device has to run, reductions last, in no order otherwise."""
    programs: list[list[Action]] = [[] for _ in range(layout.num_devices)]
    cut_backwards = rng.choice((0.0, 0.5, 1.0))
    for stage in range(layout.num_stages):
        for microbatch, split in enumerate(layout.splits):
            here = programs[layout.device_of(stage, microbatch)]
            for subsequence in range(len(split)):
                for kind in ("F", "I", "W") if rng.random() < cut_backwards else ("F", "B"):
                    here.append(layout.action(stage, kind, microbatch, subsequence))
    named = rng.choice((0.0, 0.0, 0.5, 1.0))
    for stage in rng.sample(range(layout.num_stages), layout.num_stages):
        if rng.random() < named:
            for device in layout.copies[stage]:
                programs[device].append(Action(stage, "REDUCE_GRAD"))
    return tuple(map(tuple, programs))


def _splits(
    rng: Random, num_microbatches: int, max_subsequences: int, max_tokens: int
) -> tuple[tuple[int, ...], ...]:
    def split() -> tuple[int, ...]:
        return tuple(rng.randint(1, max_tokens) for _ in range(rng.randint(1, max_subsequences)))

    if rng.random() < 0.3:
        return (split(),) * num_microbatches
    return tuple(split() for _ in range(num_microbatches))


def _directions(
    rng: Random, num_devices: int, num_stages: int, num_directions: int, num_microbatches: int
) -> tuple[Direction, ...]:
    count = num_stages * num_directions
    # Every device once, so that each holds a stage; the other places as they come.
    places = [*range(num_devices), *(rng.randrange(num_devices) for _ in range(count - num_devices))]
    rng.shuffle(places)
    travels = [rng.randrange(num_directions) for _ in range(num_microbatches)]
    return tuple(
        Direction(
            f"direction {number}",
            tuple(places[number * num_stages : (number + 1) * num_stages]),
            tuple(microbatch for microbatch, way in enumerate(travels) if way == number),
        )
        for number in range(num_directions)
    )


def _layers(rng: Random, num_layers: int, num_stages: int) -> tuple[int, ...]:
    borders = sorted(rng.randint(0, num_layers) for _ in range(num_stages - 1))
    return tuple(stop - start for start, stop in zip([0, *borders], [*borders, num_layers], strict=True))
