"""`contraflow design`: the terminal UI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .arguments import Ascii, Mono
from .exit import Complaint, Exit

OptionalFile = Annotated[Path | None, typer.Argument(metavar="FILE", help="a schedule file to open")]


def design(file: OptionalFile = None, mono: Mono = False, ascii: Ascii = False) -> Exit:
    """The terminal UI."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Complaint("needs a terminal; without one there are new, show, check, simulate and compare")
    from contraflow.designer.tui import app

    app.run(file, ascii=ascii, mono=mono)
    return Exit.FINE
