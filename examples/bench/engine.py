"""One training step on two processes of one thread, against PyTorch's Schedule1F1B on the same model and batch.

A step is zero gradients, forward, backward, reductions; there is no optimizer on either side. Two engines are
measured at a time, in turn, each also alone once: a third in the same processes would spoil the others.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from measure import show
from rich.console import Console
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from contraflow.designer.design import Design, make
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Schedule
from contraflow.engine import launch, models
from contraflow.engine.batch import Batch
from contraflow.engine.member import Member
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.topology import Place
from contraflow.kernels.attention import choose
from contraflow.kernels.cross_entropy import cross_entropy

SHAPE = ModelShape("llama", 8, 256, 8, 8, 704, 4096)
MICROBATCHES = 2
CASES = (
    # generator, subsequences, tokens, aim
    ("1f1b", 1, 2048, "time <= 1.05"),
    ("seq1f1b", 4, 2048, "speed >= 1.15"),
    ("bsipipe", 2, 2048, "speed >= 1.35"),
    ("bsipipe", 4, 4096, "speed >= 1.35"),
)


class PlainStage(nn.Module):
    """The same layers as an ordinary module: whole sequences, PyTorch's causal attention, logits at the end."""

    def __init__(self, rank: int, num_stages: int) -> None:
        super().__init__()
        share = SHAPE.layers // num_stages
        layers = range(rank * share, (rank + 1) * share)
        self.decoder = models.build(SHAPE, layers, first=rank == 0, last=rank == num_stages - 1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        context = SimpleNamespace(start=0, attend=self.attend)
        hidden = self.decoder.embed(x, context) if self.decoder.first else x
        for layer in self.decoder.layers.values():
            hidden = layer(hidden, context)
        return self.decoder.head(self.decoder.norm(hidden)) if self.decoder.last else hidden


class PyTorchEngine:
    """Schedule1F1B over one stage for each process."""

    def __init__(self, rank: int, batch: Batch, num_stages: int) -> None:
        self.rank, self.module, self.last = rank, PlainStage(rank, num_stages), rank == num_stages - 1
        stage = PipelineStage(self.module, rank, num_stages, torch.device("cpu"))
        loss = partial(cross_entropy, num_targets=batch.num_targets)
        self.schedule = Schedule1F1B(stage, len(batch.ids), loss_fn=loss, scale_grads=False)
        self.ids, self.targets = torch.cat(list(batch.ids)), torch.cat(list(batch.targets))

    def step(self) -> float:
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        losses: list[Tensor] = []
        if self.rank == 0:
            self.schedule.step(self.ids)
        elif self.last:
            self.schedule.step(target=self.targets, losses=losses)
        else:
            self.schedule.step()
        return float(sum(loss.detach() for loss in losses))

    def parameters(self) -> list[nn.Parameter]:
        return list(self.module.parameters())

    def kept_beside(self) -> int:
        """Bytes that are kept for backward without autograd's knowledge."""
        return 0


class OurEngine:
    """Contraflow on a schedule."""

    def __init__(self, member: Member, schedule: Schedule, batch: Batch) -> None:
        place = Place((member.rank,), member.torch_device, member.backend)
        self.pipeline = Pipeline(schedule, SHAPE, place, choose("cpu", torch.float32))
        self.batch = batch

    def step(self) -> float:
        return self.pipeline.gradients([self.batch])

    def parameters(self) -> list[Tensor]:
        return [value for _, value in self.pipeline.named_parameters()]

    def kept_beside(self) -> int:
        """Bytes of the keys and values that subsequences share."""
        return sum(
            key_values.num_bytes
            for stages in self.pipeline.stages.values()
            for stage in stages.values()
            for key_values in stage.key_values.values()
        )


def random_batch(num_microbatches: int, tokens: int) -> Batch:
    """The same in every process."""
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randint, SHAPE.vocabulary, (1, tokens), generator=generator)
    return Batch([draw() for _ in range(num_microbatches)], [draw() for _ in range(num_microbatches)])


def race(member: Member, *, schedule: Schedule, tokens: int, rounds: int) -> None:
    """Both engines in turn, and each alone: reports {name: seconds} and the two losses."""
    torch.set_num_threads(1)
    batch = random_batch(MICROBATCHES, tokens)
    engines = {
        "Schedule1F1B": PyTorchEngine(member.rank, batch, 2),
        "Contraflow": OurEngine(member, schedule, batch),
    }
    losses: dict[str, float] = {}
    times: dict[str, list[float]] = {}

    def timed(name: str, column: str) -> None:
        dist.barrier()
        begun = perf_counter()
        losses[name] = max(losses.get(name, 0.0), engines[name].step())
        dist.barrier()
        times.setdefault(column, []).append(perf_counter() - begun)

    for name in engines:
        timed(name, "warm-up")
    for _ in range(rounds):
        for name in engines:
            timed(name, name)
    for name in engines:
        for _ in range(2):
            timed(name, f"{name} alone")
    both = [losses] * 2
    dist.all_gather_object(both, losses)
    member.report((times, {name: max(part[name] for part in both) for name in engines}))


def main(console: Console) -> None:
    for generator, subsequences, tokens, aim in CASES:
        schedule = make(Design(generator, 2, MICROBATCHES, subsequences, sequence=tokens))
        heard: list[tuple[dict[str, list[float]], dict[str, float]]] = []
        launch.run(race, {"schedule": schedule, "tokens": tokens, "rounds": 5}, 2, heard.append)
        ((times, losses),) = heard
        times.pop("warm-up")
        ours, theirs = losses["Contraflow"], losses["Schedule1F1B"]
        assert abs(ours - theirs) < 1e-4 * theirs, f"different losses, {ours} and {theirs}: not the same work"
        title = f"one step, 2 processes, {MICROBATCHES} x {tokens} tokens: {generator} k={subsequences}"
        show(console, title, times, "Schedule1F1B", {"Contraflow": aim})
