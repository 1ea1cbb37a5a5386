"""Help: what the place with the focus is for, and every key that works now, nearest first."""

from __future__ import annotations

from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from .commands import Command

NOTATION = (
    "3B1.0 is the backward of stage 3 for microbatch 1, subsequence 0. F forward, B backward; I and W are its halves, "
    "for the input and for the weights. Small letters, or underlined ones, travel up."
)


class Help(ModalScreen[None]):
    """A page to scroll; any of its keys closes it."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help VerticalScroll { width: 90%; max-width: 110; height: 90%; padding: 0 1; }
    Help VerticalScroll { border: round $primary; background: $surface; scrollbar-size: 1 1; }
    """
    BINDINGS = [
        Binding("escape,f1,question_mark,q", "dismiss(None)", "Close", key_display="esc"),
    ]

    def __init__(self, about: str, commands: list[Command]) -> None:
        super().__init__()
        self.about, self.commands = about, commands

    def compose(self) -> ComposeResult:
        with VerticalScroll() as page:
            page.border_title = "Help"
            page.border_subtitle = "esc closes"
            yield Static(Group(*self.parts()))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def parts(self) -> list[RenderableType]:
        """What is told: the place, its keys, those of all other places, the notation."""
        found: list[RenderableType] = [Text(self.about), Text()] if self.about else []
        for place, commands in groupby(self.commands, lambda command: command.place):
            found += [Text(place, "bold"), _keys(list(commands)), Text()]
        return [*found, Text("notation", "bold"), Text(NOTATION)]


def _keys(commands: list[Command]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=14, justify="right", style="bold")
    table.add_column(width=18)
    table.add_column(style="dim")
    for command in commands:
        table.add_row(" ".join(command.keys), command.description, command.tooltip)
    return table
