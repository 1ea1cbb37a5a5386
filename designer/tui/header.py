"""The line at the top: the file, and the figures that the schedule is judged by, each with its last change."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.reactive import reactive, var
from textual.widget import Widget

from contraflow.designer.design import Preview
from contraflow.designer.export.axis import figure
from contraflow.designer.export.glyphs import Glyphs
from contraflow.designer.export.text import flow, percent

from .session import Session


class Header(Widget):
    """File, dirty mark, schedule, makespan, bubble, peak."""

    DEFAULT_CSS = """
    Header { dock: top; height: 1; background: $primary 25%; padding: 0 1; }
    """

    session: var[Session | None] = var(None)
    text: reactive[Text] = reactive(Text())

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs

    def watch_session(self) -> None:
        self.fit()

    def on_resize(self) -> None:
        self.fit()

    def fit(self) -> None:
        """As many lines as the items need; laid out anew only where that changes."""
        if self.session is None:
            return
        joint = f" {self.glyphs.dot} "
        lines = list(flow(items(self.session, self.glyphs), max(self.size.width, 20), joint))
        if self.styles.height is None or self.styles.height.value != len(lines):
            self.styles.height = len(lines)
        self.text = Text("\n").join(lines)

    def render(self) -> Text:
        return self.text


def items(session: Session, glyphs: Glyphs) -> list[Text]:
    """What the header says, piece by piece."""
    mark = "*" if session.dirty else ""
    found = [Text(f"{session.path.name if session.path else 'untitled'}{mark}", "bold")]
    if session.picture is None:
        return found
    now = session.picture.preview
    before = session.before.preview if session.before else now
    if before.timeline.prices.costs != now.timeline.prices.costs:
        before = now
    clock = now.timeline.prices.clock
    found.append(Text(now.schedule.name))
    found += [
        _measure(
            "makespan", now, before, lambda shown: shown.makespan, lambda time: figure(time, clock), glyphs
        ),
        _measure("bubble", now, before, lambda shown: shown.bubble, percent, glyphs),
        _measure("peak", now, before, lambda shown: shown.peak, lambda peak: f"{peak:.4g}", glyphs),
    ]
    if session.waiting:
        found.append(Text("working", "italic"))
    return found


def _measure(
    name: str,
    now: Preview,
    before: Preview,
    value: Callable[[Preview], float],
    words: Callable[[float], str],
    glyphs: Glyphs,
) -> Text:
    text = Text(f"{name} ").append(words(value(now)), "bold")
    change = value(now) - value(before)
    if words(abs(change)) != words(0.0):
        sign = "+" if change > 0 else "-" if glyphs.ascii else "−"
        text.append(f" {sign}{words(abs(change))}", "italic")
    return text
