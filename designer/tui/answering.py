"""From knobs to picture: small designs at once, large and laborious ones beside the screen."""

from __future__ import annotations

from textual import work
from textual.app import App
from textual.reactive import var
from textual.timer import Timer

from . import session as sessions
from .session import Draft, Picture, Refusal, Session
from .status import Status

INLINE = 5000
"""Up to so many actions are simulated between a key and its frame; more in a thread."""

QUIET = 0.15
"""Seconds without a turn after which a rough picture is replaced by the real one."""


class Answering(App[None]):
    """One reactive session; everything on the screen draws from it."""

    session: var[Session]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.set_reactive(type(self).session, session)
        self.working = False
        self.real_one: Timer | None = None

    def say(self, text: str) -> None:
        """Put a line above the footer."""
        self.screen_stack[0].query_one(Status).text = text

    def ask(self, session: Session) -> None:
        """Show a session, and see to it that its draft gets its picture."""
        draft = session.draft
        if session.stale and not session.refusal and draft.size <= INLINE and not draft.laboured:
            session = sessions.answered(session, sessions.answer(draft))
        self.session = session
        if session.waiting:
            # Behind the keys that are there already: holding one down shows the last of them, not every one.
            self.call_later(self.catch_up)

    def catch_up(self) -> None:
        """Answer the newest draft, unless that is done."""
        draft = self.session.draft
        if self.session.stale and self.session.waiting and draft.size <= INLINE:
            self.session = sessions.answered(self.session, sessions.answer(draft, rough=True))
            if self.session.rough:
                self.wait_for_quiet()
        elif self.session.waiting and not self.session.rough:
            self.begin()

    def wait_for_quiet(self) -> None:
        """Begin with the real picture once nobody turns anything any more."""
        if self.real_one is not None:
            self.real_one.stop()
        self.real_one = self.set_timer(QUIET, self.begin)

    def begin(self) -> None:
        """Work the draft out in the thread; one at a time, the newest next."""
        if self.session.waiting and not self.working:
            self.working = True
            self.answer_in_thread(self.session.draft)

    @work(thread=True)
    def answer_in_thread(self, draft: Draft) -> None:
        """Work a draft out beside the screen."""
        found = sessions.answer(draft)
        self.call_from_thread(self.take, found)

    def take(self, found: Picture | Refusal) -> None:
        """An answer from the thread; if a newer draft is waiting, it is next."""
        self.working = False
        self.session = sessions.answered(self.session, found)
        if self.session.waiting:
            self.begin()

    def action_undo(self) -> None:
        """The draft before."""
        self.ask(sessions.undone(self.session))

    def action_redo(self) -> None:
        """The draft that was undone."""
        self.ask(sessions.redone(self.session))
