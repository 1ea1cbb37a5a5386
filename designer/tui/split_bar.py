"""The split bar: a sequence as a line, cut where its borders are; they move by key and by mouse."""

from __future__ import annotations

from itertools import accumulate

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.reactive import reactive, var
from textual.widget import Widget

from contraflow.designer.design import Design
from contraflow.designer.export.glyphs import Glyphs
from contraflow.designer.export.text import percent

from .borders import Part, cut_by_hand, cut_by_rule, moved, parts, stepped
from .session import Session

GUTTER = 6
"""Columns of what the lines are called."""
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
        self._parts: tuple[object, tuple[Part, ...]] = (None, ())

    # What is shown

    @property
    def parts(self) -> tuple[Part, ...]:
        """The subsequences of the picture, worked out once for each."""
        picture = self.session.picture if self.session else None
        if picture is not self._parts[0]:
            found = parts(picture.preview, picture.draft.design.costs or "unit") if picture else ()
            self._parts = picture, found
        return self._parts[1]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the draft, where that lists them; else of the picture."""
        draft = self.session.draft if self.session else None
        split = draft.design.split if draft and not draft.program else ""
        return split if isinstance(split, tuple) else tuple(part.stop - part.start for part in self.parts)

    @property
    def room(self) -> int:
        """Columns of a whole sequence."""
        return max(self.size.width - GUTTER, 1)

    def watch_session(self) -> None:
        self.border = min(max(self.border, 1), max(len(self.lengths) - 1, 1))
        self.set_class(len(self.lengths) > 1, "-cut")
        self.refresh()

    def render(self) -> Text:
        found = self.parts
        if len(found) < 2 or self.session is None:
            return Text("sequences are not cut here: a generator that cuts them has borders to move", "dim")
        total = found[-1].stop
        edges = [0, *(round(part.stop / total * self.room) for part in found)]
        rows = {
            "tokens": [f"{part.stop - part.start}" for part in found],
            "work": [percent(part.work) for part in found],
            "holds": [part.held for part in found],
            "time": [percent(part.time) for part in found],
        }
        lines = [self._title(found)]
        for number, (name, words) in enumerate(rows.items()):
            line = Text(f"{name:<{GUTTER}}", "dim", no_wrap=True)
            for q, word in enumerate(words):
                width = edges[q + 1] - edges[q]
                shown = f"{word:^{width}}" if len(word) < width else " " * width
                opened = self.border == q and q > 0
                tone = TONES[q % 2] if self.glyphs.solid else Style(reverse=bool(q % 2))
                line.append(shown[:1], Style(reverse=True, bold=True) if opened and self.has_focus else tone)
                line.append(
                    shown[1:], tone if number == 0 or self.glyphs.solid else Style(reverse=bool(q % 2))
                )
            lines.append(line)
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    def _title(self, found: tuple[Part, ...]) -> Text:
        assert self.session is not None
        design = self.session.draft.design
        here = found[min(self.border, len(found) - 1)].start
        how = design.split if isinstance(design.split, str) else "by hand"
        joint = f" {self.glyphs.dot} "
        return Text(joint, no_wrap=True, overflow="ellipsis").join(
            [
                Text(f"split {how}", "bold"),
                Text(f"border {self.border} at token {here}"),
                Text(f"moves by {design.multiple}", "dim"),
            ]
        )

    # Keys

    def action_move(self, by: int) -> None:
        """The chosen border so many multiples to the right."""
        if self.session is not None and len(self.lengths) > 1:
            design = self.session.draft.design
            lengths = stepped(self.lengths, self.border, by, design.multiple)
            self.post_message(self.Moved(cut_by_hand(design, lengths)))

    def action_choose(self, by: int) -> None:
        """Another border."""
        self.border = min(max(self.border + by, 1), max(len(self.lengths) - 1, 1))

    def action_rule(self, rule: str) -> None:
        """All borders by a rule."""
        if self.session is not None:
            self.post_message(self.Moved(cut_by_rule(self.session.draft.design, rule)))

    # Mouse

    def token_at(self, column: int) -> int:
        """The token under a column of the widget, on a multiple."""
        total, multiple = sum(self.lengths), self.session.draft.design.multiple if self.session else 1
        return round((column - GUTTER) / self.room * total / multiple) * multiple

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
        lengths = moved(self.lengths, self.border, self.token_at(event.x - self.styles.padding.left))
        if lengths != self.lengths:
            self.post_message(self.Moved(cut_by_hand(self.session.draft.design, lengths), self.pulled))
            self.pulled = True

    def on_mouse_up(self) -> None:
        self.release_mouse()
