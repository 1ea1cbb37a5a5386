"""Edits by hand: every one gives a valid schedule, or an objection whose waits are real."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, make
from contraflow.designer.difference import Place
from contraflow.designer.editing import (
    Objection,
    all_fused,
    all_halved,
    fused,
    halved,
    moved,
    reach,
    sent_other_way,
)
from contraflow.designer.format.check import check
from contraflow.designer.format.graph import build, waits
from contraflow.designer.format.schedule import Action, Schedule
from contraflow.designer.simulate import simulate

SCHEDULES = st.from_type(Schedule)


def drawn(schedule: Schedule, data: st.DataObject) -> Place:
    """The place of any action."""
    places = [
        Place(device, position)
        for device, program in enumerate(schedule.program)
        for position in range(len(program))
    ]
    return data.draw(st.sampled_from(places))


def by_hand(schedule: Schedule, device: int, position: int, by: int) -> Schedule:
    """What a text editor would make of it."""
    actions = list(schedule.program[device])
    actions.insert(position + by, actions.pop(position))
    program = (*schedule.program[:device], tuple(actions), *schedule.program[device + 1 :])
    return replace(schedule, program=program)


def place_of(schedule: Schedule, token: str) -> Place:
    [place] = [
        Place(device, position)
        for device, program in enumerate(schedule.program)
        for position, action in enumerate(program)
        if str(action) == token
    ]
    return place


def assert_real(schedule: Schedule, objection: Objection) -> None:
    """Every wait is one that the graph or the program knows, and each goes on where the one before it ended."""
    assert objection.reason
    assert "\n" not in objection.reason
    graph = build(schedule)
    for wait in objection.waits:
        assert schedule.program[wait.place.device][wait.place.position] == wait.action
        assert schedule.program[wait.there.device][wait.there.position] == wait.other
        node, other = (graph.first[at.device] + at.position for at in (wait.place, wait.there))
        if wait.why == "order":
            assert wait.place.device == wait.there.device
            assert wait.place.position > wait.there.position
        else:
            assert other in waits(graph, node)
            assert (graph.producer[node] == other) == (wait.why == "input")
    for wait, following in zip(objection.waits, objection.waits[1:], strict=False):
        assert (wait.other, wait.there) == (following.action, following.place)


@given(SCHEDULES, st.data())
def test_a_move_is_made_exactly_where_the_checker_allows_it(schedule: Schedule, data: st.DataObject) -> None:
    device, position = drawn(schedule, data)
    target = data.draw(st.integers(0, len(schedule.program[device]) - 1))
    found = moved(schedule, device, position, target - position)
    wanted = by_hand(schedule, device, position, target - position)
    if isinstance(found, Schedule):
        assert check(found) == []
        assert found == wanted
        assert moved(found, device, target, position - target) == schedule
        return
    assert check(wanted)
    assert_real(schedule, found)
    first, final = found.waits[0], found.waits[-1]
    ends = {(first.action, first.place), (final.other, final.there)}
    assert (schedule.program[device][position], Place(device, position)) in ends
    low, high = sorted((position, target))
    assert all(at.device == device and low <= at.position <= high for _, at in ends)


@given(SCHEDULES, st.data())
def test_reach_is_all_that_the_checker_allows(schedule: Schedule, data: st.DataObject) -> None:
    device, position = drawn(schedule, data)
    last = len(schedule.program[device]) - 1
    low, high = reach(schedule, device, position)
    assert low <= position <= high
    allowed = [
        target
        for target in range(max(low - 1, 0), min(high + 1, last) + 1)
        if not check(by_hand(schedule, device, position, target - position))
    ]
    assert allowed == list(range(low, high + 1))


def test_an_objection_names_the_chain_in_the_readers_notation() -> None:
    schedule = make(Design("1f1b", devices=2, microbatches=2))
    assert [[str(action) for action in program] for program in schedule.program] == [
        ["0F0", "0F1", "0B0", "0B1"],
        ["1F0", "1B0", "1F1", "1B1"],
    ]
    found = moved(schedule, 1, 1, -1)
    assert isinstance(found, Objection)
    assert (
        found.reason
        == "1B0 must stay behind 1F0 (device 1, action 0): 1B0 waits for 1F0 (device 1, action 0)"
    )
    # 0B0 waits for 1B0, which could only come before 1F1: so much is told of another device.
    found = moved(schedule, 0, 2, -2)
    assert isinstance(found, Objection)
    assert (
        found.reason
        == "0B0 must stay behind 0F0 (device 0, action 0): 0B0 waits for 0F0 (device 0, action 0)"
    )
    late = moved(schedule, 0, 1, 2)
    assert isinstance(late, Objection)
    assert late.reason == (
        "0F1 must stay before 0B1 (device 0, action 3): 0B1 waits for 0F1 (device 0, action 1)"
    )
    gpipe = make(Design("gpipe", devices=2, microbatches=2))
    # 0F1 behind 0B0: device 1 runs 1F1 before 1B0.
    far = moved(gpipe, 0, 1, 1)
    assert isinstance(far, Objection)
    assert far.reason == (
        "0F1 must stay before 0B0 (device 0, action 2): 0B0 waits for 1B0 (device 1, action 2), "
        "which comes after 1F1 there; 1F1 waits for 0F1 (device 0, action 1)"
    )
    assert [wait.why for wait in far.waits] == ["input", "order", "input"]


def test_nothing_moves_off_its_device() -> None:
    schedule = make(Design("1f1b", devices=2, microbatches=2))
    for position, by, end in (
        (0, -1, "0F0 is the first"),
        (3, 1, "0B1 is the last"),
        (1, 9, "0B1 is the last"),
    ):
        found = moved(schedule, 0, position, by)
        assert isinstance(found, Objection)
        assert found.reason.endswith(end)
        assert found.waits == ()


def test_reductions_of_shared_stages_keep_their_order() -> None:
    base = make(Design("chimera", devices=2, microbatches=2))
    named = replace(
        base,
        program=tuple(
            (*program, Action(0, "REDUCE_GRAD"), Action(1, "REDUCE_GRAD")) for program in base.program
        ),
    )
    assert check(named) == []
    place = place_of_reduction = len(named.program[0]) - 1
    found = moved(named, 0, place, -1)
    assert isinstance(found, Objection)
    assert "1REDUCE_GRAD must stay behind 0REDUCE_GRAD" in found.reason
    assert "in one order" in found.reason
    assert_real(named, found)
    assert reach(named, 0, place_of_reduction)[0] == place


@given(SCHEDULES, st.data())
def test_a_microbatch_is_sent_another_way(schedule: Schedule, data: st.DataObject) -> None:
    layout = schedule.layout
    microbatch = data.draw(st.integers(0, layout.num_microbatches - 1))
    timeline = simulate(build(schedule), unit(layout))
    found = sent_other_way(schedule, timeline, microbatch)
    if isinstance(found, Objection):
        assert len(layout.directions) == 1
        return
    assert check(found) == []
    before, after = layout.direction_of, found.layout.direction_of
    assert after[microbatch] == (before[microbatch] + 1) % len(layout.directions)
    assert [way for m, way in enumerate(after) if m != microbatch] == [
        way for m, way in enumerate(before) if m != microbatch
    ]
    # Whatever was not sent elsewhere keeps its order.
    for old, new in zip(schedule.program, found.program, strict=True):
        kept = [action for action in old if action.microbatch not in (None, microbatch)]
        assert [action for action in new if action.microbatch not in (None, microbatch)] == kept


def test_the_mirrored_devices_take_over() -> None:
    schedule = make(Design("chimera", devices=4, microbatches=4))
    timeline = simulate(build(schedule), unit(schedule.layout))
    found = sent_other_way(schedule, timeline, 1)
    assert isinstance(found, Schedule)
    assert [way.microbatches for way in found.layout.directions] == [(0, 1, 2), (3,)]
    assert place_of(schedule, "0F1").device == 3
    assert place_of(found, "0F1").device == 0


@given(SCHEDULES, st.data())
def test_halves_and_wholes(schedule: Schedule, data: st.DataObject) -> None:
    device, position = drawn(schedule, data)
    program = schedule.program[device]
    later = data.draw(st.none() | st.integers(0, len(program) + 2))
    action = program[position]
    found = halved(schedule, device, position, later)
    if action.kind != "B":
        assert isinstance(found, Objection)
        assert str(action) in found.reason
    elif isinstance(found, Objection):
        assert later is not None
        assert_real(schedule, found)
        [wait] = found.waits
        assert wait.action == Action(action.stage, "REDUCE_GRAD")
        assert position + 1 + later > wait.place.position
    else:
        assert check(found) == []
        weight = found.program[device].index(action._replace(kind="W"))
        assert found.program[device][position] == action._replace(kind="I")
        if later is not None:
            assert weight == min(position + 1 + later, len(program))
        else:
            # One later, and it would be behind its reduction or the end.
            behind = found.program[device][weight + 1 : weight + 2]
            assert behind in ((), (Action(action.stage, "REDUCE_GRAD"),))
        for half in (position, weight):
            assert fused(found, device, half) == schedule
    whole = fused(schedule, device, position)
    if action.kind in ("I", "W"):
        assert isinstance(whole, Schedule)
        assert check(whole) == []
        assert len(whole.program[device]) == len(program) - 1
    else:
        assert isinstance(whole, Objection)


@given(SCHEDULES)
def test_all_backwards_in_halves_and_whole_again(schedule: Schedule) -> None:
    halves, wholes = all_halved(schedule), all_fused(schedule)
    assert check(halves) == check(wholes) == []
    assert {action.kind for program in halves.program for action in program}.isdisjoint({"B"})
    assert {action.kind for program in wholes.program for action in program}.isdisjoint({"I", "W"})
    assert all_fused(halves) == wholes
