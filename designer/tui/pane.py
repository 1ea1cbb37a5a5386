"""Chart, memory strips, legend and assumptions: what is right of the knobs."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.reactive import var
from textual.widgets import Static

from contraflow.designer.export.glyphs import Glyphs
from contraflow.designer.export.text import flow, legend

from .gantt import Gantt
from .memory import Memory
from .session import Session
from .view import heights

FIXED = 2
"""The ruler, and the title of the memory strips."""


class Pane(Vertical):
    """Shares its lines between the parts, so that each device gets as many as there is room for."""

    DEFAULT_CSS = """
    Pane { height: 1fr; width: 1fr; }
    Pane #legend { height: auto; padding: 0 1; }
    """

    session: var[Session | None] = var(None)

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.gantt = Gantt(glyphs)
        self.memory = Memory(self.gantt)
        self.zoomed = False
        self.shown: list[Text] = []

    def compose(self) -> ComposeResult:
        yield self.gantt.data_bind(Pane.session)
        yield self.memory
        yield Static(id="legend")

    def watch_session(self, old: Session | None, new: Session | None) -> None:
        if not self.is_mounted or new is None:
            return
        self.memory.set_class(new.picture is not None and new.stale, "-stale")
        if old is None or old.picture is not new.picture:
            self.share()
            self.memory.refresh()

    def on_resize(self) -> None:
        self.share()

    def share(self) -> None:
        """Lines for the chart, the memory strips and the legend."""
        picture = self.session.picture if self.session else None
        if picture is None or not self.size.height:
            return
        devices = len(picture.chart.bars)
        lines = self.size.height - self._legend(self.size.height - FIXED - 2 * min(devices, 6))
        scrollbar = int(self.gantt.zoom > 0)
        chart_lines, memory_lines = heights(devices, lines - FIXED - scrollbar)
        chart = 1 + devices * chart_lines + scrollbar
        memory = 1 + devices * memory_lines
        if chart + memory > lines:
            chart = min(chart, max(lines - memory, (2 * lines + 1) // 3))
        self.memory.display = lines - chart >= 2
        self.memory.lines_per_device = memory_lines
        self.gantt.lines_per_device = chart_lines
        height = chart if self.memory.display else lines
        if self.gantt.styles.height is None or self.gantt.styles.height.value != height:
            self.gantt.styles.height = height

    def _legend(self, lines: int) -> int:
        """Draw legend and assumptions if they fit `lines`, or the legend alone; how many they take."""
        picture = self.session.picture if self.session else None
        shown: list[Text] = []
        if picture is not None:
            width = max(self.size.width - 2, 20)
            shown = list(flow(legend(picture.chart, self.glyphs), width, "   "))
            caption = Text(picture.preview.timeline.prices.caption, "dim").wrap(self.app.console, width)
            if len(shown) + len(caption) <= lines:
                shown += caption
            if len(shown) > lines:
                shown = []
        static = self.query_one("#legend", Static)
        static.display = bool(shown)
        if shown != self.shown:
            self.shown = shown
            static.update(Group(*shown))
        return len(shown)

    @on(Gantt.Moved)
    def move_memory(self) -> None:
        if (self.gantt.zoom > 0) != self.zoomed:
            # A scroll bar comes or goes.
            self.zoomed = self.gantt.zoom > 0
            self.share()
        self.memory.refresh()
