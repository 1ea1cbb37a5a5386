"""`contraflow export`: a schedule as a picture, or in another tool's format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import Ascii, Costs, File, Mono, Output, at_least
from .exit import Complaint, Exit
from .output import console, narrate, put, write
from .show import show

if TYPE_CHECKING:
    from contraflow.designer.design import Preview

FORMATS = ("text", "svg", "html", "perfetto", "torch-csv")
LATER = ("png", "megatron-layout")
"""Formats that this version does not write yet."""


def _format(word: str) -> str:
    if word in LATER:
        raise typer.BadParameter(f"{word} is not in this version; there are {', '.join(FORMATS)}")
    if word not in FORMATS:
        raise typer.BadParameter(f"{word!r} is none of {', '.join(FORMATS)}")
    return word


To = Annotated[
    str,
    typer.Option(
        "--to", metavar="FORMAT", parser=_format, help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
    ),
]
Width = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=at_least(1),
        help="columns of text (default: the terminal's), or millimetres of svg (default: 180)",
    ),
]


def export(
    file: File,
    to: To,
    costs: Costs = "unit",
    output: Output = None,
    width: Width = None,
    mono: Mono = False,
    ascii: Ascii = False,
) -> Exit:
    """A schedule as text, a picture for print (svg), a page to explore (html), a Chrome trace, or PyTorch's CSV."""
    if to == "torch-csv":
        return _torch_csv(file, output)
    if to == "text" and output is None:
        return show(file, costs, width, mono, ascii)
    from contraflow.designer.costs import named

    from . import report

    shown = report.read(file, named(costs))
    rendered = _rendered(shown, to, width, ascii)
    if output is None:
        put(rendered)
    else:
        write(rendered, output)
        narrate(f"{output}: {shown.schedule.name} as {to}")
    return Exit.FINE


def _rendered(shown: Preview, to: str, width: int | None, ascii: bool) -> str:
    if to == "text":
        from contraflow.designer.export import text

        return text.dumps(shown, width or console().width, ascii=ascii)
    if to == "svg":
        from contraflow.designer.export import svg

        if width is not None and width < svg.MIN_WIDTH:
            raise Complaint(f"--width {width}: a picture needs {svg.MIN_WIDTH:g} millimetres")
        return svg.dumps(shown, width or svg.WIDTH)
    if to == "perfetto":
        from contraflow.designer.export import perfetto

        return perfetto.dumps(shown)
    from contraflow.designer.export import html

    return html.dumps(shown)


def _torch_csv(file: Path, output: Path | None) -> Exit:
    from contraflow.designer.format.check import load
    from contraflow.designer.interchange import torch_csv

    if output is None:
        raise Complaint("--to torch-csv writes two files, OUT and OUT.meta.json: say where with -o OUT")
    schedule = load(file)
    table, meta = torch_csv.dumps(schedule)
    beside = output.with_name(f"{output.name}.meta.json")
    # The side-car first: a table never stands without one.
    write(meta, beside)
    write(table, output)
    narrate(f"{output}: {schedule.name} as torch-csv; {beside} says what its cells leave out")
    if not schedule.layout.uncut:
        narrate(
            "PyTorch's runtime takes subsequences for microbatches: attention does not reach from one to another"
        )
    return Exit.FINE
