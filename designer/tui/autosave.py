"""What is unsaved is noted in a journal as it comes, and offered again where a session ended before it was saved."""

from __future__ import annotations

from functools import partial

from contraflow.designer import journal
from contraflow.designer.design import Design
from contraflow.designer.journal import Journal, Lost

from . import session as sessions
from .answering import Answering
from .questions import Question
from .session import Draft, Session


class Autosaving(Answering):
    """Keeps the journal of this session."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.journal = Journal(journal.folder())

    def note(self, session: Session) -> None:
        """Note a session's draft, if it is unsaved; of a refused one the last that gave a schedule."""
        draft = session.picture.draft if session.refusal and session.picture else session.draft
        if draft is session.saved:
            failure = self.journal.saved()
        else:
            failure = self.journal.note(draft.program or draft.design, session.path)
        if failure:
            self.notify(failure, severity="warning", markup=False)

    def offer_recovery(self) -> None:
        """Ask what is to become of the newest work that a session left behind."""
        left = next((left for left in journal.lost(journal.folder()) if self.concerns(left)), None)
        if left is None:
            return
        where = "in no file yet" if left.file is None else f"of {left.file.name}"
        answers = (("r", "recover it"), ("d", "discard it"), ("l", "later, perhaps by contraflow recover"))
        text = f"A session ended before its work was saved: {left.name}, {where}, {left.when:%d %B, %H:%M}."
        self.push_screen(Question(text, answers), partial(self._recover, left))

    def concerns(self, left: Lost) -> bool:
        """Whether lost work is of the file that was opened, or anything where none was."""
        path = self.session.path
        return path is None or (left.file is not None and left.file == path.absolute())

    def _recover(self, left: Lost, answer: str | None) -> None:
        if answer == "r":
            work = left.work
            draft = Draft(work) if isinstance(work, Design) else sessions.draft_of(work)
            self.ask(sessions.recovered(self.session, draft, left.file))
        if answer in ("r", "d"):
            # What was recovered stands in our own journal by now.
            journal.discard(left)
