"""Opening, saving and reloading, and the questions that belong to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from contraflow.designer.design import Design
from contraflow.designer.format import file

from . import session as sessions
from .autosave import Autosaving
from .faults import Faults, FaultsScreen, read
from .questions import YES_NO, NameQuestion, Question
from .session import Draft

LOOK = 1.0
"""Seconds from one look at the file on disk to the next."""
SUFFIX = ".schedule.json"

Then = Callable[[], None]


def nothing() -> None:
    """What to do next where there is nothing."""


class Files(Autosaving):
    """What has to do with the file that the session is about."""

    on_disk: tuple[int, int] | None = None
    """Time and size of the file when it was last read or written here."""

    @property
    def name_of_file(self) -> str:
        """For messages."""
        return self.session.path.name if self.session.path else "This design"

    # Open

    def action_open(self) -> None:
        """Choose another file, after a question where something is unsaved."""
        self.if_settled(self.choose_file, "open another file")

    def choose_file(self) -> None:
        """Let someone choose a file to open."""
        if self.has_class("-ascii"):
            self.push_screen(NameQuestion("Open", ""), self._open_named)
        else:
            from .picker import OpenDialog

            self.push_screen(OpenDialog(self.folder), self._open)

    def _open_named(self, name: str | None) -> None:
        self._open(None if name is None else Path(name).expanduser())

    def _open(self, path: Path | None) -> None:
        if path is not None:
            self.open_file(path)

    def open_file(self, path: Path) -> None:
        """Show a file, or its faults."""
        found = read(path)
        if isinstance(found, Faults):
            self.show_faults(found)
            return
        self.on_disk = stamp(path)
        self.ask(sessions.started(sessions.draft_of(found), path))
        self.say(f"opened {path}")

    def show_faults(self, faults: Faults) -> None:
        """A list of what is wrong with a file; reading it again replaces the list."""
        if isinstance(self.screen, FaultsScreen):
            self.pop_screen()
        self.push_screen(FaultsScreen(faults), self._open)

    def action_new(self) -> None:
        """A fresh design, after a question where something is unsaved."""

        def begin() -> None:
            self.on_disk = None
            self.ask(sessions.started(Draft(Design())))

        self.if_settled(begin, "begin anew")

    @property
    def folder(self) -> Path:
        """Where to look for files."""
        return self.session.path.parent if self.session.path else Path.cwd()

    # Reload

    def look_at_disk(self) -> None:
        """Reload a file that has changed on disk; where something is unsaved, ask first, once for each change."""
        path = self.session.path
        if path is None or self.on_disk is None or len(self.screen_stack) > 1:
            return
        now = stamp(path)
        if now is None or now == self.on_disk:
            return
        self.on_disk = now
        if not self.session.dirty:
            self.action_reload()
            return
        answers = (("r", "take what is on disk; undo brings yours back"), ("k", "keep what is shown"))
        self.push_screen(Question(f"{path.name} has changed on disk.", answers), self._reload)

    def _reload(self, answer: str | None) -> None:
        if answer == "r":
            self.action_reload()

    def action_reload(self) -> None:
        """Read the file again; the design that is shown can be had back by undo."""
        path = self.session.path
        if path is None:
            self.say("there is no file to read again: this design was never saved")
            return
        found = read(path)
        if isinstance(found, Faults):
            self.say(f"{path.name} has changed on disk and cannot be used: {found.title}")
            return
        self.on_disk = stamp(path)
        self.ask(sessions.reloaded(self.session, sessions.draft_of(found)))
        self.say(f"read {path} again")

    # Save

    def action_save(self) -> None:
        """Save under the file's name, or ask for one."""
        self.save()

    def action_save_as(self) -> None:
        """Save under another name."""
        self.save(ask_name=True)

    def save(self, then: Then = nothing, *, ask_name: bool = False) -> None:
        """Save what is shown, then go on; without a picture there is nothing to save."""
        if self.session.rough or (self.session.waiting and not self.session.refusal):
            self.finish()
        if self.session.stale:
            self.say("these knobs give no schedule: nothing was saved")
        elif self.session.path is not None and not ask_name:
            self.write(self.session.path, then)
        else:
            self.ask_for_file("Save as", self.proposal, lambda path: self.write(path, then))

    def ask_for_file(self, title: str, proposal: str, then: Callable[[Path], None]) -> None:
        """Ask for a file to write, and once more where it exists already."""

        def take(path: Path | None) -> None:
            if path is not None and path.exists():
                question = Question(f"{path.name} exists. Replace it?", YES_NO)
                self.push_screen(question, lambda answer: then(path) if answer == "y" else None)
            elif path is not None:
                then(path)

        if self.has_class("-ascii"):
            ask = NameQuestion(title, proposal)
            self.push_screen(ask, lambda name: take(None if name is None else Path(name).expanduser()))
        else:
            from .picker import SaveDialog

            self.push_screen(SaveDialog(self.folder, proposal, title), take)

    def finish(self) -> None:
        """Have the real picture now: what is written must be what the knobs give."""
        self.session = sessions.answered(self.session, sessions.answer(self.session.draft))

    @property
    def proposal(self) -> str:
        """A name for the file."""
        if self.session.path is not None:
            return self.session.path.name
        assert self.session.picture is not None
        return self.session.picture.preview.schedule.name.replace(" ", "-") + SUFFIX

    def write(self, path: Path, then: Then = nothing) -> None:
        """Write the schedule that is shown."""
        if self.session.picture is None:
            return
        try:
            file.write(self.session.picture.preview.schedule, path)
        except (OSError, ValueError) as error:
            self.say(f"{path} cannot be written: {getattr(error, 'strerror', error)}")
            return
        self.session = sessions.saved(self.session, path)
        self.on_disk = stamp(path)
        self.say(f"saved {path}")
        then()

    # Leave

    async def action_quit(self) -> None:
        """Leave, asking first where something is unsaved."""
        self.if_settled(self.exit, "quit")

    def if_settled(self, then: Then, what: str) -> None:
        """Go on if nothing is unsaved, or once someone has said what is to become of it."""
        if not self.session.dirty:
            then()
            return

        def take(answer: str | None) -> None:
            if answer == "s":
                self.save(then)
            elif answer == "q":
                then()

        answers = (("s", f"save and {what}"), ("q", f"{what} without saving"), ("c", "stay here"))
        self.push_screen(Question(f"{self.name_of_file} has changes that are not saved.", answers), take)


def stamp(path: Path) -> tuple[int, int] | None:
    """Time and size of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
