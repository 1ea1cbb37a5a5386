"""What the designer says of memory, held against every allocation that the engine makes.

Each device runs alone, its neighbours played by stand-ins: receives are posted by the engine's own rule, and what it
sends leaves when the timeline says so. So all that the process allocates is that one device's.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from contraflow.designer.costs.footprint import footprint
from contraflow.designer.costs.training import Training
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, make
from contraflow.designer.format.graph import NONE, build
from contraflow.designer.format.lowering import Lane, Lowered, with_reductions
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Action, Schedule
from contraflow.designer.memory import byte_curves
from contraflow.designer.simulate import Timeline, simulate
from contraflow.engine import lanes
from contraflow.engine.batch import Batch
from contraflow.engine.executor import Executor
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.topology import Lanes, Place, returns
from contraflow.kernels.attention import choose

LLAMA = ModelShape("llama", layers=5, hidden=160, heads=5, kv_heads=1, ffn=416, vocabulary=3000)
GPT = ModelShape("gpt", layers=4, hidden=192, heads=6, kv_heads=6, ffn=768, vocabulary=1500, positions=1200)

STEP = "step"


def mark(name: str) -> None:
    """A place in the record of allocations."""
    with record_function(f"mark {name}"):
        pass


class Arrived:
    """A receive of which nobody needs the values."""

    def wait(self) -> None:
        """It is there."""


class Incoming(lanes.ProcessIncoming):
    """The engine's own receiver, told of its beginnings."""

    def begin(self) -> None:
        mark("between")
        super().begin()

    def take(self, action: Action) -> Tensor:
        mark("between")
        return super().take(action)

    def expect(self, action: Action) -> None:
        mark("between")
        super().expect(action)


class Outgoing:
    """Keeps what is sent until it is gone: `gone` by what made it, in the device's own clock `end`."""

    def __init__(self, gone: Mapping[Action, float], end: Mapping[Action, float]) -> None:
        self.gone, self.end = gone, end
        self.leaving: dict[Action, Tensor] = {}

    def send(self, action: Action, tensor: Tensor) -> None:
        if self.gone.get(action, 0.0) > self.end.get(action, 0.0):
            self.leaving[action] = tensor

    def release(self, now: float) -> None:
        for action in [action for action in self.leaving if self.gone[action] <= now]:
            del self.leaving[action]

    def flush(self) -> None:
        mark("between")
        self.leaving.clear()


class Marks:
    """A recorder that marks every action's begin and end among the allocations."""

    def __init__(
        self, outgoing: Sequence[Outgoing], start: Mapping[Action, float], end: Mapping[Action, float]
    ) -> None:
        self.outgoing, self.start, self.end_of = outgoing, start, end

    def begin(self, action: Action) -> None:
        mark("begin")
        for lane in self.outgoing:
            lane.release(self.start[action])

    def end(self, action: Action) -> None:
        mark("end")
        for lane in self.outgoing:
            lane.release(self.end_of[action])


def departures(timeline: Timeline, lowered: Lowered) -> dict[Action, float]:
    """When what an action made has left its device: it has arrived, and its receive was posted."""
    graph = timeline.graph
    node_of = {action: node for node, action in enumerate(graph.actions) if graph.slot[node] != NONE}
    gone = {}
    for number, lane in enumerate(lowered.lanes):
        steps = lowered.programs[lane.target]
        taken = [
            timeline.start[node_of[step.action]] for step in steps if step.takes == number and step.source
        ]
        if lane.purpose == "data":
            for place, (action, _) in enumerate(lane.messages):
                posted = taken[place - lane.credit] if place >= lane.credit else 0.0
                gone[action] = max(timeline.arrival[node_of[action]], posted)
    return gone


def alone(pipeline: Pipeline, device: int, timeline: Timeline) -> None:
    """Put stand-ins in the place of the device's neighbours."""
    graph, lowered = timeline.graph, pipeline.lowered
    here = [node for node in range(len(graph.actions)) if graph.device[node] == device]
    start = {graph.actions[node]: timeline.start[node] for node in here}
    end = {graph.actions[node]: timeline.end[node] for node in here}
    gone, ends = departures(timeline, lowered), Lanes()

    def receiver(lane: Lane) -> Incoming:
        # Reductions are posted when the program reaches them: see topology.py.
        ahead = lane.credit if lane.purpose == "data" else 0
        return Incoming(lane, 0, None, 0, lambda message: pipeline._empty(lane, message), ahead)

    outgoing = {n: Outgoing(gone, end) for n, lane in enumerate(lowered.lanes) if lane.source == device}
    for number, lane in enumerate(lowered.lanes):
        if lane.target == device:
            ends.incoming[number] = receiver(lane)
            ends.weights_outgoing[number] = Outgoing({}, {})
        elif lane.source == device:
            ends.outgoing[number] = outgoing[number]
            if lane.purpose != "data":
                ends.weights_incoming[number] = receiver(returns(lane))
    pipeline.lanes = ends
    marks: Any = Marks(list(outgoing.values()), start, end)
    stages = pipeline.stages[device]
    pipeline.executors = {device: Executor(device, lowered, stages, ends.incoming, ends.outgoing, marks)}


