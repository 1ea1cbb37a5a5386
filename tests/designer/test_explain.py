"""Explanations are laws of the timeline: chains without gaps, floats that hold, causes that add up to the idle time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.costs.prices import FREE, Link, Network, Prices
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, make
from contraflow.designer.explain import CAUSES, Gap, Idle, explain
from contraflow.designer.format.graph import NONE, build
from contraflow.designer.format.lowering import with_reductions
from contraflow.designer.format.schedule import Direction, Layout, Schedule, parse_token
from contraflow.designer.generators import GENERATORS, Request
from contraflow.designer.simulate import Timeline, simulate

SCHEDULES = st.from_type(Schedule)
SEEDS = st.integers(0, 2**32)


def priced(layout: Layout, rng: Random) -> Prices:
    """Prices as multiples of a 64th, so that sums of them are exact; none is zero."""

    def table(count: int, least: int) -> list[float]:
        return [rng.randint(least, 320) / 64 for _ in range(count)]

    slots, messages = layout.num_slots, rng.random() < 0.7
    nodes = tuple(rng.randrange(2) for _ in range(layout.num_devices))
    return replace(
        unit(layout),
        forward=table(slots, 1),
        backward=table(slots, 1),
        backward_input=table(slots, 1),
        backward_weight=table(slots, 1),
        transfer=table(slots, 0) if messages else [0.0] * slots,
        reduction=table(layout.num_stages, 0),
        network=Network(Link(rng.randint(0, 64) / 64, 1.0), Link(1.0, 2.0), nodes) if messages else Network(),
    )


def timeline(schedule: Schedule, seed: int) -> Timeline:
    return simulate(build(with_reductions(schedule)), priced(schedule.layout, Random(seed)))


def delayed(shown: Timeline, node: int, by: float) -> Timeline:
    """The same program with one compute longer."""
    action, slot = shown.graph.actions[node], shown.graph.slot[node]
    name = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}[action.kind]
    table = list(getattr(shown.prices, name))
    table[slot] += by
    return simulate(shown.graph, replace(shown.prices, **{name: table}))


@given(SCHEDULES, SEEDS)
def test_the_critical_path_fills_the_time_from_zero_to_the_makespan(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    found = explain(shown)
    if not found.critical:
        assert any(shown.end[n] == shown.makespan and shown.start[n] == 0 for n in range(len(shown.end)))
        return
    assert shown.end[found.critical[0].node] == shown.makespan
    assert shown.start[found.critical[-1].waited_for] == 0
    assert found.floats[found.critical[-1].waited_for] == 0
    for link, following in zip(found.critical, found.critical[1:], strict=False):
        assert link.waited_for == following.node
    for link in found.critical:
        # What queued behind another's message or gradients need not have been there so early.
        assert found.floats[link.node] == 0 or link.why in ("queue", "reduction")
        if link.why == "order":
            assert shown.end[link.waited_for] == shown.start[link.node]
        elif link.why == "input":
            assert shown.arrival[link.waited_for] == shown.start[link.node]
            assert shown.graph.producer[link.node] == link.waited_for


@given(SCHEDULES, SEEDS)
def test_a_start_is_bound_by_what_ended_or_arrived_then(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    found = explain(shown)
    for node, bound in enumerate(found.binding):
        if shown.graph.slot[node] == NONE:
            continue
        if bound == NONE:
            assert shown.start[node] == 0
        else:
            assert shown.start[node] in (shown.end[bound], shown.arrival[bound])
            assert [*found.chain(node)][-1].waited_for in range(len(found.binding))


@given(SCHEDULES, SEEDS, st.integers(0, 2**32))
def test_a_delay_up_to_the_float_costs_nothing_and_one_beyond_it_does(
    schedule: Schedule, seed: int, pick: int
) -> None:
    shown = timeline(schedule, seed)
    found = explain(shown)
    nodes = [node for node, slot in enumerate(shown.graph.slot) if slot != NONE]
    node = nodes[pick % len(nodes)]
    assert found.floats[node] >= 0
    assert delayed(shown, node, found.floats[node]).makespan == pytest.approx(shown.makespan)
    # A delay may bring reductions of one lane into another order: only without them is the float the whole truth.
    if all(slot != NONE for slot in shown.graph.slot):
        beyond = delayed(shown, node, found.floats[node] + 0.25).makespan
        assert beyond == pytest.approx(shown.makespan + 0.25)


@given(SCHEDULES, SEEDS, st.none() | st.floats(0, 3))
def test_the_causes_add_up_to_the_idle_time(schedule: Schedule, seed: int, limit: float | None) -> None:
    shown = timeline(schedule, seed)
    for use, idle in zip(shown.devices, explain(shown, limit).idle, strict=True):
        causes = idle.by_cause()
        assert tuple(causes) == CAUSES
        assert sum(causes.values()) == pytest.approx(use.idle, abs=1e-9)
        assert min(causes.values()) >= 0


@given(SCHEDULES, SEEDS)
def test_the_gaps_in_front_of_actions_and_the_drain_add_up_too(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    found = explain(shown)
    for device, (use, idle) in enumerate(zip(shown.devices, found.idle, strict=True)):
        here = {node: gap for node, gap in found.gaps.items() if shown.graph.device[node] == device}
        assert sum(map(sum, here.values())) + idle.drain == pytest.approx(use.idle, abs=1e-9)
        for node, gap in here.items():
            assert min(gap) >= 0
            assert sum(gap) > 0
            assert sum(gap.by_cause().values()) == pytest.approx(sum(gap))
            assert (gap.start_up > 0) == (shown.start[node] == use.first)


def waiting(idle: Idle) -> float:
    return idle.data + idle.communication + idle.imbalance + idle.memory_gate


@given(SCHEDULES, SEEDS)
def test_imbalance_is_no_more_than_what_even_prices_spare(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    tables = ("forward", "backward", "backward_input", "backward_weight")
    means = {name: [fmean(getattr(shown.prices, name))] * schedule.layout.num_slots for name in tables}
    even = explain(simulate(shown.graph, replace(shown.prices, **means))).idle
    for idle, other in zip(explain(shown).idle, even, strict=True):
        assert other.imbalance == 0
        # What waits for a message or for memory instead has not been spared.
        assert idle.imbalance <= max(waiting(idle) - waiting(other), 0) + 1e-9


@pytest.mark.parametrize("name", GENERATORS)
def test_equal_stages_and_subsequences_know_no_imbalance(name: str) -> None:
    schedule = make(Design(name, microbatches=8))
    shown = simulate(build(schedule), unit(schedule.layout))
    assert [idle.imbalance for idle in explain(shown).idle] == [0] * 4


def made(name: str, devices: int, microbatches: int, count: int = 1) -> Timeline:
    kind = GENERATORS[name]
    request = Request(
        devices, (8 * count,) * microbatches, ((8,) * count,) * microbatches, kind.stages_per_device
    )
    schedule = kind.make(request)
    return simulate(build(schedule), unit(schedule.layout))


def causes(shown: Timeline, device: int) -> dict[str, float]:
    return {
        cause: round(value, 9)
        for cause, value in explain(shown).idle[device].by_cause().items()
        if value > 1e-9
    }


def test_1f1b_by_hand() -> None:
    # P=4 M=4: device d starts at d and ends 2d before the makespan of 21; device 0 waits from 4 to 10 for 0B0.
    shown = made("1f1b", 4, 4)
    assert causes(shown, 3) == {"start-up": 3, "drain": 6}
    assert causes(shown, 0) == {"data": 9}
    # With more microbatches a fifth forward is ready then, but would hold more than device 0 ever does.
    shown = made("1f1b", 4, 8)
    assert causes(shown, 0) == {"memory gate": 6, "data": 3}
    generous = explain(shown, limit=5.0).idle[0]
    assert (generous.memory_gate, generous.data) == (0, 9)


def test_zb_h2_waits_only_to_begin() -> None:
    for device in range(4):
        assert set(causes(made("zb-h2", 4, 8), device)) <= {"start-up", "drain"}


def by_hand(*devices: str, microbatches: int = 1) -> Schedule:
    direction = Direction("down", tuple(range(len(devices))), tuple(range(microbatches)))
    layout = Layout(len(devices), (4,) * microbatches, ((4,),) * microbatches, (direction,))
    programs = (tuple(filter(None, map(parse_token, device.split()))) for device in devices)
    return Schedule("by hand", layout, tuple(programs))


def test_the_memory_gate_opens_with_w_and_not_with_i() -> None:
    schedule = by_hand(
        "0F0 0F1 0I0 0I1 0F2 0W0 0I2 0W1 0W2", "1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2", microbatches=3
    )
    shown = simulate(build(schedule), unit(schedule.layout))
    # Device 0 waits from 2 to 3 and from 4 to 6, and after its last forward from 8 to 9; 0F2 is ready all the time.
    waits = {limit: explain(shown, limit).idle[0] for limit in (2.0, 3.0)}
    assert (waits[2.0].memory_gate, waits[2.0].data) == (3, 1)
    assert (waits[3.0].memory_gate, waits[3.0].data) == (0, 4)


def test_a_message_on_its_way_is_communication_and_its_queue_is_named() -> None:
    schedule = by_hand("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", microbatches=2)
    prices = replace(unit(schedule.layout), network=Network(Link(0.5, 1.0), FREE), transfer=[3.0] * 4)
    found = explain(simulate(build(schedule), prices))
    # 0F0 ends at 1 and arrives at 4.5; 0F1 ends at 2, waits for the lane until 4 and arrives at 7.5, 1F0 ends at 5.5.
    assert found.idle[1].start_up == 4.5
    assert found.idle[1].communication == 2
    assert [(link.node, link.waited_for, link.why) for link in found.chain(5)] == [
        (5, 1, "input"),
        (1, 0, "queue"),
    ]
    assert [found.queued(node) for node in (0, 1)] == [0, 2]
    # The second forward waits from 5.5 on for a message that left at 4; what made it had ended long before.
    assert found.gaps[5] == Gap(communication=2)


def test_a_slow_stage_is_imbalance() -> None:
    schedule = by_hand("0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", microbatches=2)
    even = unit(schedule.layout)
    # Stage 0's forwards take 4: device 1 waits 3 for the second; with the mean of 2.5 everywhere it would not.
    slow = replace(even, forward=[4.0, 4.0, 1.0, 1.0])
    assert explain(simulate(build(schedule), even)).idle[1].imbalance == 0
    idle = explain(simulate(build(schedule), slow)).idle[1]
    assert (idle.start_up, idle.imbalance, idle.data) == (4, 3, 0)


def test_a_reduction_that_ends_last_is_critical() -> None:
    directions = (Direction("down", (0, 1), (0,)), Direction("up", (1, 0), (1,)))
    layout = Layout(2, (4, 4), ((4,), (4,)), directions)
    programs = ("0F0 1F1 1B1 1REDUCE_GRAD 0B0 0REDUCE_GRAD", "0F1 1F0 1B0 1REDUCE_GRAD 0B1 0REDUCE_GRAD")
    actions = (tuple(filter(None, map(parse_token, program.split()))) for program in programs)
    graph = build(Schedule("mirror", layout, tuple(actions)))
    found = explain(simulate(graph, replace(unit(layout), reduction=[5.0, 0.25])))
    # Stage 0 leaves device 1 at 6 for 5 more; device 0 owns it. Stage 1 is there long before.
    assert [(str(graph.actions[link.node]), link.why) for link in found.critical[:2]] == [
        ("0REDUCE_GRAD", "reduction"),
        ("0REDUCE_GRAD", "order"),
    ]
    assert graph.device[found.critical[1].node] == 1
    assert found.floats[3] == pytest.approx(11 - 0.25 - 4)
    assert found.idle[0].drain == 5


@given(SCHEDULES, SEEDS)
def test_spans_are_all_idle_time_in_order_by_its_causes(schedule: Schedule, seed: int) -> None:
    shown = timeline(schedule, seed)
    found = explain(shown)
    for device, spans in enumerate(found.spans):
        low, high = shown.graph.first[device : device + 2]
        busy = [(shown.start[n], shown.end[n]) for n in range(low, high) if shown.graph.slot[n] != NONE]
        pieces = sorted([*busy, *((span.start, span.end) for span in spans)])
        # Together with the computes they fill the device's time, without a hole or an overlap.
        assert pieces[0][0] == 0
        assert max(pieces)[1] == shown.makespan
        for (_, end), (start, _) in pairwise(pieces):
            assert start == end
        sums = dict.fromkeys(CAUSES, 0.0)
        for span in spans:
            sums[span.cause] += span.end - span.start
            assert span.node == NONE or shown.start[span.node] >= span.end
        wanted = found.idle[device].by_cause()
        wanted["data"] += wanted.pop("imbalance")
        assert {cause: sums[cause] for cause in wanted} == pytest.approx(wanted, abs=1e-9)
