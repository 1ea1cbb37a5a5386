"""The lowered program: every message that is sent is taken, nothing stalls, and nothing else has changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contraflow.designer.format.check import check
from contraflow.designer.format.graph import NONE
from contraflow.designer.format.lowering import (
    TIED,
    Lowered,
    Step,
    Transport,
    find_stall,
    lower,
    with_reductions,
)
from contraflow.designer.format.schedule import Action, Direction, Layout, Schedule, parse_token
from contraflow.designer.generators import GENERATORS, Request

SCHEDULES = st.from_type(Schedule)


def generated(
    name: str, devices: int, microbatches: int, subsequences: int = 1, budget: float | None = None
) -> Schedule:
    generator = GENERATORS[name]
    splits = ((4,) * subsequences,) * microbatches
    sequences = (4 * subsequences,) * microbatches
    return generator.make(Request(devices, sequences, splits, generator.stages_per_device, budget=budget))


def sent(lowered: Lowered, lane: int) -> list[Action]:
    return [step.action for step in lowered.programs[lowered.lanes[lane].source] if step.sends == lane]


def taken(lowered: Lowered, lane: int) -> list[Action]:
    program = lowered.programs[lowered.lanes[lane].target]
    return [step.source or step.action for step in program if step.takes == lane]


@given(SCHEDULES, st.booleans())
def test_what_a_lane_carries_is_sent_once_and_taken_once(schedule: Schedule, tied: bool) -> None:
    lowered = lower(schedule, tied)
    for number, lane in enumerate(lowered.lanes):
        messages = [message.action for message in lane.messages]
        assert sent(lowered, number) == messages
        assert sorted(map(str, taken(lowered, number))) == sorted(map(str, messages))
        assert lane.source != lane.target
        assert (lane.credit == 1) is (taken(lowered, number) == messages)
    assert len({(lane.source, lane.target, lane.purpose) for lane in lowered.lanes}) == len(lowered.lanes)
    for device, program in enumerate(lowered.programs):
        for step in program:
            assert step.takes == NONE or lowered.lanes[step.takes].target == device
            assert step.sends == NONE or lowered.lanes[step.sends].source == device
    assert find_stall(lowered) is None


@given(SCHEDULES)
def test_every_device_computes_in_the_order_of_its_program(schedule: Schedule) -> None:
    lowered = lower(schedule)
    for actions, steps in zip(schedule.program, lowered.programs, strict=True):
        assert [step.action for step in steps if step.action.kind != "REDUCE_GRAD"] == [
            action for action in actions if action.kind != "REDUCE_GRAD"
        ]


@given(SCHEDULES)
def test_every_input_comes_from_the_neighbouring_stage(schedule: Schedule) -> None:
    lowered, layout = lower(schedule), schedule.layout
    homes = {step.action: device for device, program in enumerate(lowered.programs) for step in program}
    tokens = {message.action: message.tokens for lane in lowered.lanes for message in lane.messages}
    for device, program in enumerate(lowered.programs):
        for action, source, takes, sends in program:
            if action.kind in ("W", "REDUCE_GRAD"):
                continue
            neighbour = action.stage + (-1 if action.kind == "F" else 1)
            if not 0 <= neighbour < layout.num_stages:
                assert (source, takes) == (None, NONE)
            else:
                assert source is not None
                kinds = "F" if action.kind == "F" else "BI"
                assert source._replace(kind=action.kind) == action._replace(stage=neighbour)
                assert source.kind in kinds
                assert (takes == NONE) is (homes[source] == device)
                if takes != NONE:
                    assert lowered.lanes[takes].source == homes[source]
                    assert lowered.lanes[takes].purpose == "data"
            if sends != NONE:
                assert action.microbatch is not None
                assert tokens[action] == layout.splits[action.microbatch][action.subsequence or 0]


@given(SCHEDULES, st.booleans())
def test_one_receive_fewer_ahead_stalls(schedule: Schedule, tied: bool) -> None:
    lowered = lower(schedule, tied)
    for number, lane in enumerate(lowered.lanes):
        if lane.credit > 1:
            lanes = [*lowered.lanes]
            lanes[number] = replace(lane, credit=lane.credit - 1)
            assert find_stall(replace(lowered, lanes=tuple(lanes)))


@given(SCHEDULES, st.booleans())
def test_reductions_are_added_where_copies_must_be_summed(schedule: Schedule, tied: bool) -> None:
    reduced, layout = with_reductions(schedule, tied), schedule.layout
    assert check(reduced) == []
    assert with_reductions(reduced, tied) == reduced
    named = {
        action.stage for actions in schedule.program for action in actions if action.kind == "REDUCE_GRAD"
    }
    ends = {0, layout.num_stages - 1}
    shared_ends = len({device for stage in ends for device in layout.copies[stage]}) > 1
    for stage, copies in enumerate(layout.copies):
        token = Action(stage, "REDUCE_GRAD")
        holders = tuple(device for device, actions in enumerate(reduced.program) if token in actions)
        needed = len(copies) > 1 or stage in named or (tied and stage in ends and shared_ends)
        assert holders == (copies if needed else ())
    for before, after in zip(schedule.program, reduced.program, strict=True):
        kept = [action for action in after if action in set(before)]
        assert kept == list(before)


@given(SCHEDULES)
def test_an_added_reduction_waits_for_nothing_but_its_stage_and_other_reductions(schedule: Schedule) -> None:
    for before, after in zip(schedule.program, with_reductions(schedule).program, strict=True):
        for front, action in pairwise((None, *after)):
            if action is None or action in before:
                continue
            assert action.kind == "REDUCE_GRAD"
            assert (
                front is None
                or front.kind == "REDUCE_GRAD"
                or (front.stage == action.stage and front.kind in "BW")
            )


def test_reductions_are_placed_by_the_later_of_the_two_ends() -> None:
    # Stage 1 is done at place 3 on both devices, stage 0 at place 3 on neither.
    layout = Layout(2, (4, 4), ((4,), (4,)), (Direction("down", (0, 1), (0,)), Direction("up", (1, 0), (1,))))
    programs = ("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1")
    actions = tuple(tuple(filter(None, map(parse_token, program.split()))) for program in programs)
    reduced = with_reductions(Schedule("by hand", layout, actions))
    assert [" ".join(map(str, actions)) for actions in reduced.program] == [
        "0F0 1F1 1B1 1REDUCE_GRAD 0B0 0REDUCE_GRAD",
        "0F1 1F0 1B0 1REDUCE_GRAD 0B1 0REDUCE_GRAD",
    ]


@given(SCHEDULES)
def test_each_copy_brings_its_gradients_to_the_owner_once(schedule: Schedule) -> None:
    lowered = lower(schedule)
    for stage, copies in enumerate(schedule.layout.copies):
        owner = lowered.owners[stage]
        assert owner in copies
        brought = [
            (lane.source, lane.target)
            for lane in lowered.lanes
            for message in lane.messages
            if lane.purpose == "mirror" and message.action.stage == stage
        ]
        assert sorted(brought) == [(copy, owner) for copy in copies if copy != owner]
        assert all(
            message.tokens == 0
            for lane in lowered.lanes
            if lane.purpose == "mirror"
            for message in lane.messages
        )


@given(SCHEDULES)
def test_a_shared_embedding_is_brought_to_one_owner_after_both_its_stages(schedule: Schedule) -> None:
    lowered, layout = lower(schedule, tied=True), schedule.layout
    ends = {0, layout.num_stages - 1}
    holders = {device for stage in ends for device in layout.copies[stage]}
    assert set(lowered.tied_copies) == holders
    owner = lowered.tied_copies[0]
    assert owner == lowered.owners[0]
    assert not [lane for lane in lower(schedule).lanes if lane.purpose == "tied"]
    lanes = [lane for lane in lowered.lanes if lane.purpose == "tied"]
    assert sorted((lane.source, lane.target) for lane in lanes) == [
        (copy, owner) for copy in sorted(holders - {owner})
    ]
    for device, program in enumerate(lowered.programs):
        steps = [index for index, step in enumerate(program) if step.action == Action(TIED, "REDUCE_GRAD")]
        wanted = (len(holders) - 1) if device == owner else int(device in holders)
        assert len(steps) == wanted
        last = max(
            (
                index
                for index, step in enumerate(program)
                if step.action.kind not in ("F", "REDUCE_GRAD") and step.action.stage in ends
            ),
            default=NONE,
        )
        assert not steps or min(steps) > last


def test_the_owners_of_mirrored_stages_are_spread_over_the_devices() -> None:
    for devices in (2, 4, 6):
        owners = generated("bsipipe", devices, 2).layout.owners
        assert [owners.count(device) for device in range(devices)] == [2] * devices


def steps_with(lowered: Lowered, end: str) -> list[tuple[int, int]]:
    return [
        (device, index)
        for device, program in enumerate(lowered.programs)
        for index, step in enumerate(program)
        if getattr(step, end) != NONE
    ]


def planted(lowered: Lowered, device: int, *steps: Step, at: int) -> Lowered:
    """`lowered` with `steps` in the place of one."""
    programs = list(lowered.programs)
    programs[device] = (*programs[device][:at], *steps, *programs[device][at + 1 :])
    return replace(lowered, programs=tuple(programs))


@given(SCHEDULES, st.booleans(), st.data())
def test_a_wrong_lowered_program_is_caught(schedule: Schedule, tied: bool, data: st.DataObject) -> None:
    lowered = lower(schedule, tied)
    takers, senders = steps_with(lowered, "takes"), steps_with(lowered, "sends")
    assume(takers)
    device, index = data.draw(st.sampled_from(takers))
    step = lowered.programs[device][index]
    stranger = Action(99, "F", 0)
    assert find_stall(planted(lowered, device, step._replace(takes=NONE), at=index))
    assert find_stall(planted(lowered, device, step, step, at=index))
    assert find_stall(planted(lowered, device, step._replace(source=stranger), at=index))
    device, index = data.draw(st.sampled_from(senders))
    step = lowered.programs[device][index]
    assert find_stall(planted(lowered, device, step._replace(sends=NONE), at=index))
    assert find_stall(planted(lowered, device, step, step._replace(takes=NONE), at=index))
    assert find_stall(planted(lowered, device, step._replace(action=stranger), at=index))
    for number, lane in enumerate(lowered.lanes):
        if len(lane.messages) > 1:
            lanes = [*lowered.lanes]
            lanes[number] = replace(lane, messages=lane.messages[::-1])
            assert find_stall(replace(lowered, lanes=tuple(lanes)))
            # One message taken twice, another left.
            first, second = [
                index for index, step in enumerate(lowered.programs[lane.target]) if step.takes == number
            ][:2]
            step = lowered.programs[lane.target][second]
            again = lowered.programs[lane.target][first].source or lowered.programs[lane.target][first].action
            assert find_stall(planted(lowered, lane.target, step._replace(source=again), at=second))


def test_a_stall_is_told_in_the_notation_of_the_file() -> None:
    lowered = lower(generated("1f1b", 2, 2))
    programs = list(lowered.programs)
    programs[0] = (programs[0][2], *programs[0][:2], *programs[0][3:])
    assert find_stall(replace(lowered, programs=tuple(programs))) == (
        "device 0 waits for 1B0 on the data lane 1->0, to run 0B0"
    )


@pytest.mark.parametrize(
    ("name", "subsequences", "transport", "stall"),
    [
        ("gpipe", 1, "fifo", None),
        ("gpipe", 1, "rendezvous", None),
        ("1f1b", 1, "fifo", None),
        ("1f1b", 1, "rendezvous", "waits to be rid of"),
        ("seq1f1b", 4, "fifo", None),
        ("bsipipe", 4, "lanes", None),
        ("bsipipe", 4, "fifo", "waits for"),
    ],
)
def test_a_stricter_transport_would_hold_up_some_schedules(
    name: str, subsequences: int, transport: Transport, stall: str | None
) -> None:
    found = find_stall(lower(generated(name, 4, 4, subsequences)), transport)
    assert found is None if stall is None else stall in str(found)


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 8), (4, 4), (4, 16), (8, 4), (8, 16)])
def test_few_receives_are_ahead_whatever_the_number_of_microbatches(devices: int, microbatches: int) -> None:
    tightest = generated("bsipipe", devices, microbatches, 4, budget=2)
    assert max(lane.credit for lane in lower(tightest).lanes) <= 5
    assert max(lane.credit for lane in lower(generated("seq1f1b", devices, microbatches, 4)).lanes) == 1


def test_a_move_within_a_device_is_no_message() -> None:
    lowered = lower(generated("bsipipe", 2, 2))
    # Each direction's V turns on the other device: 0 1 1 0 and 1 0 0 1.
    data = {
        (lane.source, lane.target): len(lane.messages) for lane in lowered.lanes if lane.purpose == "data"
    }
    assert data == {(0, 1): 4, (1, 0): 4}
    assert lower(generated("seq1f1b", 1, 3, 2)).lanes == ()
