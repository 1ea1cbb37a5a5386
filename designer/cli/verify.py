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
from contraflow.designer.format.schedule import Layout

from .arguments import File, Json, amount, at_least, one_of
from .exit import Complaint, Exit
from .output import draw, narrate, put, put_json
from .processes import check_world, said_once, start

if TYPE_CHECKING:
    from rich.table import Table

    from contraflow.engine.verify import Case, Comparison

PATIENCE = 300.0
"""Seconds that a process waits for a message, or goes without a sign of life: a large model takes its time."""


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
    typer.Option(
        metavar="N", parser=at_least(0), help="optimizer steps, after which weights are compared too"
    ),
]
Packed = Annotated[bool, typer.Option("--packed", help="several documents in each sequence")]
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
    packed: Packed = False,
    processes: Processes = False,
    json: Json = False,
) -> Exit:
    """Whether a step on a schedule gives the gradients of the same model, whole, in one process.

    With --steps also the weights, of every copy, and the optimizer's state after so many steps.
    The model is a small one, and long sequences are scaled down in proportion: exactness depends on neither.
    """
    with said_once():
        schedule = load(file)
        if processes:
            check_world(schedule.layout)

        from contraflow.engine.config import default_layers
        from contraflow.engine.verify import Case, Trial, scaled, worst

        small = scaled(schedule)
        shape = small_model(model, layers or default_layers(small.layout), kv_heads, tied, small.layout)
        trial = Trial(shape, dtype, accumulate, clip, steps, packed)
        if small is not schedule:
            longest, shortened = schedule.layout.longest, small.layout.longest
            narrate(
                f"sequences of {longest} tokens are scaled down to {shortened}, subsequences in proportion"
            )
        if clip and not steps:
            narrate("--clip makes no difference to gradients; it does with --steps")
        draws = Random(trial.seed)
        orders = [small, *(shuffled(small, draws) for _ in range(random))]
        cases = [Case(order, trial) for order in orders]
        found = compare_in_processes(cases) if processes else compare_here(cases)
    if not found:  # under torchrun only rank 0 hears of it
        return Exit.FINE
    overall = worst(found)
    if json:
        put_json(facts(overall, len(found)))
    else:
        draw(table(overall, shape, dtype, len(found)))
        put(f"{file}: {'exact' if overall.ok else 'NOT exact'}\n")
    return Exit.FINE if overall.ok else Exit.FINDINGS


def small_model(family: str, layers: int, kv_heads: int | None, tied: bool, layout: Layout) -> ModelShape:
    """A model as small as shows every kind of parameter. Raises Complaint where it cannot be, or does not fit."""
    if kv_heads is None:
        kv_heads = 2 if family == "llama" else 4
    try:
        layout.layer_ranges(layers)
        return ModelShape(family, layers, 32, 4, kv_heads, 48, 61, tied, positions=layout.longest)
    except ValueError as error:
        raise Complaint(str(error)) from None


def compare_here(cases: Sequence[Case]) -> list[Comparison]:
    """Compare in this process, which plays every device."""
    import torch

    from contraflow.engine.verify import verify

    torch.set_num_threads(1)  # the matrices are too small to share
    return [verify(*case) for case in cases]


def compare_in_processes(cases: Sequence[Case]) -> list[Comparison]:
    """Compare over one process for each device, started once. Raises RunError or Refused."""
    from contraflow.engine.verify import verify_member

    found: list[Comparison] = []
    layout = cases[0].schedule.layout
    start("verify", verify_member, {"cases": cases}, layout, found.append, timeout=PATIENCE)
    return found


def facts(overall: Comparison, num_orders: int) -> dict[str, Any]:
    """The comparison as JSON, where what is not finite is null: in short that of weights, or else of gradients."""
    errors = overall.errors
    largest = errors.get("weights", errors["gradients"])
    losses = [error.value for quantity, error in errors.items() if quantity.startswith("loss")]
    return {
        "ok": overall.ok,
        "max_relative_error": _number(largest.value),
        "worst": largest.worst.partition(" on device ")[0],
        "loss_error": _number(max(losses, default=0.0)),
        "orders": num_orders,
        "errors": {
            quantity: {"error": _number(error.value), "worst": error.worst, "tolerance": error.tolerance}
            for quantity, error in errors.items()
        },
    }


def _number(error: float) -> float | None:
    return error if isfinite(error) else None


def table(overall: Comparison, shape: ModelShape, dtype: str, num_orders: int) -> Table:
    """The comparison in words."""
    from rich.table import Table

    layers = f"{shape.layers} layer{'' if shape.layers == 1 else 's'}"
    orders = "" if num_orders == 1 else f"; the worst of {num_orders} orders"
    shown = Table(
        box=None, title=f"{shape.family}, {layers}, {dtype}{orders}", title_justify="left", title_style=""
    )
    for column in ("", "error", "allowed", "the largest"):
        shown.add_column(column, justify="right" if column in ("error", "allowed") else "left")
    for quantity, error in overall.errors.items():
        shown.add_row(quantity, f"{error.value:.2g}", f"{error.tolerance:.2g}", error.worst)
    return shown