@dataclass(frozen=True)
class Measured:
    """Bytes by the allocator's count: after each action, at the highest point within it, and of the whole step."""

    static: int
    kept: list[int]
    highest: list[int]
    most: int


def measure(
    schedule: Schedule, shape: ModelShape, timeline: Timeline, device: int, batch_size: int
) -> Measured:
    """The second step of one device, with everything that was allocated since its model was built."""

    def tokens() -> list[Tensor]:
        return [torch.randint(shape.vocabulary, (batch_size, n)) for n in schedule.layout.sequences]

    # The allocator remembers what was made under an earlier profile, and would count its end here.
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        place, backend = Place((device,), torch.device("cpu")), choose("cpu", torch.float32)
        pipeline = Pipeline(schedule, shape, place, backend, batch_size=batch_size)
        alone(pipeline, device, timeline)
        batch = Batch(tokens(), tokens())
        pipeline.step([batch])
        mark(STEP)
        pipeline.step([batch])
        mark(STEP)
    return read(record)


def events(record: profile) -> Iterator[tuple[str, int]]:
    """Marks, and the sizes of allocations (negative: freed) under "", in the order of time."""
    assert record.profiler is not None
    found = sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    for event in found:
        if event.name() == "[memory]":
            yield "", event.nbytes()
        elif event.name().startswith("mark "):
            yield event.name()[5:], 0


def read(record: profile) -> Measured:
    """The step between the two marks of that name."""
    static = total = high = most = num_steps = 0
    kept: list[int] = []
    highest: list[int] = []
    ended = False
    for name, size in events(record):
        total += size
        high, most = max(high, total), max(most, total)
        if name == STEP:
            num_steps += 1
            if num_steps == 1:
                static, most = total, total
        if num_steps != 1 or not name:
            continue
        if ended:
            kept.append(total)
        if name == "begin":
            high = total
        ended = name == "end"
        if ended:
            highest.append(high)
    return Measured(static, kept, highest, most)


@pytest.mark.parametrize(
    ("design", "shape", "batch_size"),
    [
        (Design("1f1b", 2, 2, sequence=500), LLAMA, 1),
        (Design("seq1f1b", 2, 2, sequence=700, split=(360, 200, 140)), replace(GPT, tied=True), 1),
        (Design("seq1f1b-zb", 2, 2, 3, sequence=450), LLAMA, 1),
        (Design("zb-v", 2, 2, sequence=200), GPT, 2),
        (Design("bsipipe", 4, 2, 2, sequence=400, layers=(0, 2, 1, 1, 0, 1, 0, 0)), LLAMA, 1),
        (Design("bsipipe-zb", 2, 2, 2, sequence=500), replace(LLAMA, tied=True), 1),
    ],
    ids=lambda value: value.generator if isinstance(value, Design) else "",
)
def test_the_designer_knows_what_the_engine_keeps_and_what_it_needs(
    design: Design, shape: ModelShape, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes.dist, "irecv", lambda tensor, *_: (tensor.normal_(), Arrived())[1])
    schedule = make(design)
    graph = build(with_reductions(schedule, shape.tied))
    timeline = simulate(graph, unit(schedule.layout))
    occupied = footprint(shape, Training(batch_size, "float32"))(schedule.layout)
    for device, curve in enumerate(byte_curves(timeline, occupied)):
        found = measure(schedule, shape, timeline, device, batch_size)
        static = (
            occupied.weights[device]
            + occupied.gradients[device]
            + occupied.optimizer[device]
            + occupied.batch
        )
        assert static == pytest.approx(found.static, rel=1e-3)
        low = graph.first[device]
        places = [place for place in range(len(curve.kept)) if graph.slot[low + place] != NONE]
        assert [curve.kept[place] for place in places] == pytest.approx(found.kept, rel=0.005)
        highest = [curve.highest[place] for place in places]
        assert highest == pytest.approx(found.highest, rel=0.03)
        assert curve.peak == pytest.approx(found.most, rel=0.01)
