"""The timeline: every action as early as its waits allow, and never earlier, whatever the prices."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.costs.prices import Link, Network, Prices
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import preview
from contraflow.designer.format.graph import NONE, build, waits
from contraflow.designer.format.lowering import with_reductions
from contraflow.designer.format.schedule import Direction, Layout, Schedule, parse_token
from contraflow.designer.generators import GENERATORS, Request
from contraflow.designer.simulate import Timeline, simulate

SCHEDULES = st.from_type(Schedule)
SEEDS = st.integers(0, 2**32)


def priced(layout: Layout, rng: Random) -> Prices:
    """Any prices, as multiples of a 64th, so that sums of them are exact."""

    def table(count: int) -> list[float]:
        return [rng.choice((0.0, 1.0, rng.randint(0, 640) / 64)) for _ in range(count)]

    slots = layout.num_slots
    return Prices(
        "seconds", "any", "", table(slots), table(slots), table(slots), table(slots), table(slots),
        table(layout.num_stages), network(layout, rng),
    )  # fmt: skip


def network(layout: Layout, rng: Random) -> Network:
    """Devices in two nodes, or all near one another; some lanes have a link of their own."""

    def link() -> Link:
        return Link(rng.randint(0, 640) / 64, float(rng.randint(1, 8)))

    devices = range(layout.num_devices)
    own = rng.choice((0.0, 0.5))
    lanes = {(one, other): link() for one in devices for other in devices if rng.random() < own}
    nodes = rng.choice(((), tuple(rng.randrange(2) for _ in range(layout.num_devices))))
    return Network(Link(rng.randint(0, 64) / 64, 1.0), link(), nodes, lanes)


def timeline(schedule: Schedule, seed: int) -> Timeline:
    return simulate(build(with_reductions(schedule)), priced(schedule.layout, Random(seed)))


@given(SCHEDULES, SEEDS)
def test_an_action_starts_when_its_device_is_free_and_its_input_has_arrived(
    schedule: Schedule, seed: int
) -> None:
    shown = timeline(schedule, seed)
    graph, prices, durations = shown.graph, shown.prices, shown.prices.durations()
    arrival = [0.0] * len(graph.actions)
    for low, high in pairwise(graph.first):
        leaves: dict[int, float] = {}
        for node in range(low, high):
            target = graph.consumer[node]
            arrival[node] = shown.end[node]
            if target != NONE and graph.device[target] != graph.device[node]:
                there = graph.device[target]
                latency, slowness = prices.network.link(graph.device[node], there)
                transfer = slowness * prices.transfer[graph.slot[node]]
                leaves[there] = max(shown.end[node], leaves.get(there, 0.0)) + transfer
                arrival[node] = leaves[there] + latency
    assert list(shown.arrival) == [
        end if graph.slot[node] == NONE else arrival[node] for node, end in enumerate(shown.end)
    ]
    for low, high in pairwise(graph.first):
        free = 0.0
        for node in range(low, high):
            if graph.slot[node] == NONE:
                assert shown.start[node] == free
                continue
            source = graph.producer[node]
            assert shown.start[node] == max(free, 0.0 if source == NONE else arrival[source])
            free = shown.start[node] + durations[graph.actions[node].kind][graph.slot[node]]
            assert shown.end[node] == free


@given(SCHEDULES, SEEDS)
def test_every_wait_is_respected(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    for node in range(len(shown.graph.actions)):
        for wait in waits(shown.graph, node):
            assert shown.start[node] >= shown.end[wait]


@given(SCHEDULES, SEEDS)
def test_reductions_run_beside_the_computes_and_end_at_their_owner(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    graph, owners = shown.graph, shown.graph.layout.owners
    arrived: dict[int, list[float]] = {}
    for low, high in pairwise(graph.first):
        leaves: dict[int, float] = {}
        for node in range(low, high):
            stage = graph.actions[node].stage
            if graph.slot[node] == NONE and graph.device[node] != owners[stage]:
                owner = owners[stage]
                latency, slowness = shown.prices.network.link(graph.device[node], owner)
                transfer = slowness * shown.prices.reduction[stage]
                leaves[owner] = max(shown.start[node], leaves.get(owner, 0.0)) + transfer
                assert shown.end[node] == leaves[owner] + latency
                arrived.setdefault(stage, []).append(shown.end[node])
    for node, action in enumerate(graph.actions):
        if graph.slot[node] == NONE and graph.device[node] == owners[action.stage]:
            assert shown.end[node] == max([shown.start[node], *arrived.get(action.stage, [])])
    assert shown.makespan == max(shown.end)


@given(SCHEDULES, SEEDS)
def test_idle_and_busy_add_up_to_the_makespan(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    graph, durations = shown.graph, shown.prices.durations()
    for device, use in enumerate(shown.devices):
        nodes = [n for n in range(graph.first[device], graph.first[device + 1]) if graph.slot[n] != NONE]
        assert use.busy == sum(durations[graph.actions[n].kind][graph.slot[n]] for n in nodes)
        assert use.busy <= shown.makespan
        assert use.idle == shown.makespan - use.busy
        if nodes:
            assert (use.first, use.last) == (
                min(shown.start[n] for n in nodes),
                max(shown.end[n] for n in nodes),
            )
    if shown.makespan:
        idle = sum(use.idle for use in shown.devices)
        assert shown.bubble == pytest.approx(idle / (len(shown.devices) * shown.makespan))


@given(SCHEDULES, SEEDS, st.sampled_from([0.25, 2.0, 1024.0]))
def test_times_scale_with_the_prices(schedule: Schedule, seed: int, factor: float) -> None:
    shown = timeline(schedule, seed)

    def later(link: Link) -> Link:
        return Link(factor * link.latency, link.slowness)

    def scaled(value: object) -> object:
        if isinstance(value, float):
            return factor * value
        if isinstance(value, Network):
            lanes = {lane: later(link) for lane, link in value.lanes.items()}
            return replace(value, near=later(value.near), far=later(value.far), lanes=lanes)
        return [factor * cost for cost in value] if isinstance(value, list) else value

    prices = replace(shown.prices, **{f.name: scaled(getattr(shown.prices, f.name)) for f in fields(Prices)})
    other = simulate(shown.graph, prices)
    assert list(other.start) == [factor * time for time in shown.start]
    assert list(other.end) == [factor * time for time in shown.end]


@given(SCHEDULES, SEEDS)
def test_nothing_ends_later_without_messages(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    free = replace(shown.prices, network=Network(), transfer=[0.0] * schedule.layout.num_slots)
    assert all(now <= before for now, before in zip(simulate(shown.graph, free).end, shown.end, strict=True))


def by_hand(*devices: str, microbatches: int = 1) -> Schedule:
    layout = Layout(
        len(devices),
        (4,) * microbatches,
        ((4,),) * microbatches,
        (Direction("down", tuple(range(len(devices))), tuple(range(microbatches))),),
    )
    return Schedule(
        "by hand", layout, tuple(tuple(filter(None, map(parse_token, d.split()))) for d in devices)
    )


def test_a_message_takes_its_lane_and_then_its_latency() -> None:
    schedule = by_hand("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", microbatches=2)
    prices = replace(unit(schedule.layout), network=Network(Link(0.5, 1.0)), transfer=[3.0] * 4)
    shown = simulate(build(schedule), prices)
    # 0F0 ends at 1 and arrives at 4.5; 0F1 ends at 2, waits for the lane until 4 and arrives at 7.5.
    assert [shown.start[node] for node in range(4, 8)] == [4.5, 7.5, 8.5, 10.5]
    assert [shown.start[node] for node in range(0, 4)] == [0, 1, 14, 17]


def test_a_message_between_nodes_takes_the_longer_way() -> None:
    schedule = by_hand("0F0 0B0", "1F0 1B0", "2F0 2B0")
    joined = Network(Link(0.5, 1.0), Link(2.0, 4.0), nodes=(0, 0, 1))
    prices = replace(unit(schedule.layout), network=joined, transfer=[1.0] * 3)
    shown = simulate(build(schedule), prices)
    # 1 + 1 + 0.5 to the neighbour; from there 1 + 4 + 2 to the other node.
    assert [shown.start[node] for node in (0, 2, 4)] == [0, 2.5, 9.5]


def test_a_lane_with_a_link_of_its_own_goes_by_that_alone() -> None:
    schedule = by_hand("0F0 0B0", "1F0 1B0", "2F0 2B0")
    joined = Network(Link(0.5, 1.0), Link(2.0, 4.0), (0, 0, 1), lanes={(1, 2): Link(8.0, 2.0)})
    prices = replace(unit(schedule.layout), network=joined, transfer=[1.0] * 3)
    shown = simulate(build(schedule), prices)
    # Down: 1.5 to the neighbour, 2 + 8 to the other node. Back from there as before: 4 + 2.
    assert [shown.start[node] for node in (0, 2, 4, 5, 3, 1)] == [0, 2.5, 13.5, 14.5, 22.5, 26.0]


def test_a_latency_on_one_lane_alone_is_no_free_message() -> None:
    schedule = by_hand("0F0 0B0", "1F0 1B0")
    slow = replace(unit(schedule.layout), network=Network(lanes={(1, 0): Link(3.0, 1.0)}))
    assert not slow.free_messages
    assert simulate(build(schedule), slow).makespan == 6 + 3


def test_a_copy_sends_its_gradients_beside_what_follows() -> None:
    layout = Layout(2, (4, 4), ((4,), (4,)), (Direction("down", (0, 1), (0,)), Direction("up", (1, 0), (1,))))
    programs = ("0F0 1F1 1B1 1REDUCE_GRAD 0B0 0REDUCE_GRAD", "0F1 1F0 1B0 1REDUCE_GRAD 0B1 0REDUCE_GRAD")
    schedule = Schedule(
        "mirror", layout, tuple(tuple(filter(None, map(parse_token, p.split()))) for p in programs)
    )
    shown = simulate(build(schedule), replace(unit(layout), reduction=[5.0, 0.25]))
    # Computes end at 6; stage 1 leaves device 0 at 4, stage 0 leaves device 1 at 6 for 5 more.
    assert layout.owners == (0, 1)
    assert [shown.end[node] for node in (3, 9)] == [4.25, 4.25]
    assert [use.last for use in shown.devices] == [6, 6]
    assert shown.makespan == 11


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 1), (4, 4), (8, 32), (16, 5)])
def test_gpipe_and_1f1b_have_the_same_bubble(devices: int, microbatches: int) -> None:
    asked = Request(devices, (4,) * microbatches, ((4,),) * microbatches)
    bubbles = [preview(GENERATORS[name].make(asked), unit).bubble for name in ("gpipe", "1f1b")]
    assert bubbles == [pytest.approx((devices - 1) / (devices - 1 + microbatches))] * 2


def test_what_cannot_run_is_not_simulated() -> None:
    schedule = by_hand("0B0 0F0")
    with pytest.raises(ValueError, match="check it before simulating"):
        simulate(build(schedule), unit(schedule.layout))
