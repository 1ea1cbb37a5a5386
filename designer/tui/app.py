"""The terminal interface: turn knobs, see the chart at once, save what you see."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from textual import events, on
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.filter import Monochrome
from textual.reactive import var
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Static

from contraflow.designer.design import Design
from contraflow.designer.export.glyphs import glyphs

from . import session as sessions
from .commands import commands
from .editing import Editing
from .endings import Endings
from .exporting import Exporting
from .faults import Faults, read
from .files import LOOK, stamp
from .gantt import Gantt
from .header import Header
from .help import Help
from .inspector import Inspector, KnobLine
from .pane import Pane
from .searching import Searching
from .session import Draft, Session
from .split_bar import SplitBar
from .status import Status
from .style import AREAS_STYLE
from .tabs import AREAS, Tabs
from .telling import Telling
from .themes import DARK, THEMES, next_theme

MIN_COLUMNS, MIN_ROWS = 60, 16

EARLIER = "The action under the cursor one place earlier on its device"
LATER = "The action under the cursor one place later on its device"
ON_CHART = ("move_action", "other_way", "halve")
"""Actions that mean what the chart's cursor points at."""
ON_DESIGN = ("save", "save_as", "reload", "undo", "redo", "area", "other_side", "pin", "search", "export")
"""Actions that mean the design, and want it in view."""


