"""`contraflow verify`: whether a step on a schedule gives the gradients of the same model in one process."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contraflow.designer.format.check import load
from contraflow.designer.format.model import FAMILIES, ModelShape
from contraflow.designer.format.random_program import shuffled
from contraflow.designer.format.schedule import Layout, Schedule

from .arguments import File, Json, amount, at_least, one_of
from .exit import Complaint, Exit
from .output import draw, narrate, put, put_json
from .processes import check_world, names, said_once, told_to_end

if TYPE_CHECKING:
    from rich.table import Table

    from contraflow.engine.verify import Comparison, Trial


def _dtype(text: str) -> str:
    from contraflow.engine.config import DTYPES

    return one_of(*DTYPES)(text)


Model = Annotated[str, typer.Option(metavar="FAMILY", parser=one_of(*FAMILIES), help="llama or gpt")]
Layers = Annotated[
    int | None,
    typer.Option(metavar="N", parser=at_least(1), help="(default: the file's, or one for each stage)"),
]
KvHeads = Annotated[
    int | None, typer.Option(metavar="N", parser=at_least(1), help="of 4 heads (default: llama 2, gpt 4)")
]
Tied = Annotated[bool, typer.Option("--tied", help="one matrix for embedding and head")]
Dtype = Annotated[str, typer.Option(metavar="TYPE", parser=_dtype, help="float64, float32 or bfloat16")]
OtherOrders = Annotated[
    int, typer.Option("--random", metavar="N", parser=at_least(0), help="so many other valid orders as well")
]
Accumulate = Annotated[int, typer.Option(metavar="N", parser=at_least(1), help="passes for each step")]
Clip = Annotated[
    float, typer.Option(metavar="X", parser=amount, help="gradient norm from which --steps clips")
]
Steps = Annotated[
    int,
    typer.Option(metavar="N", parser=at_least(0), help="optimizer steps, after which weights are compared"),
]
Processes = Annotated[bool, typer.Option("--processes", help="in real processes, with real messages")]


def verify(
    file: File,
    model: Model = "llama",
    layers: Layers = None,
    kv_heads: KvHeads = None,
    tied: Tied = False,
    dtype: Dtype = "float64",
    random: OtherOrders = 0,
    accumulate: Accumulate = 1,
    clip: Clip = 0.0,
    steps: Steps = 0,
    processes: Processes = False,
    json: Json = False,
) -> Exit:
    """Whether a step on a schedule gives the gradients of the same model, whole, in one process.

    The model is a small one, and long sequences are scaled down in proportion: exactness depends on neither.
    """
    with said_once():
        schedule = load(file)
        if processes:
            check_world(schedule.layout)

        from contraflow.engine.config import default_layers
        from contraflow.engine.verify import Trial, scaled

        small = scaled(schedule)
        shape = small_model(model, layers or default_layers(small.layout), kv_heads, tied, small.layout)
        trial = Trial(shape, dtype, accumulate, clip, steps)
        if small is not schedule:
            longest, shortened = schedule.layout.longest, small.layout.longest
            narrate(
                f"sequences of {longest} tokens are scaled down to {shortened}, subsequences in proportion"
            )
        if clip and not steps:
            narrate("--clip makes no difference to gradients; it does with --steps")
        draws = Random(trial.seed)
        orders = [small, *(shuffled(small, draws) for _ in range(random))]
        found = compare_in_processes(orders, trial) if processes else compare_here(orders, trial)
    if not found:  # under torchrun only rank 0 hears of it
        return Exit.FINE
    worst = max(found, key=lambda comparison: (not comparison.ok, comparison.max_relative_error))
    if json:
        put_json(facts(worst, trial, len(found)))
    else:
        draw(table(worst, trial, len(found)))
        put(f"{file}: {'exact' if worst.ok else 'NOT exact'}\n")
    return Exit.FINE if worst.ok else Exit.FINDINGS


def small_model(family: str, layers: int, kv_heads: int | None, tied: bool, layout: Layout) -> ModelShape:
    """A model as small as shows every kind of parameter. Raises Complaint where it cannot be, or does not fit."""
    if kv_heads is None:
        kv_heads = 2 if family == "llama" else 4
    try:
        layout.layer_ranges(layers)
        return ModelShape(family, layers, 32, 4, kv_heads, 48, 61, tied, positions=layout.longest)
    except ValueError as error:
        raise Complaint(str(error)) from None


def compare_here(orders: Sequence[Schedule], trial: Trial) -> list[Comparison]:
    """Compare in this process, which plays every device."""
    import torch

    from contraflow.engine.verify import verify

    torch.set_num_threads(1)  # the matrices are too small to share
    return [verify(order, trial) for order in orders]


def compare_in_processes(orders: Sequence[Schedule], trial: Trial) -> list[Comparison]:
    """Compare over one process for each device. Raises RunError or Refused."""
    from contraflow.engine import launch
    from contraflow.engine.verify import verify_member

    found: list[Comparison] = []
    for order in orders:
        arguments = {"schedule": order, "trial": trial}
        layout = order.layout
        with told_to_end():
            launch.run(verify_member, arguments, layout.num_devices, found.append, names=names(layout))
    return found


def facts(worst: Comparison, trial: Trial, num_orders: int) -> dict[str, Any]:
    """The worst comparison as JSON, where what is not finite is null."""
    return {
        "max_relative_error": _finite(worst.max_relative_error),
        "worst": worst.worst,
        "loss_error": _finite(worst.loss_error),
        "ok": worst.ok,
        "tolerance": trial.tolerance,
        "orders": num_orders,
    }


def table(worst: Comparison, trial: Trial, num_orders: int) -> Table:
    """The worst comparison in words."""
    from rich.table import Table

    shape, what = trial.shape, "weights" if trial.steps else "gradients"
    layers = f"{shape.layers} layer{'' if shape.layers == 1 else 's'}"
    shown = Table.grid(padding=(0, 3, 0, 0))
    shown.add_row("model", f"{shape.family}, {layers}, {trial.dtype}")
    shown.add_row(f"error of {what}", f"{worst.max_relative_error:.2g}, the largest: {worst.worst}")
    shown.add_row("error of the loss", f"{worst.loss_error:.2g}")
    shown.add_row("tolerance", f"{trial.tolerance:.2g}")
    if num_orders > 1:
        shown.add_row("orders", f"{num_orders}; the figures are those of the worst")
    return shown


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
