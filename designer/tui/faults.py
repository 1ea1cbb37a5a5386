"""A file that cannot be used: its faults in a list, and under it the place of the one that is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from contraflow.designer.format.check import examine
from contraflow.designer.format.fault import Fault, NotAScheduleError, counted
from contraflow.designer.format.file import read_bytes
from contraflow.designer.format.schedule import Schedule

from .locate import Range, excerpt, located, printable

MOST = 8 * 2**20
"""Characters in which a place is looked for within a moment."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong with a file, and its text, as far as there is any."""

    path: Path
    title: str
    faults: tuple[Fault, ...] = ()
    text: str = ""


def read(path: Path) -> Schedule | Faults:
    """The schedule in a file, or why it cannot be used."""
    text = b""
    try:
        text = read_bytes(path)
        schedule, faults = examine(text, path.name)
    except NotAScheduleError as error:
        return Faults(path, str(error), text=text[:100_000].decode("utf-8", "replace"))
    if faults or schedule is None:
        return Faults(path, counted(faults), tuple(faults), text.decode("utf-8-sig", "replace"))
    return schedule


class Place(Widget):
    """The part of the text in which a fault lies."""

    DEFAULT_CSS = "Place { height: 1fr; border-top: solid $primary; }"

    fault: reactive[Fault | None] = reactive(None)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.found: Range | None = None

    def watch_fault(self) -> None:
        sought = self.fault is not None and len(self.source) <= MOST
        self.found = located(self.source, self.fault.where) if self.fault and sought else None

    def render(self) -> Text:
        return excerpt(self.source, self.found, self.size.width, self.size.height)


class FaultsScreen(Screen[Path | None]):
    """Returns the path once it shall be read again, None to leave it."""

    DEFAULT_CSS = """
    FaultsScreen > Static { padding: 0 1; background: $error 30%; height: auto; }
    FaultsScreen OptionList { height: auto; max-height: 50%; border: none; }
    FaultsScreen Footer { dock: bottom; }
    """
    BINDINGS = [
        Binding("r", "again", "Read again", tooltip="Read the file again, once it was put right elsewhere"),
        Binding(
            "escape",
            "dismiss(None)",
            "Close",
            key_display="esc",
            tooltip="Leave the file, back to the design",
        ),
    ]
    PLACE = "faults"

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults

    def compose(self) -> ComposeResult:
        found = self.faults
        yield Static(Text(f"{found.path} cannot be used: {found.title}" if found.faults else found.title))
        if found.faults:
            yield OptionList(*(Option(Text(printable(f"{fault}"))) for fault in found.faults))
        yield Place(found.text)
        yield Footer(show_command_palette=False)

    @on(OptionList.OptionHighlighted)
    def jump(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one(Place).fault = self.faults.faults[event.option_index]

    def action_again(self) -> None:
        """Read the file again."""
        self.dismiss(self.faults.path)
