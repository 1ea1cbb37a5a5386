"""The knobs at the left: a line for each, changed by keys, by typing and by mouse."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.reactive import reactive, var
from textual.widget import Widget
from textual.widgets import Static

from contraflow.designer.design import Design

from . import session as sessions
from . import typed
from .chooser import Chooser
from .knobs import CAP, KNOBS, Knob
from .session import CHART, Session
from .typed import Slip

LABEL = 15
"""Columns of a knob's label; its value has the rest."""


class KnobLine(Widget, can_focus=True):
    """One knob: label and value, and what is being typed over it."""

    DEFAULT_CSS = """
    KnobLine { height: 1; width: 1fr; }
    KnobLine:hover { background: $surface-lighten-1; }
    KnobLine:focus { background: $primary 35%; }
    """

    BINDINGS = [
        Binding(
            "left,minus", "turn(-1)", "Less", key_display="-", tooltip="One step down, or the value before"
        ),
        Binding("right,plus", "turn(1)", "More", key_display="+", tooltip="One step up, or the next value"),
        Binding("enter", "open", "Choose", tooltip="A list of all values, or start typing one"),
        Binding(
            "escape", "app.other_side", "Chart", key_display="esc", tooltip="From the knobs to the chart"
        ),
        Binding("delete,backspace", "rest", "Default", show=False, tooltip="Back to the generator's default"),
        Binding("up", "go(-1)", "Knob above", show=False),
        Binding("down", "go(1)", "Knob below", show=False),
    ]

    PLACE = "knobs"

    session: var[Session | None] = var(None)
    value: reactive[tuple[str, bool]] = reactive(("", True))
    """What the knob stands on, in words, and whether that is the generator's default."""
    typing: reactive[str | None] = reactive(None)

    class Turned(Message):
        """Someone asked for this design by this knob."""

        def __init__(self, knob: Knob, design: Design) -> None:
            super().__init__()
            self.knob, self.design = knob, design

    class Slipped(Message):
        """What was typed is no value of this knob."""

        def __init__(self, knob: Knob, message: str) -> None:
            super().__init__()
            self.knob, self.message = knob, message

    def __init__(self, knob: Knob, arrows: str) -> None:
        super().__init__(id=knob.name.replace("_", "-"))
        self.knob, self.arrows = knob, arrows

    @property
    def design(self) -> Design:
        """The knobs as they stand."""
        return self.session.draft.design if self.session else Design()

    def watch_session(self) -> None:
        self.value = (self.knob.shown(self.design), self.knob.at_rest(self.design))
        self.disabled = not self.knob.applies(self.design)
        self.set_class(self.disabled, "-idle")

    def render(self) -> Text:
        text = Text(f" {self.knob.label}".ljust(LABEL), no_wrap=True, overflow="crop")
        room = max(self.size.width - LABEL - 5, 1)
        left, right = tuple(self.arrows[:2]) if self.knob.turned else (" ", " ")
        if self.disabled:
            return text.append(f"  {'-':^{room}}")
        if self.typing is not None:
            return text.append(f"  {self.typing[-room + 1 :]}").append(" ", "reverse")
        value, at_rest = self.value
        if len(value) > room:
            value = value[: room - 1] + self.arrows[2]
        text.append(f"{left} ", "dim")
        text.append(f"{value:^{room}}", "" if at_rest else "bold")
        return text.append(f" {right}", "dim")

    def enter(self, text: str) -> None:
        """Take what was typed or chosen."""
        try:
            self.post_message(self.Turned(self.knob, self.knob.typed(self.design, text)))
        except Slip as slip:
            self.post_message(self.Slipped(self.knob, str(slip)))

    def action_turn(self, by: int) -> None:
        """One step up (1) or down (-1)."""
        if self.knob.turned:
            self.post_message(self.Turned(self.knob, self.knob.turned(self.design, by)))

    def action_rest(self) -> None:
        """Back to the generator's default."""
        if self.knob.rested:
            self.post_message(self.Turned(self.knob, self.knob.rested(self.design)))

    def action_go(self, by: int) -> None:
        """To the knob above (-1) or below (1)."""
        (self.screen.focus_next if by > 0 else self.screen.focus_previous)(KnobLine)

    def action_open(self) -> None:
        """A list of all values where there is one; else start typing."""
        if self.knob.choices is None:
            self.typing = ""
            return

        def take(name: str | None) -> None:
            if name is not None:
                self.enter(name)

        self.app.push_screen(
            Chooser(self.knob.label, self.knob.choices(), self.knob.shown(self.design)), take
        )

    def on_key(self, event: events.Key) -> None:
        text, character = self.typing, event.character or ""
        match event.key:
            case _ if text is None:
                if not character.isalnum():
                    return
                self.typing = character
            case "enter" | "tab" | "up" | "down":
                self.typing = None
                if text:
                    self.enter(text)
                if event.key != "enter":
                    return
            case "escape":
                self.typing = None
            case "backspace":
                self.typing = text[:-1]
            case _ if event.is_printable:
                self.typing = text + character
            case _:
                return
        event.stop()
        event.prevent_default()

    def on_blur(self) -> None:
        self.typing = None

    def on_click(self, event: events.Click) -> None:
        if self.knob.turned and LABEL <= event.x + 1 <= LABEL + 2:
            self.action_turn(-1)
        elif self.knob.turned and event.x >= self.size.width - 3:
            self.action_turn(1)
        else:
            self.action_open()


