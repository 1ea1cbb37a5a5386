"""The line above the footer: what is pointed at, or what to know."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget


class Status(Widget):
    """One line of text; changing it lays nothing out."""

    DEFAULT_CSS = "Status { height: 1; padding: 0 1; color: $text-muted; }"

    text: reactive[str] = reactive("")

    def render(self) -> Text:
        return Text(self.text, no_wrap=True, overflow="ellipsis")