class Designer(Editing, Exporting, Searching, Telling, Endings):
    """The areas of the screen, and the keys that work in all of them."""

    TITLE = "Contraflow"
    CSS = AREAS_STYLE
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (MIN_COLUMNS, "-narrow"), (100, "-medium"), (160, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (MIN_ROWS, "-low"), (34, "-high")]
    BINDINGS = [
        Binding("f1,question_mark", "help", "Help", key_display="f1", tooltip="What this is, and every key"),
        Binding("ctrl+s", "save", "Save", tooltip="Write the schedule that is shown"),
        Binding("f12", "save_as", "Save as", show=False, tooltip="Write it under another name"),
        Binding("ctrl+o", "open", "Open", show=False, tooltip="Another schedule file"),
        Binding("ctrl+n", "new", "New", show=False, tooltip="A fresh design"),
        Binding("ctrl+r", "reload", "Read again", show=False, tooltip="Take what is on disk"),
        Binding("ctrl+z", "undo", "Undo", tooltip="The design before; there is no end to it"),
        Binding("ctrl+y", "redo", "Redo", show=False, tooltip="The design that was undone"),
        *(
            Binding(key, f"area('{area}')", area.capitalize(), show=False, tooltip=f"To the {area}")
            for area, key in AREAS.items()
        ),
        Binding("less_than_sign,shift+left", "move_action(-1)", "Earlier", key_display="<", tooltip=EARLIER),
        Binding("greater_than_sign,shift+right", "move_action(1)", "Later", key_display=">", tooltip=LATER),
        Binding("d", "other_way", "Other way", tooltip="Send its microbatch in the other direction"),
        Binding("w", "halve", "B / I W", tooltip="The backward in two halves, or whole again"),
        Binding(
            "f7,a", "pin", "Pin A", key_display="f7", tooltip="Compare what comes with this one, or no longer"
        ),
        Binding(
            "f8", "search", "Search", show=False, tooltip="Begin a search for a better program, or end it"
        ),
        Binding("f9", "export", "Export", show=False, tooltip="A picture, or another tool's format"),
        Binding("ctrl+t", "next_theme", "Next theme", show=False, tooltip="Dark, light, high contrast"),
        Binding("ctrl+q", "quit", "Quit", tooltip="Leave, after a question where something is unsaved"),
    ]
    PLACE = "everywhere"

    session: var[Session] = var(sessions.started(Draft(Design())))
    area: var[str] = var("knobs", init=False)
    """The part of the screen that is shown where there is room for one, and used last."""

    def __init__(
        self, session: Session, *, faults: Faults | None = None, ascii: bool = False, mono: bool = False
    ) -> None:
        super().__init__(session)
        self.glyphs = glyphs(color=not (mono or self.no_color), ascii=ascii)
        self.faults = faults
        self.small = False
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = DARK.name
        if mono and not self.no_color:
            self._filters.append(Monochrome())
        self.set_class(ascii, "-ascii")

    def compose(self) -> ComposeResult:
        arrows = "<>~" if self.glyphs.ascii else "◂▸…"
        yield Header(self.glyphs).data_bind(Designer.session)
        yield Tabs()
        with Horizontal(id="body"):
            yield Inspector(arrows).data_bind(Designer.session)
            with Vertical(id="middle"):
                yield Pane(self.glyphs).data_bind(Designer.session)
            yield Static(id="details", markup=False)
        yield SplitBar(self.glyphs).data_bind(Designer.session)
        yield Status()
        yield Static(id="small", markup=False)
        # The palette's key brings a line of block characters with it.
        yield Footer(show_command_palette=not self.glyphs.ascii)

    def on_mount(self) -> None:
        self.heed_signals()
        self.watch_area()
        self.call_after_refresh(self.focus_area, self.area)
        self.ask(self.session)
        if self.session.path is not None:
            self.on_disk = stamp(self.session.path)
        self.set_interval(LOOK, self.look_at_disk)
        if self.faults is not None:
            self.show_faults(self.faults)
        else:
            self.offer_recovery()

    def on_resize(self, event: events.Resize) -> None:
        columns, rows = event.size
        self.screen_stack[0].query_one("#small", Static).update(
            f"Contraflow needs {MIN_COLUMNS} columns and {MIN_ROWS} rows;\nthis window has {columns} and {rows}."
        )
        was_small, self.small = self.small, columns < MIN_COLUMNS or rows < MIN_ROWS
        if was_small and not self.small:
            # What is hidden loses the focus.
            self.call_after_refresh(self.focus_area, self.area)

    # What the status line says

    def watch_session(self, old: Session, new: Session) -> None:
        if (old.draft, old.saved, old.refusal) != (new.draft, new.saved, new.refusal):
            self.note(new)
        if new.refusal and new.refusal != old.refusal:
            self.say(new.refusal)
        elif old.draft is not new.draft or old.picture is not new.picture:
            self.say(self.resting_status())
        if new.pinned and (old.pinned, old.picture) != (new.pinned, new.picture):
            self.tell_details()

    # Areas

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        area = area_of(event.widget)
        # The details are read while the chart has the focus.
        if area is not None and not self.small and (self.area, area) != ("details", "chart"):
            self.area = area
        if isinstance(event.widget, KnobLine):
            self.say(self.resting_status())

    def watch_area(self) -> None:
        screen = self.screen_stack[0]
        for area in AREAS:
            screen.set_class(area == self.area, f"-at-{area}")
        screen.query_one(Tabs).current = self.area

    @on(Tabs.Chosen)
    def choose_area(self, event: Tabs.Chosen) -> None:
        self.action_area(event.area)

    def action_area(self, area: str) -> None:
        """Show an area of the screen, and put the focus there."""
        self.area = area
        self.call_after_refresh(self.focus_area, area)

    def focus_area(self, area: str) -> None:
        """Put the focus on an area that is shown."""
        if area == "knobs":
            name = self.session.turned.replace("_", "-")
            lines = [*self.query(f"KnobLine#{name}"), *self.query(KnobLine)]
            next(line for line in lines if line.focusable).focus()
        else:
            self.query_one(SplitBar if area == "borders" else Gantt).focus()

    def action_other_side(self) -> None:
        """From the knobs to the chart, and back to the knob that was turned last."""
        self.action_area("chart" if isinstance(self.focused, KnobLine) else "knobs")

    def action_pin(self) -> None:
        """Let the picture be A; or let A go."""
        self.session = sessions.pinned(self.session)
        pinned = self.session.pinned
        self.say(
            "compared with nothing"
            if pinned is None
            else f"A is {pinned.preview.schedule.name}: turn on to compare"
        )

    # Help, palette, themes

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ON_CHART:
            return isinstance(self.focused, Gantt)
        # A file's faults hide the design: what would change it unseen waits.
        return len(self.screen_stack) == 1 or action not in ON_DESIGN

    def get_key_display(self, binding: Binding) -> str:
        shown = super().get_key_display(binding)
        return binding.key if self.glyphs.ascii and not shown.isascii() else shown

    def action_help(self) -> None:
        """What the place with the focus is for, and every key."""
        focused = self.screen.focused
        about = f"{focused.knob.label}: {focused.knob.meaning}" if isinstance(focused, KnobLine) else ""
        self.push_screen(Help(about, commands(self.screen)))

    def action_next_theme(self) -> None:
        """The theme after the present one."""
        self.theme = next_theme(self.theme)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for command in commands(screen):
            title = (
                command.description
                if command.place == self.PLACE
                else f"{command.place}: {command.description}"
            )
            run = partial(self.run_action, command.action, command.node)
            yield SystemCommand(title, f"{command.tooltip}  {' '.join(command.keys)}", run)
        for theme in THEMES:
            yield SystemCommand(f"Theme: {theme.name}", "", partial(setattr, self, "theme", theme.name))
        for line in screen.query(KnobLine):
            if line.focusable:
                go = partial(self.call_after_refresh, line.focus)
                yield SystemCommand(f"Knob: {line.knob.label}", line.knob.meaning, go)


def area_of(widget: Widget) -> str | None:
    """The area of the screen that a widget belongs to."""
    for node in widget.ancestors_with_self:
        if isinstance(node, Inspector):
            return "knobs"
        if isinstance(node, SplitBar):
            return "borders"
        if isinstance(node, Pane):
            return "chart"
    return None


def opened(path: Path | None, *, ascii: bool = False, mono: bool = False) -> Designer:
    """The interface about a file, or about a fresh design; a file that is no valid schedule shows its faults."""
    fresh = sessions.started(Draft(Design()))
    if path is None:
        return Designer(fresh, ascii=ascii, mono=mono)
    found = read(path)
    if isinstance(found, Faults):
        return Designer(fresh, faults=found, ascii=ascii, mono=mono)
    return Designer(sessions.started(sessions.draft_of(found), path), ascii=ascii, mono=mono)


def run(path: Path | None, *, ascii: bool = False, mono: bool = False) -> int:
    """Open the interface, and come back with an exit code when it is closed."""
    designer = opened(path, ascii=ascii, mono=mono or "NO_COLOR" in os.environ)
    designer.run()
    if not designer.last_words or not designer.session.dirty:
        designer.journal.close()
    designer.speak()
    return designer.return_code or 0
