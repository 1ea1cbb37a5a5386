"""What the screen is about: one frozen value. Every change of it is a pure function here; widgets only draw it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from contraflow.designer import costs
from contraflow.designer.design import Design, DesignError, Preview, carried, efforts, make, parted, preview
from contraflow.designer.editing import Wait
from contraflow.designer.export.chart import Chart, chart
from contraflow.designer.format.check import load
from contraflow.designer.format.fault import InvalidScheduleError
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.generators import GENERATORS
from contraflow.designer.search.judge import Cap

CHART = "chart"
"""Stands for a knob where the program itself was changed."""


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

    @property
    def laboured(self) -> bool:
        """Whether the effort decides how good its program is, and how long that takes."""
        known = self.design.generator in GENERATORS
        return self.program is None and known and len(efforts(self.design)) > 1


@dataclass(frozen=True, slots=True)
class Picture:
    """What a draft looks like; `rough` with little effort, until the real one is there."""

    draft: Draft
    preview: Preview
    chart: Chart
    rough: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a draft has no picture."""

    draft: Draft
    message: str


def answer(draft: Draft, *, rough: bool = False) -> Picture | Refusal:
    """The picture of a draft, or why there is none; where the effort decides, a `rough` one comes sooner."""
    rough = rough and draft.laboured
    try:
        schedule = draft.program or make(draft.design, efforts(draft.design)[0 if rough else -1])
        shown = preview(schedule, costs.named(draft.design.costs or "unit"))
    except (DesignError, costs.CostError) as error:
        return Refusal(draft, in_words(str(error)))
    except InvalidScheduleError as error:
        return Refusal(draft, str(error.faults[0]))
    return Picture(draft, shown, chart(shown), rough)


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
    pinned: Picture | None = None
    """A, with which the design is compared."""
    cap: str = ""
    """What a device may hold, as it was typed; empty for no cap."""
    chain: tuple[Wait, ...] = ()
    """The waits that an edit was refused for."""
    searching: bool = False
    """Whether a search goes on in the background."""
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
    def rough(self) -> bool:
        """Whether the picture is one that a better is to replace."""
        return self.picture is not None and self.picture.rough

    @property
    def waiting(self) -> bool:
        """Whether the draft is still being worked out."""
        return (self.stale or self.rough) and not self.refusal

    @property
    def faded(self) -> bool:
        """Whether the picture is of an older draft because the present one was refused."""
        return self.stale and bool(self.refusal)

    @property
    def limit(self) -> Cap | None:
        """The memory cap; None for none."""
        return Cap.named(self.cap) if self.cap else None


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


def followed(session: Session, draft: Draft, knob: str) -> Session:
    """Another draft takes the place of the present one, which can be had back."""
    past = (*session.past, session.draft)
    return replace(session, draft=draft, refusal="", chain=(), turned=knob, past=past, future=())


def turned(session: Session, knob: str, design: Design) -> Session:
    """A knob was turned. The costs only price a program, so they leave a parted one as it is."""
    old = session.draft
    if design == old.design and not old.parted:
        return replace(session, refusal=session.refusal if session.stale else "", chain=(), turned=knob)
    keeps = old.parted and knob == "costs"
    return followed(session, Draft(design, old.program, True) if keeps else Draft(design), knob)


def edited(session: Session, program: Schedule) -> Session:
    """The program was changed by hand; it has parted from its knobs."""
    return followed(session, Draft(session.draft.design, program, parted=True), CHART)


def slipped(session: Session, knob: str, message: str, chain: tuple[Wait, ...] = ()) -> Session:
    """Something was typed that is no value, or an edit was refused because of the waits in `chain`."""
    return replace(session, refusal=message, turned=knob, chain=chain)


def undone(session: Session) -> Session:
    """One step back, if there is one."""
    if not session.past:
        return session
    *past, draft = session.past
    future = (session.draft, *session.future)
    return replace(session, draft=draft, past=tuple(past), future=future, refusal="", chain=())


def redone(session: Session) -> Session:
    """One step forward again, if there is one."""
    if not session.future:
        return session
    draft, *future = session.future
    past = (*session.past, session.draft)
    return replace(session, draft=draft, past=past, future=tuple(future), refusal="", chain=())


def answered(session: Session, found: Picture | Refusal) -> Session:
    """An answer arrived; one to a draft that is no longer asked about changes nothing."""
    if found.draft is not session.draft:
        return session
    if isinstance(found, Refusal):
        return replace(session, refusal=found.message)
    if session.picture is not None and session.picture.draft is found.draft:
        # The real one takes the place of the rough one, and is compared with what that was compared with.
        return session if found.rough else replace(session, picture=found, refusal="")
    return replace(session, picture=found, before=session.picture, refusal="")


def saved(session: Session, path: Path) -> Session:
    """The draft was written to `path`."""
    return replace(session, saved=session.draft, path=path)


def reloaded(session: Session, draft: Draft) -> Session:
    """The file holds another draft than before; the present one can be had back."""
    return replace(followed(session, draft, session.turned), saved=draft)


def recovered(session: Session, draft: Draft, path: Path | None) -> Session:
    """Work that an earlier session left unsaved takes the place of the present draft."""
    return replace(followed(session, draft, session.turned), path=path or session.path)


def capped(session: Session, cap: str) -> Session:
    """Another memory cap, or none; the design stays as it is."""
    return replace(session, cap=cap, refusal="" if session.turned == "cap" else session.refusal)


def cap_beside(session: Session, by: int) -> str:
    """The next cap up (1) or down (-1) on its own scale; without one, what the picture holds."""
    if session.limit is None:
        return "" if session.picture is None else f"{session.picture.preview.peak:.4g}"
    if session.limit.in_bytes:
        return f"{max(round(session.limit.amount / 2**30) + by, 1)}GiB"
    return f"{max(session.limit.amount + by / 4, 0.25):.4g}"


def pinned(session: Session) -> Session:
    """The picture becomes A; or, where there is an A, it is let go."""
    return replace(session, pinned=None if session.pinned else session.picture)
