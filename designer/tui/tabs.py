"""Where there is no room for all of the screen's areas side by side: a line to choose one."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

AREAS = {"knobs": "f2", "chart": "f3", "details": "f4", "borders": "f5"}
"""The areas of the screen, each with its key."""


class Tabs(Widget):
    """One line: the areas with their keys, the present one set off."""

    DEFAULT_CSS = "Tabs { height: 1; padding: 0 1; background: $surface; color: $text-muted; }"

    current: reactive[str] = reactive("knobs")

    class Chosen(Message):
        """Someone wants to see this area."""

        def __init__(self, area: str) -> None:
            super().__init__()
            self.area = area

    def render(self) -> Text:
        return Text(" ", no_wrap=True).join(
            Text(self.label(area), "bold reverse" if area == self.current else "") for area in AREAS
        )

    @staticmethod
    def label(area: str) -> str:
        """An area as it stands on the line."""
        return f" {AREAS[area].upper()} {area} "

    def on_click(self, event: events.Click) -> None:
        column = event.x - 1
        for area in AREAS:
            width = len(self.label(area))
            if 0 <= column < width:
                self.post_message(self.Chosen(area))
            column -= width + 1
