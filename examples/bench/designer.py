"""Make, check, lower and simulate 16,384 actions, against PyTorch's own pipelining code for the same schedule."""

from __future__ import annotations

from measure import in_turn, show
from rich.console import Console
from torch.distributed.pipelining import schedules

from contraflow.designer.costs.unit import unit
from contraflow.designer.format.check import check
from contraflow.designer.format.graph import build
from contraflow.designer.format.lowering import lower
from contraflow.designer.generators import GENERATORS, Request
from contraflow.designer.simulate import simulate

DEVICES, STAGES_PER_DEVICE, MICROBATCHES = 16, 2, 256


def ours() -> None:
    request = Request(DEVICES, (1024,) * MICROBATCHES, ((1024,),) * MICROBATCHES, STAGES_PER_DEVICE)
    schedule = GENERATORS["interleaved-1f1b"].make(request)
    graph = build(schedule)
    assert not check(schedule, graph)
    lower(schedule, graph=graph)
    simulate(graph, unit(schedule.layout))


class FakeStage:
    """What PyTorch's schedule asks of a stage before it runs anything."""

    def __init__(self, index: int) -> None:
        self.stage_index, self.group_rank = index, index % DEVICES
        self.group_size, self.num_stages = DEVICES, DEVICES * STAGES_PER_DEVICE
        self.is_first, self.is_last = index == 0, index == self.num_stages - 1
        self.submod, self.has_backward, self.group = None, True, None
        self.stage_index_to_group_rank = {stage: stage % DEVICES for stage in range(self.num_stages)}


class Interleaved(schedules.ScheduleInterleaved1F1B):
    """Makes the order alone: what follows is called step by step."""

    def _prepare_schedule_with_comms(self, *_: object, **__: object) -> None:
        """Nothing yet."""


def pytorch() -> None:
    stages = [FakeStage(chunk * DEVICES) for chunk in range(STAGES_PER_DEVICE)]
    num_stages, ranks = stages[0].num_stages, stages[0].stage_index_to_group_rank
    order = Interleaved(stages, MICROBATCHES, loss_fn=lambda *_: None).pipeline_order
    compute = {rank: [action for action in actions if action is not None] for rank, actions in order.items()}
    schedules._validate_schedule(compute, DEVICES, num_stages, MICROBATCHES)
    lowered = schedules._add_send_recv(compute, ranks.__getitem__, num_stages)
    schedules._simulate_comms_compute(lowered, ranks.__getitem__, num_stages)


def main(console: Console) -> None:
    times = in_turn({"PyTorch": pytorch, "Contraflow": ours}, rounds=7)
    title = f"interleaved 1F1B, {DEVICES} x {STAGES_PER_DEVICE} stages x {MICROBATCHES} microbatches: make to simulate"
    show(console, title, times, "PyTorch", {"Contraflow": "time <= 0.333"})
