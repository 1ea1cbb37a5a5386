"""The Gantt chart: a scrolling view that draws only the lines on the screen, each kept until something changes."""

from __future__ import annotations

from dataclasses import replace

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive, var
from textual.scroll_view import ScrollView
from textual.strip import Strip

from contraflow.designer.export import palette
from contraflow.designer.export.axis import Axis, ruler, scale
from contraflow.designer.export.cells import Paint, Span, row, spans
from contraflow.designer.export.chart import Chart
from contraflow.designer.export.glyphs import Glyphs
from contraflow.designer.export.text import percent
from contraflow.designer.format.graph import NONE

from .session import Picture, Session
from .view import Place, bar_at, columns, most_zoom, neighbour, step

DIM = Style(dim=True)
MARKED = Style(reverse=True, bold=True)
MARGIN = 8
"""Columns at the right, for each device's idle time and peak."""
RULER, EMPTY = (-1, 0), (-1, 1)
"""Keys of the lines that belong to no device; those of devices are (device, 0 for the line with labels)."""


class Gantt(ScrollView, can_focus=True):
    """A pinned gutter of devices, a pinned ruler, and between them the bars."""

    DEFAULT_CSS = """
    Gantt { scrollbar-size: 1 1; scrollbar-gutter: stable; overflow-x: hidden; height: 1fr; }
    Gantt.-zoomed { overflow-x: scroll; }
    Gantt.-stale { opacity: 45%; }
    """
    BINDINGS = [
        Binding("z,plus", "zoom(1)", "Zoom in", key_display="z"),
        Binding("x,minus", "zoom(-1)", "Zoom out", key_display="x"),
        Binding("0", "fit", "Fit"),
        Binding("comma", "action(-1)", "Previous action", show=False),
        Binding("full_stop", "action(1)", "Next", key_display="."),
        Binding("escape", "app.other_side", "Knobs", key_display="esc"),
        Binding("left", "pan(-1)", "Pan left", show=False),
        Binding("right", "pan(1)", "Pan right", show=False),
        Binding("up", "device(-1)", "Device above", show=False),
        Binding("down", "device(1)", "Device below", show=False),
    ]

    session: var[Session | None] = var(None)
    zoom: reactive[int] = reactive(0)
    lines_per_device: reactive[int] = reactive(1)
    place: reactive[Place | None] = reactive(None)
    """Where the cursor or the mouse points."""

    class Moved(Message):
        """The axis is another one."""

    class Pointed(Message):
        """Cursor or mouse points elsewhere."""

        def __init__(self, place: Place | None) -> None:
            super().__init__()
            self.place = place

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.step = 1.0
        self.axis = Axis(0.0, 1.0, 1)
        """Time over the columns between gutter and margin."""
        self._base = Style.null()
        self._lines: dict[tuple[int, int], Strip] = {}
        self._spans: dict[int, list[Span]] = {}
        self._drawn_for: object = None

    @property
    def picture(self) -> Picture | None:
        """What is drawn."""
        return self.session.picture if self.session else None

    @property
    def gutter_width(self) -> int:
        """Columns of the pinned device numbers."""
        devices = len(self.picture.chart.bars) if self.picture else 1
        return len(str(devices - 1)) + 2

    @property
    def room(self) -> int:
        """Columns for bars."""
        return max(self.scrollable_content_region.width - self.gutter_width - MARGIN, 1)

    def watch_session(self, old: Session | None, new: Session | None) -> None:
        self.set_class(new is not None and new.picture is not None and new.stale, "-stale")
        if new and (old is None or old.picture is not new.picture):
            self.settle()

    def watch_lines_per_device(self) -> None:
        self.settle()

    def watch_zoom(self) -> None:
        self.set_class(self.zoom > 0, "-zoomed")
        self.settle()
        self.post_message(self.Moved())

    def watch_scroll_x(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_x(old_value, new_value)
        self.axis = replace(self.axis, start=self.scroll_offset.x * self.step)
        self.post_message(self.Moved())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def watch_place(self) -> None:
        self.refresh()
        self.post_message(self.Pointed(self.place))

    def on_resize(self) -> None:
        self.settle()
        self.post_message(self.Moved())

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._drawn_for = None

    def settle(self) -> None:
        """Fit scale and scroll range to picture, zoom and size."""
        if self.picture is None or not self.size.width:
            return
        drawn = self.picture.chart
        self.step = step(drawn, self.room, min(self.zoom, most_zoom(drawn, self.room)))
        width = self.gutter_width + columns(drawn, self.step) + MARGIN
        if not self.zoom:
            # Everything fits; and an unchanged size spares laying out the screen.
            width = self.scrollable_content_region.width
        self.virtual_size = Size(width, 1 + len(drawn.bars) * self.lines_per_device)
        self.axis = Axis(self.scroll_offset.x * self.step, self.step, self.room)
        if self.place and self.place.device >= len(drawn.bars):
            self.place = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if self.picture is None:
            return Strip.blank(self.size.width, self.rich_style)
        drawn, axis = self.picture.chart, self.axis
        revision = (self.picture, axis, self.lines_per_device)
        if revision != self._drawn_for:
            self._lines.clear()
            self._spans.clear()
            self._drawn_for, self._base = revision, self.rich_style
        device, line = divmod(y - 1 + self.scroll_offset.y, self.lines_per_device)
        # Where there is room the last line of a device stays empty and parts it from the next.
        if y == 0:
            key = RULER
        elif device >= len(drawn.bars) or (line == self.lines_per_device - 1 and line > 0):
            key = EMPTY
        else:
            key = (device, min(line, 1))
        if key not in self._lines:
            self._lines[key] = self._line(key, axis).apply_style(self._base)
        strip = self._lines[key]
        if self.place and self.place.device == key[0]:
            strip = self._marked(strip, drawn, axis, self.place)
        return strip

    def _line(self, key: tuple[int, int], axis: Axis) -> Strip:
        if key == EMPTY:
            return Strip.blank(self.size.width, Style.null())
        return self._ruler(axis) if key == RULER else self._bars(key[0], axis, labels=key[1] == 0)

    def _bars(self, device: int, axis: Axis, *, labels: bool) -> Strip:
        assert self.picture is not None
        shown, drawn = self.picture.preview, self.picture.chart
        if device not in self._spans:
            self._spans[device] = spans(drawn.bars[device], axis)
        runs = row(drawn, device, axis, self.glyphs, labels=labels, found=self._spans[device])
        idle = shown.timeline.devices[device].idle / (shown.makespan or 1.0)
        return Strip(
            [
                Segment(f"{device if labels else '':>{self.gutter_width - 1}} ", DIM),
                *(Segment(run.text, self._style(run.paint)) for run in runs),
                Segment(f"{percent(idle) if labels else '':>{MARGIN}}", DIM),
            ],
            self.gutter_width + axis.width + MARGIN,
        )

    def _style(self, paint: Paint) -> Style:
        return palette.style(paint) if self.glyphs.solid else Style.null()

    def _ruler(self, axis: Axis) -> Strip:
        assert self.picture is not None
        clock, makespan = self.picture.preview.timeline.prices.clock, self.picture.preview.makespan
        marks = ruler(axis, clock, makespan, self.glyphs.mark)
        unit = scale(clock, makespan)[1]
        return Strip([Segment(" " * self.gutter_width + marks + f"{unit or 'idle':>{MARGIN}}", DIM)])

    def _marked(self, strip: Strip, drawn: Chart, axis: Axis, place: Place) -> Strip:
        """The strip with the bar at `place` set off."""
        bars = drawn.bars[place.device]
        bar = bar_at(bars, place.time)
        if bar == NONE:
            return strip
        low = max(round(axis.column(bars.starts[bar])), 0)
        high = min(max(round(axis.column(bars.ends[bar])), low + 1), axis.width)
        if low >= high:
            return strip
        before, mine, behind = strip.divide(
            [self.gutter_width + low, self.gutter_width + high, strip.cell_length]
        )
        return Strip.join([before, mine.apply_style(MARKED), behind])

    # Keys

    def action_zoom(self, by: int) -> None:
        """Twice or half the scale, the cursor or else the middle staying where it is."""
        if self.picture is None:
            return
        axis = self.axis
        time = axis.time(axis.width / 2)
        if self.place and 0 <= axis.column(self.place.time) < axis.width:
            time = self.place.time
        self.zoom_at(time, by)

    def zoom_at(self, time: float, by: int) -> None:
        """Twice or half the scale; `time` stays where it is on the screen."""
        if self.picture is None:
            return
        column = self.axis.column(time)
        self.zoom = min(max(self.zoom + by, 0), most_zoom(self.picture.chart, self.room))
        self.scroll_to(x=round(time / self.step - column), animate=False)

    def action_fit(self) -> None:
        """Everything at once."""
        self.zoom = 0

    def action_pan(self, by: int) -> None:
        """A quarter of the view to the left or right."""
        self.scroll_relative(x=by * max(self.room // 4, 1), animate=False)

    def action_device(self, by: int) -> None:
        """The cursor to the device above or below."""
        if self.picture is None:
            return
        place = self.place or Place(-1 if by > 0 else 1, self.axis.start)
        device = min(max(place.device + by, 0), len(self.picture.chart.bars) - 1)
        self.point(Place(device, place.time))

    def action_action(self, by: int) -> None:
        """The cursor to the action before or behind."""
        if self.picture is None:
            return
        place = self.place or Place(0, self.axis.start)
        bars = self.picture.chart.bars[place.device]
        self.point(Place(place.device, neighbour(bars, place.time, by)))

    def point(self, place: Place) -> None:
        """Put the cursor there and bring it into view."""
        self.place = place
        column = self.axis.column(place.time)
        if not 0 <= column < self.room:
            self.scroll_to(x=place.time / self.step - self.room / 2, animate=False)
        line = place.device * self.lines_per_device
        if not self.scroll_offset.y <= line < self.scroll_offset.y + self.size.height - 1:
            self.scroll_to(y=line - self.size.height // 2, animate=False)

    # Mouse

    def place_at(self, x: int, y: int) -> Place | None:
        """What lies under a cell of the widget, or None beside the bars."""
        if self.picture is None or y < 1 or not self.gutter_width <= x < self.gutter_width + self.room:
            return None
        device = (y - 1 + self.scroll_offset.y) // self.lines_per_device
        time = self.axis.time(x - self.gutter_width + 0.5)
        if device >= len(self.picture.chart.bars) or time >= self.picture.preview.makespan:
            return None
        return Place(device, time)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self.place = self.place_at(event.x, event.y)

    def on_leave(self) -> None:
        self.place = None

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, -1)

    def _wheel(self, event: events.MouseEvent, by: int) -> None:
        if event.ctrl:
            place = self.place_at(event.x, event.y)
            if place is not None:
                self.zoom_at(place.time, by)
            event.stop()
            event.prevent_default()
