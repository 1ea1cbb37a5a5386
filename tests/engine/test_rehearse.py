"""Rehearsals play any program, and their clocks chain deadlines; what is measured is never less than must be."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from contraflow.designer.costs.unit import unit
from contraflow.designer.format import file
from contraflow.designer.format.lowering import with_reductions
from contraflow.designer.format.schedule import Action, Schedule
from contraflow.designer.generators import GENERATORS, Request
from contraflow.engine import launch
from contraflow.engine.lanes import LaneError
from contraflow.engine.rehearse import Flights, Played, Rehearsal, Script, rehearse
from contraflow.engine.stand_in import Clock, TimedIncoming, TimedOutgoing
from contraflow.engine.topology import Place

LONG_AGO = -1e6
"""On time.perf_counter: nobody sleeps until then."""

FIRST, SECOND = Action(0, "F", 0), Action(0, "F", 1)


def script(schedule: Schedule, seconds: float = 0.0, **delays: float) -> Script:
    """`seconds` stand for 1 on the unit clock; delays are named like `d0_1`."""
    tables = {
        kind: [seconds * cost for cost in table] for kind, table in unit(schedule.layout).durations().items()
    }
    lanes = {(int(name[1]), int(name[3])): delay for name, delay in delays.items()}
    return Script(tables, 1, 1, lanes, 1)


def play_alone(schedule: Schedule) -> None:
    """In this process, which plays every device; each has run its program, and in that order."""
    layout = schedule.layout
    rehearsal = Rehearsal(
        schedule, script(schedule), Place(tuple(range(layout.num_devices)), torch.device("cpu"))
    )
    rehearsal.play(LONG_AGO)
    for device, program in enumerate(with_reductions(schedule).program):
        ran = [span.action for span in rehearsal.recorders[device].pop(device, 0.0)]
        assert ran == [action for action in program if action.kind != "REDUCE_GRAD"]
    rehearsal.close()


@pytest.mark.parametrize("name", GENERATORS)
def test_every_generator_can_be_rehearsed(name: str) -> None:
    kind = GENERATORS[name]
    num_microbatches = max(4, kind.fewest_microbatches(4))
    split = (3, 2) if kind.cuts else (5,)
    asked = Request(4, (5,) * num_microbatches, (split,) * num_microbatches, kind.stages_per_device)
    play_alone(kind.make(asked))


@settings(max_examples=30)
@given(...)
def test_any_valid_program_can_be_rehearsed(schedule: Schedule) -> None:
    play_alone(schedule)


def test_deadlines_are_chained() -> None:
    clock = Clock()
    clock.start(LONG_AGO)
    clock.spend(2.0)
    clock.came(LONG_AGO + 5.0, late=1.0)
    clock.spend(3.0)
    # It left a second late: without that it would have come at 4.
    assert clock.free == LONG_AGO + 7.0
    clock.came(LONG_AGO + 6.0, late=0.0)
    clock.spend(1.0)
    assert clock.free == LONG_AGO + 8.0
    # When all of that really ended is another matter.
    assert clock.last > clock.free


def test_nothing_ends_before_its_deadline() -> None:
    clock = Clock()
    begun = perf_counter()
    clock.start(begun)
    for _ in range(3):
        clock.spend(0.01)
    assert clock.free == pytest.approx(begun + 0.03)
    assert clock.last >= clock.free


class FakeIncoming:
    """A lane on which a message comes some time after it was asked for, and says that it left `late`."""

    def __init__(self, wait: float, late: float = 0.0) -> None:
        self._wait, self._late, self.arrived = wait, late, 0.0

    def begin(self) -> None: ...
    def ready(self, action: Action) -> bool:
        return True

    def expect(self, action: Action) -> None: ...
    def take(self, action: Action) -> Tensor:
        self.arrived = perf_counter() + self._wait
        return torch.tensor([[self._late, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("wait", "late", "in_time"), [(0.04, 0.0, False), (0.04, 0.03, False), (0.0, 0.0, True)]
)
def test_an_action_begins_when_its_message_came_unless_that_was_in_time(
    wait: float, late: float, in_time: bool
) -> None:
    clock = Clock()
    clock.start(LONG_AGO)
    clock.spend(1.0)
    lane = FakeIncoming(wait, late)
    TimedIncoming(lane, clock, at_hand=0.01).take(FIRST)
    clock.spend(0.0)
    assert clock.free == (LONG_AGO + 1.0 if in_time else lane.arrived - late)


class FakeOutgoing:
    """A lane that notes what is sent, or fails."""

    def __init__(self, fails: bool = False) -> None:
        self.sent: list[tuple[Action, float, float]] = []
        self.flushed, self._fails = 0, fails

    def send(self, action: Action, tensor: Tensor) -> None:
        if self._fails:
            raise LaneError("the peer is gone")
        self.sent.append((action, float(tensor[0]), perf_counter()))

    def flush(self) -> None:
        self.flushed = len(self.sent)


@pytest.mark.parametrize("delay", [0.0, 0.03])
def test_messages_leave_in_order_a_delay_after_they_are_made_and_say_how_late(delay: float) -> None:
    clock, lane = Clock(), FakeOutgoing()
    timed = TimedOutgoing(lane, clock, delay)
    clock.start(perf_counter() - 1.0)
    made = clock.free
    timed.send(FIRST, torch.zeros(2, dtype=torch.float64))
    clock.spend(0.5)
    timed.send(SECOND, torch.zeros(2, dtype=torch.float64))
    timed.flush()
    timed.close()
    assert [action for action, _, _ in lane.sent] == [FIRST, SECOND]
    assert lane.flushed == 2
    for (_, late, at), due in zip(lane.sent, (made + delay, made + 0.5 + delay), strict=True):
        assert at >= due + late
        assert late > 0


def test_a_sender_goes_on_while_its_messages_are_held_back() -> None:
    clock, lane = Clock(), FakeOutgoing()
    timed = TimedOutgoing(lane, clock, 0.05)
    clock.start(perf_counter())
    for action in (FIRST, SECOND):
        timed.send(action, torch.zeros(1))
    assert lane.sent == []
    timed.flush()
    timed.close()
    assert len(lane.sent) == 2


def test_a_held_message_that_cannot_leave_is_told_at_the_end() -> None:
    timed = TimedOutgoing(FakeOutgoing(fails=True), Clock(), 0.001)
    timed.send(FIRST, torch.zeros(1))
    with pytest.raises(LaneError, match="gone"):
        timed.flush()
    timed.close()


def over_processes(schedule: Schedule, played: Script) -> tuple[Flights, list[Played]]:
    """What the processes report."""
    heard: list[Any] = []
    launch.run(
        rehearse,
        {"text": file.dumps(schedule), "script": played},
        schedule.layout.num_devices,
        heard.append,
        timeout=60,
    )
    assert isinstance(heard[0], Flights)
    return heard[0], heard[1:]


def chain(ranks: Sequence[int] | None = None) -> Schedule:
    asked = Request(2, (4, 4), ((4,), (4,)), ranks=None if ranks is None else tuple(ranks))
    return GENERATORS["1f1b"].make(asked)


@pytest.mark.processes
def test_a_delayed_lane_delays_those_who_wait_for_it() -> None:
    schedule = chain()
    # 0F0, 1F0 1B0 1F1 1B1, 0B1 on the unit clock; the first message is held back.
    flights, (played,) = over_processes(schedule, script(schedule, 0.01, d0_1=0.15))
    assert flights.flights.keys() == {(0, 1), (1, 0)}
    assert all(flight.latency > 0 and flight.seconds_per_token >= 0 for flight in flights.flights.values())
    assert played.ends[1] >= 0.01 + 0.15 + 2 * 0.03
    assert played.ends[0] >= played.ends[1] - 0.03 + 0.02


@pytest.mark.processes
def test_devices_are_named_by_their_place_in_the_pipeline_wherever_they_run() -> None:
    schedule = chain(ranks=(1, 0))
    _, (played,) = over_processes(schedule, script(schedule, 0.05))
    # Device 0 has the first forward and the last backward.
    assert played.ends[0] > played.ends[1]
