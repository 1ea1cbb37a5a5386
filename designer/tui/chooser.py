"""A list to choose one value from."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from textual import on
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from .knobs import Choice


class Chooser(ModalScreen[str | None]):
    """Values with their meanings; None where nobody wants any."""

    DEFAULT_CSS = """
    Chooser { align: center middle; }
    Chooser OptionList { width: 80%; max-width: 100; height: auto; max-height: 80%; }
    """
    BINDINGS = [("escape", "dismiss(None)", "Back")]

    def __init__(self, title: str, choices: Sequence[Choice], current: str) -> None:
        super().__init__()
        self.list_title, self.choices, self.current = title, choices, current

    def compose(self) -> ComposeResult:
        widest = max(len(name) for name, _ in self.choices)
        options = OptionList(*(Option(_choice(name, meaning, widest)) for name, meaning in self.choices))
        options.border_title = self.list_title
        names = [name for name, _ in self.choices]
        options.highlighted = names.index(self.current) if self.current in names else 0
        yield options

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.choices[event.option_index][0])


def _choice(name: str, meaning: str, widest: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=widest, style="bold")
    table.add_column(style="dim")
    table.add_row(name, meaning)
    return table
