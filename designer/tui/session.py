"""What the screen is about: one frozen value. Every change of it is a pure function here; widgets only draw it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from contraflow.designer import costs
from contraflow.designer.design import Design, DesignError, Preview, carried, make, parted, preview
from contraflow.designer.export.chart import Chart, chart
from contraflow.designer.format.check import load
from contraflow.designer.format.fault import InvalidScheduleError
from contraflow.designer.format.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Draft:
    """What is being worked on: the knobs, and the program of the file where the knobs have not been turned since.

    `parted` says that the knobs would make another program than that. Drafts are compared by identity.
    """

    design: Design
    program: Schedule | None = None
    parted: bool = False

    @property
    def size(self) -> int:
        """About how many actions it has: what decides whether it is drawn at once or in the background."""
        if self.program is not None:
            return self.program.num_actions
        return self.design.num_actions


@dataclass(frozen=True, slots=True)
class Picture:
    """What a draft looks like."""

    draft: Draft
    preview: Preview
    chart: Chart


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a draft has no picture."""

    draft: Draft
    message: str


def answer(draft: Draft) -> Picture | Refusal:
    """The picture of a draft, or why there is none."""
    try:
        schedule = draft.program or make(draft.design)
        shown = preview(schedule, costs.named(draft.design.costs or "unit"))
    except (DesignError, costs.CostError) as error:
        return Refusal(draft, in_words(str(error)))
    except InvalidScheduleError as error:
        return Refusal(draft, str(error.faults[0]))
    return Picture(draft, shown, chart(shown))


def in_words(message: str) -> str:
    """A message of the command line, its options named as the screen names them."""
    return re.sub(r"--([a-z-]+)", lambda match: match[1].replace("-", " "), message)


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that the screen shows."""

    draft: Draft
    saved: Draft
    """What the file holds; without a file, what was there at the start."""
    path: Path | None = None
    picture: Picture | None = None
    """The last good one: of `draft`, unless that was refused or is still being worked out."""
    before: Picture | None = None
    """The one shown before."""
    refusal: str = ""
    """Why the draft has no picture, or why what was typed is no value."""
    turned: str = "generator"
    """The knob that was turned last: the refusal is shown with it."""
    past: tuple[Draft, ...] = ()
    future: tuple[Draft, ...] = ()

    @property
    def dirty(self) -> bool:
        """Whether something is unsaved."""
        return self.draft is not self.saved

    @property
    def stale(self) -> bool:
        """Whether the picture is of another draft."""
        return self.picture is None or self.picture.draft is not self.draft

    @property
    def waiting(self) -> bool:
        """Whether the draft is still being worked out."""
        return self.stale and not self.refusal


def started(draft: Draft, path: Path | None = None) -> Session:
    """A session that has not been answered yet."""
    return Session(draft, draft, path)


def opened(path: Path) -> Session:
    """A session about a file. Raises NotAScheduleError, or InvalidScheduleError with every fault."""
    return started(draft_of(load(path)), path)


def draft_of(schedule: Schedule) -> Draft:
    """The draft of a file: with its own knobs if it carries any, else with knobs of its shape."""
    design = carried(schedule)
    if design is None:
        layout = schedule.layout
        design = Design(
            devices=layout.num_devices,
            microbatches=layout.num_microbatches,
            subsequences=max(map(len, layout.splits)),
            sequence=layout.longest,
        )
        return Draft(design, schedule, parted=True)
    return Draft(design, schedule, parted(schedule, design))


def turned(session: Session, knob: str, design: Design) -> Session:
    """A knob was turned. The costs only price a program, so they leave a parted one as it is."""
    if design == session.draft.design and not session.draft.parted:
        return replace(session, refusal="" if not session.stale else session.refusal, turned=knob)
    old = session.draft
    keeps = old.parted and knob == "costs"
    draft = Draft(design, old.program, True) if keeps else Draft(design)
    return replace(session, draft=draft, refusal="", turned=knob, past=(*session.past, old), future=())


def slipped(session: Session, knob: str, message: str) -> Session:
    """Something was typed that is no value."""
    return replace(session, refusal=message, turned=knob)


def undone(session: Session) -> Session:
    """One step back, if there is one."""
    if not session.past:
        return session
    *past, draft = session.past
    return replace(
        session, draft=draft, past=tuple(past), future=(session.draft, *session.future), refusal=""
    )


def redone(session: Session) -> Session:
    """One step forward again, if there is one."""
    if not session.future:
        return session
    draft, *future = session.future
    return replace(
        session, draft=draft, past=(*session.past, session.draft), future=tuple(future), refusal=""
    )


def answered(session: Session, found: Picture | Refusal) -> Session:
    """An answer arrived; one to a draft that is no longer asked about changes nothing."""
    if found.draft is not session.draft:
        return session
    if isinstance(found, Refusal):
        return replace(session, refusal=found.message)
    return replace(session, picture=found, before=session.picture, refusal="")


def saved(session: Session, path: Path) -> Session:
    """The draft was written to `path`."""
    return replace(session, saved=session.draft, path=path)
