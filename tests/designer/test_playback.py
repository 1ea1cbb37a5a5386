"""A timeline played: at every moment what is said of a device is what its timeline holds."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer import costs
from contraflow.designer.costs.prices import CostModel, Link, Network, Prices
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, Preview, make, preview
from contraflow.designer.explain import CAUSES
from contraflow.designer.format.graph import NONE
from contraflow.designer.format.schedule import Layout, Schedule
from contraflow.designer.playback import Playback

SCHEDULES = st.from_type(Schedule)


def slow_messages(layout: Layout) -> Prices:
    """The unit clock on a network that takes its time; multiples of powers of two, so that sums are exact."""
    return replace(
        unit(layout),
        forward=[1.0] * layout.num_slots,
        backward=[2.0] * layout.num_slots,
        backward_input=[1.0] * layout.num_slots,
        backward_weight=[1.0] * layout.num_slots,
        transfer=[0.25] * layout.num_slots,
        network=Network(Link(0.125, 1.0)),
    )


def film(schedule: Schedule) -> Playback:
    return Playback(preview(schedule, CostModel("slow messages", slow_messages)))


def by_name(shown: Preview, token: str) -> int:
    return [str(action) for action in shown.timeline.graph.actions].index(token)


@given(SCHEDULES, st.integers(0, 1000), st.integers(0, 2**32))
def test_a_moment_is_what_the_timeline_holds(schedule: Schedule, thousandths: int, seed: int) -> None:
    played = film(schedule)
    timeline = played.shown.timeline
    graph = timeline.graph
    computes = [node for node, slot in enumerate(graph.slot) if slot != NONE]
    event = Random(seed).choice(played.times)
    for time in (event, timeline.makespan * thousandths / 1000):
        moment = played.at(time)
        for device, state in enumerate(moment.devices):
            own = [node for node in computes if graph.device[node] == device]
            running = [node for node in own if timeline.start[node] <= time < timeline.end[node]]
            to_come = [node for node in own if timeline.start[node] > time]
            assert [state.node] == (running or [NONE])
            assert state.next == (to_come[0] if to_come else NONE)
            assert f"device {device} " in state.sentence
            if running:
                assert (state.cause, state.waits_for) == ("", NONE)
                assert state.until == timeline.end[state.node]
            elif to_come:
                assert state.cause in CAUSES
                assert state.waits_for == graph.producer[state.next] != NONE
                assert time < state.until <= timeline.start[state.next]
                assert timeline.arrival[state.waits_for] == timeline.start[state.next]
            else:
                assert (state.cause, state.until) == ("drain", timeline.makespan)
            holding = [n for n in own if graph.actions[n].kind == "F" and timeline.start[n] <= time]
            released = [n for n in own if graph.actions[n].kind in "BW" and timeline.end[n] <= time]
            tokens = [length for split in schedule.layout.splits for length in split]
            held = sum(tokens[graph.slot[n] % len(tokens)] for n in holding)
            held -= sum(tokens[graph.slot[n] % len(tokens)] for n in released)
            share = schedule.layout.num_devices / schedule.layout.num_stages / schedule.layout.longest
            assert state.held == pytest.approx(held * share)
        assert moment.ended == tuple(node for node in computes if timeline.end[node] == time)
        assert moment.begun == tuple(node for node in computes if timeline.start[node] == time)


@given(SCHEDULES)
def test_steps_visit_every_event_forwards_and_backwards(schedule: Schedule) -> None:
    played = film(schedule)
    timeline = played.shown.timeline
    wanted = {0.0}
    for node, slot in enumerate(timeline.graph.slot):
        if slot != NONE:
            wanted |= {timeline.start[node], timeline.end[node]}
    assert played.times == tuple(sorted(wanted))
    for early, late in pairwise(played.times):
        assert played.next(early) == played.next((early + late) / 2) == late
        assert played.previous(late) == played.previous((early + late) / 2) == early
    assert played.next(played.times[-1]) == played.times[-1]
    assert played.previous(0.0) == 0.0


@given(SCHEDULES)
def test_the_next_wait_is_the_first_gap_between_two_actions(schedule: Schedule) -> None:
    played = film(schedule)
    timeline, graph = played.shown.timeline, played.shown.timeline.graph
    gaps = sorted(
        {
            timeline.end[node - 1]
            for node in range(1, len(graph.actions))
            if graph.device[node] == graph.device[node - 1] and NONE not in graph.slot[node - 1 : node + 1]
            if timeline.start[node] > timeline.end[node - 1]
        }
    )
    if any(action.kind == "REDUCE_GRAD" for action in graph.actions):
        return
    found, time = [], played.next_wait(-1.0)
    while time is not None:
        found.append(time)
        time = played.next_wait(time)
    assert found == gaps
    for early, late in pairwise(gaps):
        assert played.previous_wait(late) == early
    assert played.previous_wait(0.0) is None


@given(SCHEDULES)
def test_a_journey_visits_all_of_a_microbatch_in_time(schedule: Schedule) -> None:
    played = film(schedule)
    timeline = played.shown.timeline
    for microbatch in range(schedule.layout.num_microbatches):
        journey = played.journey(microbatch)
        own = {n for n, action in enumerate(timeline.graph.actions) if action.microbatch == microbatch}
        assert set(journey) == own
        assert [timeline.start[node] for node in journey] == sorted(timeline.start[node] for node in journey)
        for early, late in pairwise(journey):
            assert (played.along(early, 1), played.along(late, -1)) == (late, early)
        assert played.along(journey[-1], 1) == journey[-1]
        assert played.along(journey[0], -5) == journey[0]


def test_what_is_said_by_hand() -> None:
    played = Playback(preview(make(Design("1f1b", devices=2, microbatches=2)), unit))
    assert played.times == (0, 1, 2, 4, 5, 6, 7, 9)
    start = played.at(0)
    assert [state.sentence for state in start.devices] == [
        "device 0 runs 0F0 until 1",
        "device 1 waits for 0F0, which device 0 runs until 1, to run 1F0: start-up",
    ]
    assert start.narration == "device 0 runs 0F0 until 1"
    later = played.at(3)
    assert later.devices[0].sentence == (
        "device 0 waits for 1B0, which device 1 runs until 4, to run 0B0: data"
    )
    assert (later.devices[0].cause, later.devices[0].until) == ("data", 4)
    assert later.narration == "1 of 2 devices work"
    assert (played.next_wait(0), played.next_wait(2)) == (2, 6)
    assert played.at(9).devices[1].sentence == "device 1 is done"
    assert played.peak == (1, 0)
    shown = played.shown
    assert by_name(shown, "1B0") in played.critical
    assert {graph.device[n] for graph in [shown.timeline.graph] for n in played.critical} == {0, 1}


def test_messages_on_their_way_are_told() -> None:
    played = film(make(Design("1f1b", devices=2, microbatches=2)))
    waiting = played.at(1.25).devices[1]
    assert waiting.sentence == (
        "device 1 waits for the message of 0F0 from device 0, which arrives at 1.375, to run 1F0: start-up"
    )
    # 1B0 is made at 4.375 and there at 4.75.
    waiting = played.at(4.5).devices[0]
    assert (waiting.cause, waiting.until) == ("communication", 4.75)
    assert "the message of 1B0 from device 1, which arrives at 4.75" in waiting.sentence


def test_many_events_at_once_are_told_in_few_words() -> None:
    played = Playback(preview(make(Design("gpipe", devices=8, microbatches=8)), unit))
    assert played.at(8).narration.endswith("; and 5 more")
    assert "\n" not in played.at(8).narration


def test_seconds_bytes_and_reductions() -> None:
    played = Playback(preview(make(Design("bsipipe", sequence=4096)), costs.named("llama3-1b-h100")))
    assert played.shown.memory is not None
    moment = played.at(played.peak[0])
    state = moment.devices[played.peak[1]]
    assert state.held == played.shown.peak
    assert state.bytes is not None
    assert 0 < state.bytes <= played.shown.memory[played.peak[1]].peak
    assert " ms" in moment.narration
