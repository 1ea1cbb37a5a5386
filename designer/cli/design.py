"""`contraflow design`: the terminal UI."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .arguments import Ascii, Mono, at_least
from .exit import Complaint, Exit
from .output import narrate

INSTALL = "pip install 'textual-serve>=1.1'"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

OptionalFile = Annotated[Path | None, typer.Argument(metavar="FILE", help="a schedule file to open")]
Web = Annotated[bool, typer.Option("--web", help="in a browser instead of this terminal")]
Host = Annotated[str, typer.Option(metavar="HOST", help="with --web: the address to listen on")]
Port = Annotated[int, typer.Option(metavar="N", parser=at_least(1), help="with --web: the port to listen on")]


def design(
    file: OptionalFile = None,
    mono: Mono = False,
    ascii: Ascii = False,
    web: Web = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
) -> Exit:
    """The terminal UI."""
    if web:
        return _serve(file, mono, ascii, host, port)
    # In a browser there is no terminal, but someone who plays one.
    if not (sys.stdin.isatty() and sys.stdout.isatty()) and "TEXTUAL_DRIVER" not in os.environ:
        raise Complaint("needs a terminal; without one there are new, show, check, simulate and compare")
    from contraflow.designer.tui import app

    code = app.run(file, ascii=ascii, mono=mono)
    if code:
        raise SystemExit(code)
    return Exit.FINE


def _serve(file: Path | None, mono: bool, ascii: bool, host: str, port: int) -> Exit:
    arguments = [*(["--mono"] if mono else []), *(["--ascii"] if ascii else [])]
    if file is not None:
        arguments += ["--", str(file)]
    try:
        from contraflow.designer.tui.web import serve
    except ModuleNotFoundError as error:
        if f"{error.name}".startswith("contraflow"):
            raise
        raise Complaint(
            f"--web needs textual-serve, which is not installed here: {INSTALL}", Exit.MISSING
        ) from None
    if host not in LOOPBACK:
        narrate(f"whoever reaches {host}:{port} can read and write your files as you can")
    try:
        serve(arguments, host, port)
    except OSError as error:
        raise Complaint(f"{host}:{port} cannot be listened on: {error.strerror}") from None
    return Exit.FINE
