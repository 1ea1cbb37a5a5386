"""The memory strips under the chart, on its axis and beside its devices."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from contraflow.designer.design import Preview
from contraflow.designer.export.axis import Axis
from contraflow.designer.export.palette import MEMORY
from contraflow.designer.export.strips import strip
from contraflow.designer.format.graph import NONE

from .gantt import DIM, MARGIN, Gantt


class Memory(Widget):
    """What each device holds over time, as high as the largest peak."""

    DEFAULT_CSS = """
    Memory { height: 1fr; }
    Memory.-stale { opacity: 45%; }
    """

    def __init__(self, gantt: Gantt) -> None:
        super().__init__()
        self.gantt = gantt
        self.lines_per_device = 1
        self._lines: dict[
            int, list[Strip]
        ] = {}  # NONE stands for the title, the number of devices for no device
        self._drawn_for: object = None
        self._base = Style.null()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._drawn_for = None

    def render_line(self, y: int) -> Strip:
        picture, axis = self.gantt.picture, self.gantt.axis
        if picture is None:
            return Strip.blank(self.size.width, self.rich_style)
        revision = (picture, axis, self.lines_per_device)
        if revision != self._drawn_for:
            self._lines.clear()
            self._drawn_for, self._base = revision, self.rich_style
        device, line = divmod(y - 1, self.lines_per_device)
        device += self.gantt.scroll_offset.y // self.gantt.lines_per_device
        if y == 0:
            device = NONE
        elif device >= len(picture.preview.curves):
            device, line = len(picture.preview.curves), 0
        if device not in self._lines:
            fresh = self._fresh(picture.preview, device, axis)
            self._lines[device] = [strip.apply_style(self._base) for strip in fresh]
        return self._lines[device][line if y else 0]

    def _fresh(self, shown: Preview, device: int, axis: Axis) -> list[Strip]:
        if device == NONE:
            return [self._title(shown)]
        if device == len(shown.curves):
            return [Strip.blank(self.size.width, Style.null())]
        return self._strips(shown, device, axis)

    def _title(self, shown: Preview) -> Strip:
        width = self.gantt.gutter_width + self.gantt.room
        title = f"activation in microbatches, 0 to {shown.peak:.4g}"
        return Strip([Segment(f"{title:<{width}}{'peak':>{MARGIN}}", DIM)])

    def _strips(self, shown: Preview, device: int, axis: Axis) -> list[Strip]:
        """The lines of one device, the lowest with its number and its peak."""
        glyphs, curve = self.gantt.glyphs, shown.curves[device]
        style = Style(color=MEMORY) if glyphs.solid else Style.null()
        lines = strip(curve, axis, shown.makespan, shown.peak, glyphs, self.lines_per_device)
        number, peak = (
            [*[""] * (len(lines) - 1), f"{device}"],
            [*[""] * (len(lines) - 1), f"{curve.peak:.4g}"],
        )
        return [
            Strip(
                [
                    Segment(f"{left:>{self.gantt.gutter_width - 1}} ", DIM),
                    Segment(cells, style),
                    Segment(f"{right:>{MARGIN}}", DIM),
                ]
            )
            for left, cells, right in zip(number, lines, peak, strict=True)
        ]
