"""What the status line and the details say: what is pointed at, what is compared, what to know."""

from __future__ import annotations

from textual import on
from textual.widgets import Static

from contraflow.designer.comparison import Comparison, compare
from contraflow.designer.costs import CostError

from .compared import in_a_line, in_lines
from .files import Files
from .gantt import Gantt
from .inspector import KnobLine
from .session import Picture
from .view import described


class Telling(Files):
    """Words about the session, as far as the widgets do not draw it themselves."""

    _compared: tuple[Picture, Picture, Comparison | None] | None = None

    @property
    def comparison(self) -> Comparison | None:
        """A beside the picture; None without an A, beside itself, and where the costs do not fit it."""
        a, b = self.session.pinned, self.session.picture
        if a is None or b is None or a is b:
            return None
        if self._compared is None or self._compared[:2] != (a, b):
            try:
                found = compare(a.preview, b.preview)
            except CostError:
                found = None
            self._compared = a, b, found
        return self._compared[2]

    def resting_status(self) -> str:
        """What the status line says while nothing is pointed at."""
        if self.session.draft.parted:
            return f"{self.name_of_file} has parted from its knobs: turning one makes another program"
        if self.comparison is not None:
            return in_a_line(self.comparison)
        focused = self.screen_stack[0].focused
        return focused.knob.meaning if isinstance(focused, KnobLine) else ""

    @on(Gantt.Pointed)
    def describe(self, event: Gantt.Pointed) -> None:
        picture = self.session.picture
        self.say(described(picture.chart, event.place) if picture and event.place else self.resting_status())
        self.tell_details()

    def tell_details(self) -> None:
        """The action under the cursor, and A beside the design."""
        picture, place = self.session.picture, self.query_one(Gantt).place
        lines: list[str] = []
        if picture and place and place.device < len(picture.chart.bars):
            words = described(picture.chart, place)
            lines += [*words.replace(": ", "\n", 1).replace(", ", "\n").split("\n"), ""]
        if self.comparison is not None:
            lines += in_lines(self.comparison)
        self.query_one("#details", Static).update("\n".join(lines))
