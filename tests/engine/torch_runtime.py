"""One rank of PyTorch's own pipeline runtime: `python torch_runtime.py RANK NUM_RANKS FOLDER`.

Runs every CASE.csv of the folder, in their order, on the stages that CASE.csv.meta.json gives this rank, and leaves the
gradients of their weights in CASE.RANK.pt. The model is as far from ours as can be: a stage is a linear map and tanh,
position by position, so that the order of the actions and PyTorch's own bookkeeping are all that matters.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH = 3


def stage(number: int) -> torch.nn.Module:
    """The same weights in every process."""
    torch.manual_seed(number)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).double()


def batch(num_microbatches: int, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets: microbatch x token x width."""
    torch.manual_seed(1000)
    shape = (num_microbatches, num_tokens, WIDTH)
    return torch.rand(shape, dtype=torch.float64), torch.rand(shape, dtype=torch.float64)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A sum over tokens, so that it does not matter how they are dealt out."""
    return ((output - target) ** 2).sum()


def run(csv: Path, rank: int) -> dict[int, list[torch.Tensor]]:
    """Gradients by stage, of the stages that are this rank's."""
    meta = json.loads(Path(f"{csv}.meta.json").read_text(encoding="utf-8"))
    setup = meta["torch"]
    num_stages = len(setup["stage_index_to_group_rank"])
    modules = {number: stage(number) for number in setup["stages_of_rank"][rank]}
    stages = [
        PipelineStage(module, number, num_stages, torch.device("cpu")) for number, module in modules.items()
    ]
    runtime = _PipelineScheduleRuntime(stages, setup["n_microbatches"], loss_fn=loss, scale_grads=False)
    runtime._load_csv(str(csv))
    inputs, target = (
        # PyTorch deals the batch out along dimension 0: each subsequence becomes a microbatch of its own.
        whole.reshape(setup["n_microbatches"], -1, WIDTH)
        for whole in batch(meta["microbatches"], meta["sequence"])
    )
    runtime.step(*([inputs] if 0 in modules else []), target=target if num_stages - 1 in modules else None)
    return {number: [weight.grad for weight in module.parameters()] for number, module in modules.items()}


def main(rank: int, num_ranks: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting-point",
        rank=rank,
        world_size=num_ranks,
        timeout=timedelta(seconds=60),
    )
    for csv in sorted(folder.glob("*.csv")):
        torch.save(run(csv, rank), csv.with_suffix(f".{rank}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