class CapLine(KnobLine):
    """The memory cap: it belongs to what is shown, not to the design."""

    class Capped(Message):
        """Someone asked for this cap; empty for none."""

        def __init__(self, cap: str) -> None:
            super().__init__()
            self.cap = cap

    def watch_session(self) -> None:
        cap = self.session.cap if self.session else ""
        self.value = (cap or typed.NO_CAP, not cap)

    def enter(self, text: str) -> None:
        try:
            self.post_message(self.Capped(typed.cap(text)))
        except Slip as slip:
            self.post_message(self.Slipped(self.knob, str(slip)))

    def action_turn(self, by: int) -> None:
        if self.session is not None:
            self.post_message(self.Capped(sessions.cap_beside(self.session, by)))

    def action_rest(self) -> None:
        self.post_message(self.Capped(""))


class Inspector(VerticalScroll, can_focus=False):
    """All knobs, and under the one turned last why it was refused."""

    DEFAULT_CSS = """
    Inspector { width: 36; height: 1fr; background: $surface; scrollbar-size: 1 1; }
    Inspector #refusal { color: $text-error; background: $error-muted; padding: 0 1; height: auto; display: none; }
    """

    session: var[Session | None] = var(None)

    def __init__(self, arrows: str) -> None:
        super().__init__()
        self.arrows = arrows
        self.placed: object = None

    def compose(self) -> ComposeResult:
        for knob in KNOBS:
            yield KnobLine(knob, self.arrows).data_bind(Inspector.session)
        yield CapLine(CAP, self.arrows).data_bind(Inspector.session)
        yield Static(id="refusal", markup=False)

    def watch_session(self, session: Session | None) -> None:
        if self.is_mounted and session is not None:
            self.place_refusal(session)

    def on_resize(self) -> None:
        if self.session is not None:
            self.place_refusal(self.session)

    def place_refusal(self, session: Session) -> None:
        """Put the refusal under the knob that was turned last; in two columns it spans both."""
        narrow = self.screen.has_class("-narrow")
        # Laying out takes longer than all the rest of a turn: only where something moves.
        refused = session.refusal if session.turned != CHART else ""
        placed = (refused, session.turned, narrow, self.size.width) if refused else None
        if placed == self.placed:
            return
        self.placed = placed
        refusal = self.query_one("#refusal", Static)
        refusal.display = bool(refused)
        lines = [
            line
            for line in self.query(KnobLine)
            if not narrow or line.knob.applies(session.draft.design) or line.knob.name == session.turned
        ]
        rows = ["1"] * len(lines)
        if refused:
            refusal.update(refused)
            place = next(
                (n for n, line in enumerate(lines) if line.knob.name == session.turned), len(lines) - 1
            )
            # A grid would measure it by the width of one column.
            width = max(self.size.width - 2, 20)
            rows.insert(place // 2 + 1, f"{len(Text(refused).wrap(self.app.console, width))}")
            self.move_child(refusal, after=lines[min(place | 1, len(lines) - 1) if narrow else place])
            refusal.scroll_visible(animate=False)
        self.styles.grid_rows = " ".join(rows)
