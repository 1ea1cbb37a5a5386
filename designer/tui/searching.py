"""A search in the background: it replaces the design by better ones, ends when told to, and is one step to undo."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from multiprocessing import resource_tracker
from time import monotonic

from textual import work

from contraflow.designer.costs import CostError
from contraflow.designer.design import DesignError, carried
from contraflow.designer.export.axis import figure
from contraflow.designer.export.chart import chart
from contraflow.designer.format.fault import InvalidScheduleError
from contraflow.designer.search import Cap, NoStart, Progress, SearchLost, apart

from . import session as sessions
from .answering import Answering
from .questions import Question
from .session import CHART, Draft, Picture

FREE: dict[str, tuple[str, tuple[str, ...]]] = {
    "o": ("the order alone", ()),
    "b": ("the order, and the borders of the subsequences", ("splits",)),
    "k": ("all knobs that keep the shape", ("splits", "subsequences", "budget", "directions", "units")),
}
"""What a search may change, by the key that chooses it."""

OFTEN = 0.5
"""Seconds between two reports of a search that has found nothing new."""


class Searching(Answering):
    """Begins and ends a search, and shows what it finds."""

    stopping = False
    found: Draft | None = None
    """The last that a search found; None where none has found anything yet."""

    def action_search(self) -> None:
        """Begin a search, or end the one that goes on."""
        picture = self.session.picture
        if self.session.searching:
            self.stopping = True
            self.say("the search ends")
        elif picture is None or self.session.stale:
            self.say("these knobs give no schedule: there is nothing to begin a search with")
        else:
            held = f"{picture.preview.peak:.4g} microbatches of activation, what is held now"
            text = f"Search for a shorter makespan within {self.session.cap or held}. What may it change?"
            answers = (*((key, meaning) for key, (meaning, _) in FREE.items()), ("c", "do not search"))
            self.push_screen(Question(text, answers), self._search)

    def _search(self, answer: str | None) -> None:
        picture = self.session.picture
        if answer not in FREE or picture is None:
            return
        self.stopping, self.found = False, None
        self.session = replace(self.session, searching=True)
        self.say("searching; F8 ends it")
        self.search_in_thread(picture, self.session.limit or Cap(picture.preview.peak), FREE[answer][1])

    @work(thread=True)
    def search_in_thread(self, given: Picture, cap: Cap, free: Sequence[str]) -> None:
        """Search beside the screen, and report what is new."""
        told = 0.0
        words = ""
        prices = given.draft.design.costs or "unit"
        # Textual's stand-in for stderr has no descriptor that a process could be started with.
        with redirect_stderr(sys.__stderr__):
            resource_tracker.ensure_running()
        try:
            for progress in apart(
                given.preview.schedule, prices, cap, free, stop=lambda: self.stopping or not self.is_running
            ):
                if self.stopping or not self.is_running:
                    break
                if progress.better or monotonic() - told > OFTEN:
                    told = monotonic()
                    self.call_from_thread(self.hear, progress, given)
        except ModuleNotFoundError:
            words = "a search needs OR-tools: pip install 'ortools>=9.15'"
        except (NoStart, SearchLost, CostError, DesignError, InvalidScheduleError) as error:
            words = sessions.in_words(str(error))
        if self.is_running:
            self.call_from_thread(self.search_over, words)

    def hear(self, progress: Progress, given: Picture) -> None:
        """What the search has to tell: show a better schedule in the place of the one before."""
        if self.stopping:
            return
        if self.session.draft is not (self.found or given.draft):
            # Someone went on by hand.
            self.stopping = True
            return
        shown = progress.shown
        if progress.better and shown.schedule != given.preview.schedule:
            draft = Draft(carried(shown.schedule) or given.draft.design, shown.schedule, parted=True)
            session = sessions.followed(self.session, draft, CHART)
            if self.found is not None:
                session = replace(session, past=self.session.past)
            self.found = draft
            self.session = sessions.answered(session, Picture(draft, shown, chart(shown)))
        clock = shown.timeline.prices.clock
        proven = (
            "the least" if progress.optimal else f"at least {figure(progress.bound, clock, shown.makespan)}"
        )
        self.say(
            f"searching, {progress.seconds:.0f} s: makespan {figure(shown.makespan, clock)}, {proven}, "
            f"by {progress.how}; F8 ends it"
        )

    def search_over(self, words: str) -> None:
        """The search has ended, of itself or because it was told to."""
        self.session = replace(self.session, searching=False)
        better = "the better program stays; undo brings yours back"
        self.say(words or f"the search is over: {better if self.found else 'nothing better was found'}")
