"""A command as typer runs it: arguments parsed, a slip in them one line, help on stdout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.main import get_command

from .exit import Complaint, Exit
from .output import writing

# Any slip on a command line. Whether click or typer itself defines it depends on typer's version.
UsageError: Any = typer.BadParameter.__base__


def run(name: str, action: Callable[..., Exit], arguments: Sequence[str]) -> Exit:
    """Parse the arguments and act. Raises Complaint for a slip in them."""
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(name)(action)
    # Not through the command's own `main`, which would turn Ctrl-C and a closed stdout into endings of its own.
    command = get_command(app)
    try:
        with writing():
            context = command.make_context(f"contraflow {name}", list(arguments))
    except typer.Exit:
        return Exit.FINE
    except UsageError as slip:
        said = " ".join(slip.format_message().split()).removesuffix(".")
        raise Complaint(said[0].lower() + said[1:]) from None
    with context:
        return Exit(command.invoke(context))
