"""Knobs, borders and edits by hand: what is asked for becomes a draft, or a refusal in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from textual import events, on

from contraflow.designer.design import Design
from contraflow.designer.editing import Objection, fused, halved, moved, sent_other_way
from contraflow.designer.format.graph import NONE
from contraflow.designer.format.schedule import Action, Schedule
from contraflow.designer.simulate import Timeline

from . import session as sessions
from .files import Files
from .gantt import Gantt
from .inspector import CapLine, KnobLine
from .questions import YES_NO, Question
from .session import CHART
from .split_bar import SplitBar
from .view import Place, bar_at

Change = Callable[[Schedule, Timeline, int, int], Schedule | Objection]
"""A schedule, its timeline, device and position of an action -> another schedule, or what stands against it."""


def halved_or_fused(schedule: Schedule, _: Timeline, device: int, position: int) -> Schedule | Objection:
    """A backward as I and W, or whole again."""
    change = halved if schedule.program[device][position].kind == "B" else fused
    return change(schedule, device, position)


def other_way(schedule: Schedule, timeline: Timeline, device: int, position: int) -> Schedule | Objection:
    """The action's microbatch in the next direction."""
    action = schedule.program[device][position]
    if action.microbatch is None:
        return Objection(f"{action} belongs to no microbatch")
    return sent_other_way(schedule, timeline, action.microbatch)


class Editing(Files):
    """Turns what the widgets ask for into drafts."""

    picked: Place | None = None
    """Where the chart was clicked on."""

    # Knobs and borders

    @on(KnobLine.Turned)
    def turn(self, event: KnobLine.Turned) -> None:
        self.change(event.knob.name, event.knob.label, event.design)

    @on(SplitBar.Moved)
    def move_border(self, event: SplitBar.Moved) -> None:
        self.change("split", "split", event.design, dragged=event.dragged)

    def change(self, knob: str, label: str, design: Design, *, dragged: bool = False) -> None:
        """Take a design; where that gives up a program that has parted from its knobs, ask first."""
        if not self.session.draft.parted or knob == "costs":
            self.apply(knob, design, dragged=dragged)
            return

        def take(answer: str | None) -> None:
            if answer == "y":
                self.apply(knob, design)

        text = (
            f"{self.name_of_file} has parted from its knobs. Turn `{label}` and make a new program?\n"
            "Undo brings the present program back."
        )
        self.push_screen(Question(text, YES_NO), take)

    def apply(self, knob: str, design: Design, *, dragged: bool = False) -> None:
        """Take a design that is meant; all that one pull of the mouse asks for is one step to undo."""
        session = sessions.turned(self.session, knob, design)
        self.ask(replace(session, past=self.session.past) if dragged else session)

    @on(KnobLine.Slipped)
    def slip(self, event: KnobLine.Slipped) -> None:
        self.session = sessions.slipped(self.session, event.knob.name, event.message)

    @on(CapLine.Capped)
    def cap(self, event: CapLine.Capped) -> None:
        self.session = sessions.capped(self.session, event.cap)

    # The program

    def action_move_action(self, by: int) -> None:
        """The action under the cursor one place earlier or later."""
        self.edit(lambda schedule, _, device, position: moved(schedule, device, position, by))

    def action_halve(self) -> None:
        """The backward under the cursor as I and W, or whole again."""
        self.edit(halved_or_fused)

    def action_other_way(self) -> None:
        """The microbatch under the cursor in the other direction."""
        self.edit(other_way)

    def edit(self, change: Change) -> None:
        """Put a change of the program in place, or say why it cannot be; the cursor stays with its action."""
        if self.session.rough:
            self.finish()
        picture = self.session.picture
        if picture is None or self.session.stale:
            self.say("these knobs give no schedule: put that right first")
            return
        node = self.node_under_cursor()
        if node == NONE:
            self.say("point at an action first, with the mouse or with the arrows and , and .")
            return
        shown = picture.preview
        action, device = shown.timeline.graph.actions[node], shown.timeline.graph.device[node]
        program = shown.schedule.program[device]
        if action not in program:
            self.say(f"{action} is not in the program: the costs ask for it, and it comes as early as can be")
            return
        found = change(shown.schedule, shown.timeline, device, program.index(action))
        if isinstance(found, Objection):
            self.session = sessions.slipped(self.session, CHART, found.reason, found.waits)
            return
        self.ask(sessions.edited(self.session, found))
        self.follow(action)

    def on_click(self, event: events.Click) -> None:
        """What was clicked on stays picked while the mouse is on its way to the footer or the palette."""
        if isinstance(event.widget, Gantt):
            self.picked = event.widget.place = event.widget.place_at(event.x, event.y)

    def node_under_cursor(self) -> int:
        """The node of the picture's graph that the chart points at, or NONE."""
        place, picture = self.query_one(Gantt).place or self.picked, self.session.picture
        if place is None or picture is None or place.device >= len(picture.chart.bars):
            return NONE
        bars = picture.chart.bars[place.device]
        bar = bar_at(bars, place.time)
        return NONE if bar == NONE else bars.nodes[bar]

    def follow(self, action: Action) -> None:
        """Put the cursor on an action, wherever it is now; a B on its I, an I or W on their B."""
        picture = self.session.picture
        if picture is None or self.session.stale:
            return
        timeline = picture.preview.timeline
        graph = timeline.graph
        sought = (action, action._replace(kind="I"), action._replace(kind="B"))
        node = min((graph.actions.index(each) for each in sought if each in graph.actions), default=NONE)
        if node != NONE:
            middle = (timeline.start[node] + timeline.end[node]) / 2
            self.query_one(Gantt).point(Place(graph.device[node], middle))
