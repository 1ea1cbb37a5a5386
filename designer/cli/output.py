"""Where words go: data to stdout, narration to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .exit import Complaint, Exit

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from contraflow.designer.format.schedule import Schedule


def put(text: str) -> None:
    """Write data to stdout, at once. Raises Complaint where stdout cannot take it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with writing():
        print(text.encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)


@contextmanager
def writing() -> Iterator[None]:
    """Ends the program without a word where the reader has gone away, and with one line where a disk is full."""
    try:
        yield
    except OSError as error:
        # Python tries once more at its end to write what is left, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(Exit.BROKEN_PIPE) from None
        raise Complaint(f"stdout cannot be written: {error.strerror}") from None


def write(text: str, path: Path) -> None:
    """Replace a file, whole or not at all. Raises Complaint where that cannot be."""
    from contraflow.designer.format.file import write_text

    try:
        write_text(text, path)
    except OSError as error:
        raise Complaint(f"{path} cannot be written: {error.strerror}") from None


def save(schedule: Schedule, path: Path, json: bool) -> None:
    """Write a schedule file, and say so."""
    from contraflow.designer.format.file import dumps

    write(dumps(schedule), path)
    if json:
        put_json({"file": str(path), "name": schedule.name, "actions": schedule.num_actions})
    else:
        narrate(f"{path}: {schedule.name}, {schedule.num_actions} actions")


def put_json(document: Any) -> None:
    """Write one JSON document on one line of stdout."""
    import json

    put(json.dumps(document, allow_nan=False) + "\n")


def narrate(text: str) -> None:
    """Tell the person something beside the data."""
    print(text, file=sys.stderr, flush=True)


def console(width: int | None = None, *, stderr: bool = False) -> Console:
    """A console of the given width, or the terminal's; what it prints to stdout goes through `draw`."""
    from rich.console import Console

    return Console(width=width, stderr=stderr, highlight=False, markup=False, emoji=False)


def draw(*renderables: RenderableType, on: Console | None = None) -> None:
    """Write rich tables and texts to stdout, without the blanks that rich puts behind every line."""
    on = on or console()
    with writing(), on.capture() as capture:  # rich flushes stdout even there
        for renderable in renderables:
            on.print(renderable)
    put(re.sub(" +$", "", capture.get(), flags=re.MULTILINE))
