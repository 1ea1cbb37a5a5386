"""`contraflow show`: the Gantt chart and the memory as text."""

from __future__ import annotations

from typing import Annotated

import typer

from .arguments import Ascii, Costs, File, Mono, whole
from .exit import Exit
from .output import console, draw

Width = Annotated[int | None, typer.Option(metavar="COLUMNS", parser=whole, help="(default: the terminal's)")]


def show(
    file: File, costs: Costs = "unit", width: Width = None, mono: Mono = False, ascii: Ascii = False
) -> Exit:
    """The Gantt chart and the memory as text, as wide as the terminal."""
    from contraflow.designer.costs import named
    from contraflow.designer.export import text

    from . import report

    shown = report.read(file, named(costs))
    columns = max(width or console().width, text.MIN_WIDTH)
    screen = console(columns)
    color = screen.color_system is not None and not mono
    ascii = ascii or not screen.encoding.startswith("utf")
    draw(text.show(shown, columns, color=color, ascii=ascii), on=screen)
    return Exit.FINE
