"""List scheduling: a valid program for any layout, and the very times that its prices then give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.costs.prices import Link, Network, Prices
from contraflow.designer.costs.unit import unit
from contraflow.designer.format.check import check
from contraflow.designer.format.graph import build
from contraflow.designer.format.schedule import Direction, Kind, Layout, Schedule
from contraflow.designer.generators.list_scheduling import Gate, Jobs, Listed
from contraflow.designer.simulate import simulate


class Open:
    """A gate that holds nothing back."""

    def admits(self, device: int, slot: int) -> bool:
        return True

    def opened(self, device: int, slot: int) -> None: ...
    def closed(self, device: int, slot: int) -> None: ...


class AtMost(Open):
    """A gate that lets a device hold so many forwards at a time."""

    def __init__(self, layout: Layout, most: int):
        self.live, self.most = [0] * layout.num_devices, most
        self.peak = 0

    def admits(self, device: int, slot: int) -> bool:
        return self.live[device] < self.most

    def opened(self, device: int, slot: int) -> None:
        self.live[device] += 1
        self.peak = max(self.peak, self.live[device])

    def closed(self, device: int, slot: int) -> None:
        self.live[device] -= 1


def backwards_first(kind: Kind, stage: int, microbatch: int, subsequence: int) -> tuple[int, int, int, int]:
    last = subsequence if kind == "F" else -subsequence
    return ("IBFW".index(kind), microbatch, last, stage)


def priced(layout: Layout, rng: Random, messages: bool) -> Prices:
    """Any prices: some actions cost nothing, some a thousand times more than others."""

    def table() -> list[float]:
        return [rng.choice((0.0, 1.0, rng.random(), 1000 * rng.random())) for _ in range(layout.num_slots)]

    return replace(
        unit(layout),
        forward=table(),
        backward=table(),
        backward_input=table(),
        backward_weight=table(),
        network=network(layout, rng) if messages else Network(),
        transfer=table() if messages else [0.0] * layout.num_slots,
    )


def network(layout: Layout, rng: Random) -> Network:
    """Devices in two nodes, farther from one another than from those of their own."""
    nodes = tuple(rng.randrange(2) for _ in range(layout.num_devices))
    return Network(
        Link(rng.choice((0.0, rng.random())), 1.0), Link(2 * rng.random(), 1 + rng.random()), nodes
    )


def listed(
    layout: Layout,
    prices: Prices,
    kinds: Sequence[Kind],
    urgency: Callable[[Kind, int, int, int], Any],
    gate: Gate,
) -> tuple[Jobs, Listed]:
    jobs = Jobs(layout, prices, kinds)
    order = sorted(
        range(len(jobs.duration)),
        key=lambda job: urgency(kinds[job // jobs.num_slots], *jobs.cells[job % jobs.num_slots]),
    )
    return jobs, jobs.scheduled(order, gate)


def simulated(jobs: Jobs, found: Listed) -> float:
    layout, prices = jobs.layout, jobs.prices
    schedule = Schedule("listed", layout, jobs.program(found))
    graph = build(schedule)
    assert check(schedule, graph) == []
    return simulate(graph, prices).makespan


@given(
    schedule=st.from_type(Schedule),
    kinds=st.sampled_from([("F", "B"), ("F", "I", "W")]),
    messages=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_program_takes_exactly_the_time_that_was_planned(
    schedule: Schedule, kinds: tuple[Kind, ...], messages: bool, seed: int
) -> None:
    layout, rng = schedule.layout, Random(seed)
    prices = priced(layout, rng, messages)
    keys = rng.choice((backwards_first, lambda *job: Random(f"{seed} {job}").random()))
    jobs, found = listed(layout, prices, kinds, keys, Open())
    assert {action.kind for actions in jobs.program(found) for action in actions} == set(kinds)
    assert simulated(jobs, found) == pytest.approx(found.makespan, rel=1e-6)
    again = jobs.replayed(found.started)
    assert again.started == found.started
    assert again.makespan == pytest.approx(found.makespan, rel=1e-6)


@given(schedule=st.from_type(Schedule), messages=st.booleans(), seed=st.integers(0, 2**32))
def test_a_program_made_for_other_prices_takes_what_the_simulator_says(
    schedule: Schedule, messages: bool, seed: int
) -> None:
    layout, rng = schedule.layout, Random(seed)
    _, found = listed(layout, unit(layout), ("F", "B"), backwards_first, Open())
    jobs = Jobs(layout, priced(layout, rng, messages), ("F", "B"))
    again = jobs.replayed(found.started)
    assert again.started == found.started
    assert simulated(jobs, again) == pytest.approx(again.makespan, rel=1e-6)


STRAIGHT = Layout(2, (4,) * 3, ((4,),) * 3, (Direction("down", (0, 1), (0, 1, 2)),))


@pytest.mark.parametrize(
    ("latency", "transfer", "makespan"), [(0, 0, 5), (0.5, 0, 6), (0, 0.25, 5.5), (0.5, 0.25, 6.5)]
)
def test_messages_are_waited_for(latency: float, transfer: float, makespan: float) -> None:
    # F on both devices, then I on both, then the W of the first: two messages on the way.
    layout = replace(STRAIGHT, sequences=(4,), splits=((4,),), directions=(Direction("down", (0, 1), (0,)),))
    prices = replace(
        unit(layout), network=Network(Link(latency, 1.0)), transfer=[transfer] * layout.num_slots
    )
    _, found = listed(layout, prices, ("F", "I", "W"), backwards_first, Open())
    assert found.makespan == makespan


def test_messages_of_one_lane_follow_one_another() -> None:
    prices = replace(unit(STRAIGHT), transfer=[3.0] * STRAIGHT.num_slots)
    jobs, found = listed(STRAIGHT, prices, ("F", "B"), backwards_first, Open())
    # The third input leaves its lane at 1 + 3 + 3 + 3, its gradient at 13 + 3; B takes 2.
    assert found.makespan == 18
    assert simulated(jobs, found) == 18


def test_a_w_fills_the_time_in_which_nothing_else_can_run() -> None:
    jobs, found = listed(STRAIGHT, unit(STRAIGHT), ("F", "I", "W"), backwards_first, Open())
    assert [" ".join(map(str, actions)) for actions in jobs.program(found)] == [
        "0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2",
        "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2",
    ]


def test_urgency_decides_between_what_is_ready() -> None:
    def last_first(kind: Kind, stage: int, microbatch: int, subsequence: int) -> tuple[bool, int]:
        return (kind != "B", -microbatch)

    jobs, found = listed(STRAIGHT, unit(STRAIGHT), ("F", "B"), last_first, Open())
    assert [action.microbatch for action in jobs.program(found)[0] if action.kind == "F"] == [2, 1, 0]


def test_a_gate_holds_forwards_back_until_something_ends() -> None:
    for kinds in (("F", "B"), ("F", "I", "W")):
        for most in (1, 2, 3):
            gate = AtMost(STRAIGHT, most)
            jobs, found = listed(STRAIGHT, unit(STRAIGHT), kinds, backwards_first, gate)
            assert gate.peak == most
            assert gate.live == [0, 0]
            assert simulated(jobs, found) == found.makespan
