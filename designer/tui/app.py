"""The terminal interface: turn knobs, see the chart at once, save what you see."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from rich.text import Text
from textual import events, on, work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.filter import Monochrome
from textual.reactive import var
from textual.screen import Screen
from textual.widgets import Footer, Static

from contraflow.designer.design import Design
from contraflow.designer.export.glyphs import glyphs
from contraflow.designer.format import file
from contraflow.designer.format.fault import InvalidScheduleError, NotAScheduleError

from . import session as sessions
from .gantt import Gantt
from .header import Header
from .inspector import Inspector, KnobLine
from .knobs import Knob
from .pane import Pane
from .questions import YES_NO, NameQuestion, Question
from .session import Draft, Picture, Refusal, Session
from .status import Status
from .view import described

INLINE = 5000
"""Up to so many actions are simulated between a key and its frame; more in a thread."""
MIN_COLUMNS, MIN_ROWS = 60, 16


class Designer(App[None]):
    """One reactive session; everything on the screen draws from it."""

    TITLE = "Contraflow"
    CSS = """
    #body { layout: horizontal; height: 1fr; }
    #small { display: none; width: 100%; height: 100%; content-align: center middle; text-align: center; }
    .-narrow #body { layout: vertical; }
    .-narrow Inspector { layout: grid; grid-size: 2; grid-rows: auto; width: 100%; height: auto; max-height: 9; }
    .-narrow KnobLine.-idle { display: none; }
    .-narrow #refusal { column-span: 2; }
    .-tiny #small, .-short #small { display: block; }
    .-tiny #body, .-tiny Header, .-tiny Footer, .-tiny Status { display: none; }
    .-short #body, .-short Header, .-short Footer, .-short Status { display: none; }
    .-ascii * { scrollbar-size: 0 0; }
    .-ascii Question Vertical, .-ascii NameQuestion Vertical, .-ascii Chooser OptionList { border: ascii $primary; }
    #faults { padding: 1 2; height: 1fr; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (MIN_COLUMNS, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (MIN_ROWS, "-tall")]
    BINDINGS = [
        Binding("ctrl+s", "save", "Save"),
        Binding("ctrl+z", "undo", "Undo"),
        Binding("ctrl+y", "redo", "Redo", show=False),
        Binding("ctrl+q", "quit", "Quit"),
    ]

    session: var[Session | None] = var(None)

    def __init__(
        self, session: Session | None, *, faults: Sequence[str] = (), ascii: bool = False, mono: bool = False
    ) -> None:
        super().__init__()
        self.glyphs = glyphs(color=not (mono or self.no_color), ascii=ascii)
        self.faults = faults
        self.working = False
        if mono and not self.no_color:
            self._filters.append(Monochrome())
        self.set_reactive(Designer.session, session)
        self.set_class(ascii, "-ascii")

    def compose(self) -> ComposeResult:
        if self.session is None:
            with VerticalScroll(id="faults"):
                yield Static(Text("\n".join(self.faults)))
        else:
            arrows = "<>~" if self.glyphs.ascii else "◂▸…"
            yield Header(self.glyphs).data_bind(Designer.session)
            with Container(id="body"):
                yield Inspector(arrows).data_bind(Designer.session)
                yield Pane(self.glyphs).data_bind(Designer.session)
            yield Status()
        yield Static(id="small", markup=False)
        # The palette's key brings a line of block characters with it.
        yield Footer(show_command_palette=not self.glyphs.ascii)

    def on_mount(self) -> None:
        if self.session is not None:
            self.query(KnobLine).first().focus()
            self.ask(self.session)

    def on_resize(self, event: events.Resize) -> None:
        self.query_one("#small", Static).update(
            f"Contraflow needs {MIN_COLUMNS} columns and {MIN_ROWS} rows;\n"
            f"this window has {event.size.width} and {event.size.height}."
        )

    @property
    def name_of_file(self) -> str:
        """For messages."""
        return self.session.path.name if self.session and self.session.path else "This design"

    def watch_session(self, old: Session | None, new: Session | None) -> None:
        if old is not None and new is not None and old.draft is not new.draft:
            self.say(self.resting_status())

    def resting_status(self) -> str:
        """What the status line says while nothing is pointed at."""
        if self.session is not None and self.session.draft.parted:
            return f"{self.name_of_file} has parted from its knobs: turning one makes another program"
        return ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.session is not None or action not in ("save", "undo", "redo")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield from super().get_system_commands(screen)
        if self.session is not None:
            yield SystemCommand("Save", "Write the schedule that is shown", self.action_save)
            yield SystemCommand("Undo", "The design before", self.action_undo)
            yield SystemCommand("Redo", "The design that was undone", self.action_redo)

    def say(self, text: str) -> None:
        """Put a line above the footer."""
        self.query_one(Status).text = text

    # From knobs to picture

    def ask(self, session: Session) -> None:
        """Show a session, and see to it that its draft gets its picture."""
        if session.stale and not session.refusal and session.draft.size <= INLINE:
            session = sessions.answered(session, sessions.answer(session.draft))
        self.session = session
        # One thread at a time: holding a key down must not queue a simulation for every repeat.
        if session.waiting and not self.working:
            self.working = True
            self.answer_in_thread(session.draft)

    @work(thread=True)
    def answer_in_thread(self, draft: Draft) -> None:
        """Work a large draft out beside the screen."""
        found = sessions.answer(draft)
        self.call_from_thread(self.take, found)

    def take(self, found: Picture | Refusal) -> None:
        """An answer from the thread; if a newer draft is waiting, it is next."""
        self.working = False
        if self.session is not None:
            self.ask(sessions.answered(self.session, found))

    @on(KnobLine.Turned)
    def turn(self, event: KnobLine.Turned) -> None:
        if self.session is None:
            return
        if not self.session.draft.parted or event.knob.name == "costs":
            self.apply(event.knob, event.design)
            return
        text = (
            f"{self.name_of_file} has parted from its knobs. Turn `{event.knob.label}` and make a new program?\n"
            "Undo brings the file's program back."
        )
        self.push_screen(Question(text, YES_NO), partial(self._if_yes, event.knob, event.design))

    def _if_yes(self, knob: Knob, design: Design, answer: str | None) -> None:
        if answer == "y":
            self.apply(knob, design)

    def apply(self, knob: Knob, design: Design) -> None:
        """A knob was turned, and that is meant."""
        if self.session is not None:
            self.ask(sessions.turned(self.session, knob.name, design))

    @on(KnobLine.Slipped)
    def slip(self, event: KnobLine.Slipped) -> None:
        if self.session is not None:
            self.session = sessions.slipped(self.session, event.knob.name, event.message)

    def action_undo(self) -> None:
        """The draft before."""
        if self.session is not None:
            self.ask(sessions.undone(self.session))

    def action_redo(self) -> None:
        """The draft that was undone."""
        if self.session is not None:
            self.ask(sessions.redone(self.session))

    @on(Gantt.Pointed)
    def describe(self, event: Gantt.Pointed) -> None:
        picture = self.session.picture if self.session else None
        if picture is not None and event.place is not None:
            self.say(described(picture.chart, event.place))
        else:
            self.say(self.resting_status())

    def action_other_side(self) -> None:
        """From the knobs to the chart, and back to the knob that was turned last."""
        if self.session is None:
            return
        if isinstance(self.focused, KnobLine):
            self.query_one(Gantt).focus()
        else:
            self.query_one(f"#{self.session.turned.replace('_', '-')}", KnobLine).focus()

    # Files

    def action_save(self) -> None:
        """Save under the file's name, or ask for one."""
        self.save()

    def save(self, then: Callable[[], None] = lambda: None) -> None:
        """Save what is shown, then go on; without a picture there is nothing to save."""
        if self.session is None:
            return
        if self.session.stale:
            self.say("these knobs give no schedule: nothing was saved")
        elif self.session.path is not None:
            self.write(self.session.path, then)
        else:
            assert self.session.picture is not None
            proposal = self.session.picture.preview.schedule.name.replace(" ", "-") + ".schedule.json"
            self.push_screen(NameQuestion("Save as", proposal), partial(self._save_as, then))

    def _save_as(self, then: Callable[[], None], name: str | None) -> None:
        if name is None:
            return
        path = Path(name).expanduser()
        if not path.exists():
            self.write(path, then)
            return

        def replace(answer: str | None) -> None:
            if answer == "y":
                self.write(path, then)

        self.push_screen(Question(f"{name} exists. Replace it?", YES_NO), replace)

    def write(self, path: Path, then: Callable[[], None]) -> None:
        """Write the schedule that is shown."""
        if self.session is None or self.session.picture is None:
            return
        try:
            file.write(self.session.picture.preview.schedule, path)
        except (OSError, ValueError) as error:
            self.say(f"{path} cannot be written: {getattr(error, 'strerror', error)}")
            return
        self.session = sessions.saved(self.session, path)
        self.say(f"saved {path}")
        then()

    async def action_quit(self) -> None:
        """Leave, asking first where something is unsaved."""
        if self.session is None or not self.session.dirty:
            self.exit()
            return
        answers = (("s", "save and quit"), ("q", "quit without saving"), ("c", "stay here"))
        self.push_screen(
            Question(f"{self.name_of_file} has changes that are not saved.", answers), self._quit
        )

    def _quit(self, answer: str | None) -> None:
        if answer == "s":
            self.save(self.exit)
        elif answer == "q":
            self.exit()


def opened(path: Path | None, *, ascii: bool = False, mono: bool = False) -> Designer:
    """The interface about a file, or about a fresh design; a file that is no valid schedule shows its faults."""
    try:
        session = sessions.opened(path) if path else sessions.started(Draft(Design()))
    except NotAScheduleError as error:
        return Designer(None, faults=[str(error)], ascii=ascii, mono=mono)
    except InvalidScheduleError as error:
        count = len(error.faults)
        title = f"{path} cannot be used: {count} fault{'' if count == 1 else 's'}"
        return Designer(None, faults=[title, "", *map(str, error.faults)], ascii=ascii, mono=mono)
    return Designer(session, ascii=ascii, mono=mono)


def run(path: Path | None, *, ascii: bool = False, mono: bool = False) -> None:
    """Open the interface, and come back when it is closed."""
    opened(path, ascii=ascii, mono=mono or "NO_COLOR" in os.environ).run()
