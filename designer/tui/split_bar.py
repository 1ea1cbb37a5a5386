"""The split bar: a sequence as a line, cut where its borders are; they move by key and by mouse."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.reactive import reactive, var
from textual.widget import Widget

from contraflow.designer import costs
from contraflow.designer.costs.presets import DEFAULT
from contraflow.designer.design import Design
from contraflow.designer.export.axis import figure
from contraflow.designer.export.glyphs import Glyphs
from contraflow.designer.export.text import percent
from contraflow.designer.splits import Share, border_moved, shares

from .session import Session

GUTTER = 7
"""Columns of what the lines are called."""
GIB = 2**30
TONES = Style(bgcolor="#3c5a78", color="#ffffff"), Style(bgcolor="#2b4057", color="#ffffff")


class SplitBar(Widget, can_focus=True):
    """Tokens, work, bytes and time of every subsequence, and the border that the keys move."""

    DEFAULT_CSS = """
    SplitBar { height: 6; padding: 0 1; border-top: solid $panel; }
    SplitBar:focus { border-top: solid $primary; }
    """
    BINDINGS = [
        Binding("left", "move(-1)", "Left", tooltip="The border to the multiple of tokens before"),
        Binding("right", "move(1)", "Right", tooltip="The border to the next multiple of tokens"),
        Binding("shift+left", "move(-8)", "Far left", show=False, tooltip="Eight multiples to the left"),
        Binding("shift+right", "move(8)", "Far right", show=False, tooltip="Eight multiples to the right"),
        Binding(
            "comma,up", "choose(-1)", "Border before", show=False, tooltip="The keys move the border before"
        ),
        Binding(
            "full_stop,down",
            "choose(1)",
            "Next border",
            key_display=".",
            tooltip="The keys move the next border",
        ),
        Binding("e", "rule('even')", "Even", tooltip="Equal lengths"),
        Binding("c", "rule('compute')", "Equal compute", tooltip="Equal causal work"),
        Binding("t", "rule('time')", "Equal time", tooltip="Equal time on the costs"),
        Binding("escape", "app.other_side", "Knobs", key_display="esc", tooltip="Back to the knobs"),
    ]
    PLACE = "borders"

    session: var[Session | None] = var(None)
    border: reactive[int] = reactive(1)
    """The chosen one; 1 is the first between two subsequences."""

    class Moved(Message):
        """Someone asked for this design by the borders; `dragged` while the mouse goes on pulling."""

        def __init__(self, design: Design, dragged: bool = False) -> None:
            super().__init__()
            self.design, self.dragged = design, dragged

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.pulled = False
        self.lengths: tuple[int, ...] = ()
        self.rows: dict[str, list[str]] = {}

    # What is shown

    def watch_session(self, old: Session | None, new: Session | None) -> None:
        if new is None or (old is not None and (old.draft, old.picture) == (new.draft, new.picture)):
            return
        draft, picture = new.draft, new.picture
        if picture is not None:
            split = draft.design.split
            listed = isinstance(split, tuple) and draft.program is None
            self.lengths = split if listed else picture.preview.schedule.layout.splits[0]  # type: ignore[assignment]
            self.rows = self._rows(new)
        self.border = min(max(self.border, 1), max(len(self.lengths) - 1, 1))
        self.set_class(len(self.lengths) > 1, "-cut")
        self.refresh()

    def _rows(self, session: Session) -> dict[str, list[str]]:
        """What stands under each subsequence, on the costs that the rules go by."""
        assert session.picture is not None
        layout = session.picture.preview.schedule.layout
        try:
            clock = costs.named(session.draft.design.costs or DEFAULT)
            found: tuple[Share, ...] = shares(self.lengths, layout, clock)
        except costs.CostError:
            clock = costs.named("unit")
            found = shares(self.lengths, layout, clock)
        unit = clock(layout).clock
        return {
            "tokens": [f"{share.tokens}" for share in found],
            "work": ["-" if share.work is None else percent(share.work) for share in found],
            "bytes": ["-" if share.bytes is None else f"{share.bytes / GIB:.3g} GiB" for share in found],
            "time": [figure(share.forward + share.backward, unit) for share in found],
        }

    @property
    def room(self) -> int:
        """Columns of a whole sequence."""
        return max(self.size.width - GUTTER, 1)

    def render(self) -> Text:
        lengths = self.lengths
        if len(lengths) < 2 or self.session is None:
            return Text("sequences are not cut here: a generator that cuts them has borders to move", "dim")
        edges = [round(mark / sum(lengths) * self.room) for mark in (0, *accumulate(lengths))]
        lines = [self._title(self.session.draft.design)]
        for name, words in self.rows.items():
            line = Text(f"{name:<{GUTTER}}", "dim", no_wrap=True)
            for q, word in enumerate(words):
                width = edges[q + 1] - edges[q]
                shown = f"{word:^{width}}" if len(word) < width else " " * width
                tone = TONES[q % 2] if self.glyphs.solid else Style(reverse=bool(q % 2))
                chosen = Style(bold=True, color="#10202c", bgcolor="#f2c14e")
                line.append(shown[:1], chosen if q == self.border and self.has_focus else tone)
                line.append(shown[1:], tone)
            lines.append(line)
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    def _title(self, design: Design) -> Text:
        how = design.split if isinstance(design.split, str) else "by hand"
        here = sum(self.lengths[: self.border])
        words = [
            Text(f"split {how}", "bold"),
            Text(
                f"border {self.border} of {len(self.lengths) - 1} at token {here}, on multiples of {design.multiple}"
            ),
            Text(f"on {design.costs or DEFAULT}", "dim"),
        ]
        return Text(f" {self.glyphs.dot} ", no_wrap=True, overflow="ellipsis").join(words)

    # Keys

    def action_move(self, by: int) -> None:
        """The chosen border so many multiples to the right."""
        if self.session is not None and len(self.lengths) > 1:
            self.move(by * self.session.draft.design.multiple)

    def action_choose(self, by: int) -> None:
        """Another border."""
        self.border = min(max(self.border + by, 1), max(len(self.lengths) - 1, 1))

    def action_rule(self, rule: str) -> None:
        """All borders by a rule."""
        if self.session is not None:
            design = self.session.draft.design
            self.post_message(self.Moved(replace(design, split=rule, subsequences=design.num_subsequences)))

    def move(self, by: int, dragged: bool = False) -> None:
        """The chosen border so many tokens to the right, on a multiple."""
        assert self.session is not None
        design = self.session.draft.design
        lengths = border_moved(self.lengths, self.border - 1, by, design.multiple)
        if lengths != self.lengths:
            # The list says how many subsequences there are.
            self.post_message(self.Moved(replace(design, split=lengths, subsequences=None), dragged))
            self.pulled = True

    # Mouse

    def on_mouse_down(self, event: events.MouseDown) -> None:
        lengths = self.lengths
        if len(lengths) < 2:
            return
        column = event.x - self.styles.padding.left
        marks = [round(mark / sum(lengths) * self.room) + GUTTER for mark in accumulate(lengths[:-1])]
        self.border = min(range(len(marks)), key=lambda number: abs(marks[number] - column)) + 1
        self.pulled = False
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.app.mouse_captured is not self or self.session is None:
            return
        wanted = (event.x - self.styles.padding.left - GUTTER) / self.room * sum(self.lengths)
        self.move(round(wanted) - sum(self.lengths[: self.border]), self.pulled)

    def on_mouse_up(self) -> None:
        self.release_mouse()
