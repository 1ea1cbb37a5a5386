"""Make, check, lower and simulate, against PyTorch's own pipelining code for the same schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from measure import in_turn, show
from rich.console import Console
from torch.distributed.pipelining import schedules

from contraflow.designer.costs.unit import unit
from contraflow.designer.format.check import check
from contraflow.designer.format.graph import build
from contraflow.designer.format.lowering import lower
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.generators import GENERATORS, Request
from contraflow.designer.simulate import simulate


@dataclass(frozen=True, slots=True)
class Shape:
    """An interleaved 1F1B: `num_devices` x 2 stages x `num_microbatches`."""

    num_devices: int
    num_microbatches: int

    @property
    def num_stages(self) -> int:
        return 2 * self.num_devices

    def __str__(self) -> str:
        num_actions = 2 * self.num_stages * self.num_microbatches
        return f"interleaved 1F1B, {self.num_devices} x 2 stages x {self.num_microbatches}: {num_actions:,} actions"

    def schedule(self) -> Schedule:
        """Ours."""
        sequences = (1024,) * self.num_microbatches
        return GENERATORS["interleaved-1f1b"].make(
            Request(self.num_devices, sequences, ((1024,),) * len(sequences), 2)
        )

    def stage(self, index: int) -> FakeStage:
        """PyTorch's."""
        return FakeStage(index, self.num_devices, self.num_stages)

    def order(self) -> dict[int, list[schedules._Action]]:
        """PyTorch's actions of each rank."""
        stages = [self.stage(0), self.stage(self.num_devices)]
        made = Interleaved(stages, self.num_microbatches, loss_fn=lambda *_: None).pipeline_order
        return {rank: [action for action in actions if action is not None] for rank, actions in made.items()}


class FakeStage:
    """What PyTorch's schedule asks of a stage before it runs anything."""

    def __init__(self, index: int, num_devices: int, num_stages: int) -> None:
        self.stage_index, self.group_rank = index, index % num_devices
        self.group_size, self.num_stages = num_devices, num_stages
        self.is_first, self.is_last = index == 0, index == num_stages - 1
        self.submod, self.has_backward, self.group = None, True, None
        self.stage_index_to_group_rank = {stage: stage % num_devices for stage in range(num_stages)}


class Interleaved(schedules.ScheduleInterleaved1F1B):
    """Makes the order alone: what follows is called step by step."""

    def _prepare_schedule_with_comms(self, *_: object, **__: object) -> None:
        """Nothing yet."""


def whole(shape: Shape) -> dict[str, Callable[[], object]]:
    """From the shape to a simulated, lowered program."""

    def ours() -> None:
        schedule = shape.schedule()
        graph = build(schedule)
        assert not check(schedule, graph)
        lower(schedule, graph=graph)
        simulate(graph, unit(schedule.layout))

    def pytorch() -> None:
        ranks, order = shape.stage(0).stage_index_to_group_rank, shape.order()
        schedules._validate_schedule(order, shape.num_devices, shape.num_stages, shape.num_microbatches)
        lowered = schedules._add_send_recv(order, ranks.__getitem__, shape.num_stages)
        schedules._simulate_comms_compute(lowered, ranks.__getitem__, shape.num_stages)

    return {"PyTorch": pytorch, "Contraflow": ours}


def alone(shape: Shape) -> dict[str, Callable[[], object]]:
    """The simulation of a program that is at hand: PyTorch's counts steps, ours prices actions and messages."""
    schedule = shape.schedule()
    graph, prices = build(schedule), unit(schedule.layout)
    ranks = shape.stage(0).stage_index_to_group_rank
    lowered = schedules._add_send_recv(shape.order(), ranks.__getitem__, shape.num_stages)

    def pytorch() -> None:
        schedules._simulate_comms_compute(lowered, ranks.__getitem__, shape.num_stages)

    return {"PyTorch": pytorch, "Contraflow": lambda: simulate(graph, prices)}


def main(console: Console) -> None:
    for shape, rounds, aim in ((Shape(16, 256), 5, "time <= 0.333"), (Shape(64, 1024), 1, "time <= 0.200")):
        show(
            console,
            f"make to simulate, {shape}",
            in_turn(whole(shape), rounds),
            "PyTorch",
            {"Contraflow": aim},
        )
    shape = Shape(8, 2000)
    show(console, f"simulate alone, {shape}", in_turn(alone(shape), 3), "PyTorch", {})
