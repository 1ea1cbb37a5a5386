"""Dialogs to choose a file; loaded when the first one is shown."""

from __future__ import annotations

from pathlib import Path

from textual.events import Mount
from textual.widgets import Input
from textual_fspicker import FileOpen, FileSave, Filters

FILTERS = Filters(
    ("*.json", lambda path: path.suffix == ".json"),
    ("all", lambda path: True),
)


class OpenDialog(FileOpen):
    """An existing file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "Open", filters=FILTERS)


class SaveDialog(FileSave):
    """A file to write: begins with the name, which is right more often than not."""

    def __init__(self, folder: Path, proposal: str, title: str = "Save as") -> None:
        super().__init__(folder, title, default_file=proposal)

    def on_mount(self, event: Mount) -> None:  # type: ignore[override]
        # Else the base class, whose turn is next, puts the focus on the list of folders.
        event.prevent_default()
        self.query_one(Input).focus()
