"""`contraflow import`: a schedule file from another tool's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import Json, Output, at_least
from .exit import Complaint, Exit
from .output import narrate, put, save

In = Annotated[
    Path, typer.Argument(metavar="IN", help="a torch CSV: a row for each rank", show_default=False)
]
Meta = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="its side-car, which `export` writes beside it as IN.meta.json"),
]
SequenceLength = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS", parser=at_least(1), help="length of a sequence without a side-car (default: 1024)"
    ),
]


def import_(
    file: In,
    meta: Meta = None,
    sequence: SequenceLength = None,
    output: Output = None,
    json: Json = False,
) -> Exit:
    """Another tool's schedule as a schedule file: the CSV of PyTorch's pipeline runtime, of either variant."""
    from contraflow.designer.format.file import dumps, read_bytes
    from contraflow.designer.interchange import torch_csv

    if meta is not None and sequence is not None:
        raise Complaint(f"--sequence says what {meta} says already; give one of the two")
    read = torch_csv.loads(
        read_bytes(file),
        None if meta is None else read_bytes(meta),
        sequence=sequence or torch_csv.SEQUENCE,
        name=str(file),
        meta_name=str(meta),
    )
    for note in read.notes:
        narrate(f"{file}: {note}")
    if meta is None:
        narrate(f"{file}: {_assumed(file, sequence)}")
    if output is None:
        put(dumps(read.schedule))
    else:
        save(read.schedule, output, json)
    return Exit.FINE


def _assumed(file: Path, sequence: int | None) -> str:
    from contraflow.designer.interchange.torch_csv import SEQUENCE

    beside = Path(f"{file}.meta.json")
    more = f"; --meta {beside} would tell" if beside.is_file() else ""
    tokens = f"{SEQUENCE} tokens (--sequence)" if sequence is None else f"{sequence} tokens"
    return f"read without a side-car, so every microbatch travels whole and has {tokens}{more}"
