"""`contraflow new`: a schedule file from a generator's knobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from contraflow.designer.costs.presets import DEFAULT
from contraflow.designer.design import BALANCED, MICROBATCHES, SUBSEQUENCES, Design, make
from contraflow.designer.format import file
from contraflow.designer.generators import GENERATORS
from contraflow.designer.topology import BEST, MAPPINGS

from .arguments import COSTS, Json, Output, listed, real, whole
from .exit import Complaint, Exit
from .output import draw, narrate, put, put_json, save

if TYPE_CHECKING:
    from rich.table import Table

    from contraflow.designer.generators import Generator

REST = Design()
"""The knobs at rest."""

ALTERNATE = "alternate"
"""The word for directions at rest."""

GeneratorName = Annotated[str | None, typer.Argument(metavar="GENERATOR", help="see --list")]
Listing = Annotated[bool, typer.Option("--list", help="name the generators, and the knobs of each")]


def knob(metavar: str, parser: Any, default: object, help: str) -> Any:
    """A flag that is handed on only where it is given: the rest is the design's to decide."""
    return typer.Option(metavar=metavar, parser=parser, help=f"{help} (default: {default})")


Devices = Annotated[int | None, knob("P", whole, REST.devices, "positions in the pipeline")]
Microbatches = Annotated[
    int | None, knob("M", whole, f"{MICROBATCHES}, or the least possible", "over all directions")
]
Subsequences = Annotated[
    int | None,
    knob("K", whole, f"{SUBSEQUENCES} where the generator cuts, else 1", "parts of each sequence"),
]
StagesPerDevice = Annotated[
    int | None, knob("V", whole, "2 if interleaved or V-shaped, else 1", "slices of the model on each device")
]
SequenceLength = Annotated[
    int | None, knob("TOKENS", whole, f"what --split adds up to, or {REST.sequence}", "length of a sequence")
]
# typer knows neither unions nor tuples of any length.
Split = Annotated[
    Any, knob("SPLIT", listed, REST.split, "even, compute, time, or lengths such as 512,384,128")
]
Layers = Annotated[
    Any,
    knob(
        "LIST",
        listed,
        "alike",
        f"layers of each stage, such as 7,9,9,7, or {BALANCED}: embedding and head counted",
    ),
]
RanksOfDevices = Annotated[
    Any,
    knob("RANKS", listed, "device d on rank d", f"{', '.join(MAPPINGS)}, {BEST}, or the rank of each device"),
]
Directions = Annotated[
    str | None,
    knob("WAYS", str, ALTERNATE, "which way each microbatch goes: 0 down, 1 up, such as 0110"),
]
Multiple = Annotated[
    int | None,
    knob("TOKENS", whole, REST.multiple, "of which compute and time put the borders on multiples"),
]
UnitMicrobatches = Annotated[
    int | None,
    knob("U", whole, REST.unit_microbatches, "microbatches of a basic unit in each direction"),
]
Budget = Annotated[
    float | None,
    knob("N", real, "2 U + 0.5", "activation that a device may hold, in whole microbatches"),
]
CostsOfOrder = Annotated[
    str | None,
    knob(
        "COSTS",
        str,
        f"unit, and {DEFAULT} for --split, --layers and --ranks that ask for costs",
        f"what an order is made for: {COSTS}",
    ),
]


def new(
    generator: GeneratorName = None,
    listing: Listing = False,
    devices: Devices = None,
    microbatches: Microbatches = None,
    subsequences: Subsequences = None,
    stages_per_device: StagesPerDevice = None,
    sequence: SequenceLength = None,
    split: Split = None,
    multiple: Multiple = None,
    layers: Layers = None,
    ranks: RanksOfDevices = None,
    unit_microbatches: UnitMicrobatches = None,
    budget: Budget = None,
    costs: CostsOfOrder = None,
    directions: Directions = None,
    output: Output = None,
    json: Json = False,
) -> Exit:
    """Write a schedule file: a generator's order for the knobs given."""
    if listing:
        _list(list(GENERATORS.values()), json)
        return Exit.FINE
    if generator is None:
        raise Complaint(f"name a generator, one of {', '.join(GENERATORS)}; --list tells more")
    if sequence is None and isinstance(split, tuple):
        sequence = sum(split)
    knobs: dict[str, Any] = {
        "devices": devices,
        "microbatches": microbatches,
        "subsequences": subsequences,
        "stages_per_device": stages_per_device,
        "sequence": sequence,
        "split": split,
        "multiple": multiple,
        "layers": layers,
        "ranks": ranks,
        "unit_microbatches": unit_microbatches,
        "budget": budget,
        "costs": costs,
        "directions": None if directions == ALTERNATE else directions,
    }
    given = {name: value for name, value in knobs.items() if value is not None}
    chosen = Design(generator, **given)
    schedule = make(chosen)
    for flag in ("--budget", "--unit-microbatches"):
        if flag[2:].replace("-", "_") in given and flag not in own_knobs(chosen.kind):
            narrate(f"{generator} has no {flag}: it makes no difference here")
    if output is None:
        put(file.dumps(schedule))
    else:
        save(schedule, output, json)
    return Exit.FINE


def _list(generators: list[Generator], json: bool) -> None:
    if json:
        put_json([described(generator) for generator in generators])
    else:
        everywhere = (
            "All take --devices, --microbatches, --stages-per-device, --sequence, --layers and --ranks."
        )
        draw(table(generators), "", everywhere)


def own_knobs(generator: Generator) -> list[str]:
    """The flags that not every generator has."""
    cutting = ["--subsequences", "--split", "--multiple", "--costs"] if generator.cuts else []
    opposed = ["--directions"] if generator.directions > 1 else []
    return cutting + opposed + (["--budget", "--unit-microbatches"] if generator.budgeted else [])


def described(generator: Generator) -> dict[str, Any]:
    """A generator as JSON."""
    return {
        "name": generator.name,
        "summary": generator.summary,
        "source": generator.source,
        "stages_per_device": generator.stages_per_device,
        "subsequences": generator.cuts,
        "directions": generator.directions,
        "knobs": own_knobs(generator),
    }


def table(generators: list[Generator]) -> Table:
    """Each generator with what it does, where it is from and its own knobs."""
    from rich.table import Table
    from rich.text import Text

    found = Table.grid(padding=(0, 2, 0, 0))
    for generator in generators:
        knobs = ", ".join([f"arXiv {generator.source}", *own_knobs(generator)])
        found.add_row(Text(generator.name, "bold"), Text.assemble(generator.summary, "\n", (knobs, "dim")))
    return found
