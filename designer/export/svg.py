"""A preview as a picture for print: vectors in SVG, without any library.

One user unit is a point; text is text. Bars of one look on one device are one path, so that thousands stay small.
Hatched bars and underlines say in print what small letters and underlines say in a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from contraflow.designer.design import Preview
from contraflow.designer.memory import Curve

from . import axis, palette
from .chart import LETTERS, Bars, Chart, Look, chart
from .held import Held, held
from .labels import label, labels, width_of, wrapped
from .text import NAMES, assumptions, headline, percent, shape

WIDTH = 180.0
"""Of a picture, in millimetres: two columns of a page."""
MIN_WIDTH = 60.0
POINTS = 72 / 25.4
"""In a millimetre."""
NAME, SIZE, LABEL = 10.0, 7.0, 5.6
"""Of the title, of text and of bars' labels, in points."""
EDGE, LEADING = 5.0, 9.5
MARGIN = 34.0
"""At the right, for each device's figures."""
ROOM = 42.0
"""Between two marks of the time axis, at least."""

STYLE = """\
text{font-family:Helvetica,Arial,"Liberation Sans","DejaVu Sans",sans-serif;font-size:7px;fill:#1c2733}
.h{font-size:10px;font-weight:bold}
.q{fill:#5b6672}
.e{text-anchor:end}
.m{text-anchor:middle}
.l text{font-size:5.6px;text-anchor:middle}
.i{fill:#e8ebf0}
.g{stroke:#cfd5dd;stroke-width:.4}
.a{stroke:#5b6672;stroke-width:.5;fill:none}
.k{fill:#c3cad8}
.t{fill:none;stroke:#4a566b;stroke-width:.6}
.p{fill:#1c2733}
.c{stroke:#1c2733;stroke-width:.6;stroke-dasharray:2.5 1.5}
.r{fill:#5f6b80}
"""


def dumps(preview: Preview, width: float = WIDTH) -> str:
    """The picture, `width` millimetres wide (at least 60), as high as it needs: the same bytes for the same input."""
    drawn, levels = chart(preview), held(preview)
    total = max(width, MIN_WIDTH) * POINTS
    page = _Page(drawn, levels, total)
    body = [*page.head(), *page.gantt(), *page.time(), *page.memory(), *page.legend(), *page.foot()]
    height = page.y
    title = escape(preview.schedule.name)
    described = ". ".join(
        [", ".join(shape(preview)), ", ".join(headline(preview, levels)), assumptions(preview, levels)]
    )
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(total / POINTS)}mm" height="{_n(height / POINTS)}mm" '
            f'viewBox="0 0 {_n(total)} {_n(height)}" role="img" aria-labelledby="title desc">',
            f'<title id="title">{title}</title>',
            f'<desc id="desc">{escape(described)}</desc>',
            f"<style>\n{STYLE}{''.join(page.classes())}</style>",
            *page.patterns(),
            f'<rect width="{_n(total)}" height="{_n(height)}" fill="#fff"/>',
            *body,
            "</svg>\n",
        ]
    )


class _Page:
    """What is drawn from top to bottom; `y` is how far that has come."""

    def __init__(self, drawn: Chart, levels: Held, total: float) -> None:
        self.drawn, self.levels, self.total = drawn, levels, total
        self.preview, num_devices = drawn.preview, len(drawn.bars)
        self.left = EDGE + SIZE * (0.6 * len(str(num_devices - 1)) + 1.2)
        self.axis = axis.whole(self.preview.makespan, int(total - self.left - MARGIN - EDGE))
        self.right = self.left + self.axis.width
        self.y = EDGE
        self.pitch = min(15.0, max(6.0, 330 / num_devices))
        self.bar = self.pitch - min(2.5, self.pitch / 5)
        self.strip = min(20.0, max(6.0, 260 / num_devices))
        """Heights: from row to row, of a bar, from one memory curve to the next."""
        self.underlined = any(look.second for look in drawn.looks)
        self.labels = labels(drawn, LABEL, self.axis.step) if self.bar > LABEL + 2 else None
        self.thin = drawn.shortest / self.axis.step
        """Width of the narrowest bar."""

    def text(self, x: float, words: str, style: str = "") -> str:
        look = f' class="{style}"' if style else ""
        return f'<text x="{_n(x)}" y="{_n(self.y)}"{look}>{escape(words)}</text>'

    def lines(
        self, items: Sequence[str], joint: str = " ", style: str = "", size: float = SIZE
    ) -> Iterator[str]:
        """Items behind one another, on a new line where the width ends."""
        room = (self.total - 2 * EDGE) / size
        line = ""
        for item in [part for whole in items for part in wrapped(whole, room)]:
            if line and width_of(line + joint + item) > room:
                self.y += size + 2.5
                yield self.text(EDGE, line, style)
                line = ""
            line += (joint if line else "") + item
        self.y += size + 2.5
        yield self.text(EDGE, line, style)

    def head(self) -> Iterator[str]:
        yield from self.lines([self.preview.schedule.name], style="h", size=NAME)
        yield from self.lines(shape(self.preview), " · ", "q")
        yield from self.lines(headline(self.preview, self.levels), " · ")
        self.y += 4

    def heading(self, words: str, right: str) -> Iterator[str]:
        room = (self.total - 2 * EDGE) / SIZE - width_of(right) - 1
        for line in wrapped(words, room):
            self.y += LEADING
            yield self.text(EDGE, line, "q")
        yield self.text(self.total - EDGE, right, "q e")
        self.y += 3.5

    def grid(self, height: float) -> str:
        """Lines at the marks of the time axis, over a height from here downwards."""
        factor = axis.scale(self.preview.timeline.prices.clock, self.preview.makespan)[0]
        places = [self.x(time) for time, _ in axis.marks(self.axis, factor, ROOM)]
        steps = "".join(f"M{_n(x)} {_n(self.y)}v{_n(height)}" for x in places)
        return f'<path class="g" d="{steps}"/>'

    def x(self, time: float) -> float:
        return self.left + self.axis.column(time)

    def gantt(self) -> Iterator[str]:
        yield from self.heading("device", "idle")
        preview = self.preview
        height = self.pitch * len(self.drawn.bars) - (self.pitch - self.bar)
        ground = "".join(
            f"M{_n(self.left)} {_n(self.y + self.pitch * device)}h{self.axis.width}v{_n(self.bar)}h-{self.axis.width}z"
            for device in range(len(self.drawn.bars))
        )
        yield f'<path class="i" d="{ground}"/>'
        yield self.grid(height)
        for device, bars in enumerate(self.drawn.bars):
            top = self.y
            yield from self._bars(bars)
            yield from self._labels(bars)
            self.y = top + self.bar / 2 + SIZE * 0.35
            idle = preview.timeline.devices[device].idle
            yield self.text(self.left - 4, str(device), "e")
            share = percent(idle / preview.makespan if preview.makespan else 0.0)
            yield self.text(self.total - EDGE, share, "e")
            self.y = top + self.pitch

    def _bars(self, bars: Bars) -> Iterator[str]:
        order = sorted(range(len(bars.nodes)), key=lambda bar: bars.looks[bar])
        for number, of_look in groupby(order, key=lambda bar: bars.looks[bar]):
            runs = list(self._runs(bars, list(of_look)))
            height = _n(self.bar)
            path = "".join(
                f"M{_n(low)} {_n(self.y)}h{_n(high - low)}v{height}h{_n(low - high)}z" for low, high in runs
            )
            yield f'<path class="s{number}" d="{path}"/>'
            if self.drawn.looks[number].second:
                below = self.y + self.bar - 1.2
                line = "".join(f"M{_n(low)} {_n(below)}h{_n(high - low)}" for low, high in runs)
                yield f'<path class="u{number}" d="{line}"/>'
        if bars.reductions:
            path = "".join(
                f"M{_n(self.x(start))} {_n(self.y + self.bar)}h{_n(self.axis.column(end - start))}v1.2h-"
                f"{_n(self.axis.column(end - start))}z"
                for start, end in bars.reductions
                if end > start
            )
            if path:
                yield f'<path class="r" d="{path}"/>'

    def _runs(self, bars: Bars, of_look: Sequence[int]) -> Iterator[tuple[float, float]]:
        """Left and right edges; bars too narrow to be told apart in print run into one where they touch."""
        low = high = None
        for bar in of_look:
            left, right = self.x(bars.starts[bar]), self.x(bars.ends[bar])
            if low is not None and high is not None and self.thin < 0.4 and left - high < 0.01:
                high = right
                continue
            if low is not None and high is not None:
                yield low, high
            low, high = left, right
        if low is not None and high is not None:
            yield low, high

    def _labels(self, bars: Bars) -> Iterator[str]:
        if self.labels is None:
            return
        actions = self.preview.timeline.graph.actions
        by_state: dict[str, list[str]] = {}
        # Above the lines of underlined bars, so that all labels of a row stand at one height.
        y = _n(self.y + self.bar / 2 + LABEL * 0.36 - (0.7 if self.underlined else 0.0))
        for node, start, length, number in zip(
            bars.nodes, bars.starts, bars.lengths, bars.looks, strict=True
        ):
            look, width = self.drawn.looks[number], self.axis.column(length)
            if look.state not in self.labels.form:
                continue
            if words := label(actions[node], self.labels.form[look.state], LABEL, width):
                text = f'<text x="{_n(self.x(start) + width / 2)}" y="{y}">{words}</text>'
                by_state.setdefault(look.state, []).append(text)
        for state, texts in by_state.items():
            yield f'<g class="l {state}">{"".join(texts)}</g>'

    def time(self) -> Iterator[str]:
        """The time axis, with the unit at its end."""
        clock = self.preview.timeline.prices.clock
        factor, unit = axis.scale(clock, self.preview.makespan)
        places = [(self.x(time), words) for time, words in axis.marks(self.axis, factor, ROOM)]
        steps = "".join(f"M{_n(x)} {_n(self.y)}v2.5" for x, _ in places)
        yield f'<path class="a" d="M{_n(self.left)} {_n(self.y)}h{self.axis.width}{steps}"/>'
        self.y += LEADING
        for x, words in places:
            yield self.text(x, words, "m q")
        yield self.text(self.total - EDGE, f"time ({unit})" if unit else "time", "q e")
        self.y += 2

    def memory(self) -> Iterator[str]:
        levels = self.levels
        title = f"{levels.title}: each from 0 to {levels.figure(levels.top)}"
        if levels.cap is not None:
            title += f"; dashed: the {levels.figure(levels.cap)} that it has"
        yield from self.heading(title, f"peak ({levels.unit})" if levels.cap else "peak")
        pitch = self.strip
        yield self.grid(pitch * len(levels.curves) - 2)
        for device, curve in enumerate(levels.curves):
            yield from self._strip(curve, pitch - 2)
            top = self.y
            self.y += pitch / 2 + SIZE * 0.35 - 1
            yield self.text(self.left - 4, str(device), "e")
            yield self.text(self.total - EDGE, levels.number(curve.peak), "e")
            self.y = top + pitch
        self.y += 2

    def _strip(self, curve: Curve, height: float) -> Iterator[str]:
        floor, scale_to = self.y + height, height / self.levels.top
        end = self.preview.makespan
        steps, last = [], None
        for time, level in zip(curve.times, curve.levels, strict=True):
            x, y = _n(self.x(min(time, end))), _n(floor - level * scale_to)
            if last is None:
                steps.append(f"M{x} {y}")
            elif y != last:
                steps.append(f"H{x}V{y}")
            last = y
        line = "".join(steps) + f"H{_n(self.right)}"
        yield f'<path class="k" d="{line}V{_n(floor)}H{_n(self.left)}z"/>'
        yield f'<path class="t" d="{line}"/>'
        yield f'<path class="a" d="M{_n(self.left)} {_n(floor)}h{self.axis.width}"/>'
        if self.levels.cap is not None:
            cap = _n(floor - self.levels.cap * scale_to)
            yield f'<path class="c" d="M{_n(self.left)} {cap}h{self.axis.width}"/>'
        highest = max(curve.levels)
        if highest > 0:
            there = self.x(curve.times[curve.levels.index(highest)])
            yield f'<circle class="p" cx="{_n(there)}" cy="{_n(floor - highest * scale_to)}" r="1.3"/>'

    def legend(self) -> Iterator[str]:
        """Swatches with their words, then words alone, in as many lines as they need."""
        items: list[tuple[list[str], str]] = []
        for state in dict.fromkeys(look.state for look in self.drawn.looks):
            own = [n for n, look in enumerate(self.drawn.looks) if look.state == state and not look.second]
            items.append(([f"s{number}" for number in own], f"{LETTERS[state]} {NAMES[state]}"))
        items.append((["i"], "idle"))
        if any(end > start for bars in self.drawn.bars for start, end in bars.reductions):
            items.append((["r"], "gradients to the owner, beside the computes"))
        if self.drawn.tones:
            items.append(([], f"plain: {self.drawn.tones[0]}, hatched: {self.drawn.tones[1]}"))
        if self.underlined:
            items.append(([], "underlined: 2nd stage of a device"))
        if self.labels is not None and self.labels.key:
            items.append(([], self.labels.key))
        x, box = EDGE, 13.0
        self.y += LEADING + 1
        for swatches, words in items:
            wide = len(swatches) * box + (3 if swatches else 0) + width_of(words) * SIZE * 0.93
            if x > EDGE and x + wide > self.total - EDGE:
                x = EDGE
                self.y += LEADING + 1
            for swatch in swatches:
                y, height = (self.y - 3, 1.2) if swatch == "r" else (self.y - 6.2, 7.5)
                yield (
                    f'<rect class="{swatch}" x="{_n(x)}" y="{_n(y)}" width="{_n(box)}" height="{_n(height)}"/>'
                )
                x += box
            x += 3 if swatches else 0
            yield self.text(x, words)
            x += width_of(words) * SIZE * 0.93 + 8

    def foot(self) -> Iterator[str]:
        self.y += 3
        yield from self.lines([assumptions(self.preview, self.levels)], style="q")
        self.y += EDGE

    def classes(self) -> Iterator[str]:
        """How bars of each look, and labels on them, are painted."""
        # White between bars, as much as narrow ones can spare.
        between = min(0.5, 0.15 * self.thin) if self.thin >= 0.4 else 0.0
        for number, look in enumerate(self.drawn.looks):
            fill = f"url(#h{number})" if look.tone else palette.ground(look)
            yield f".s{number}{{fill:{fill};stroke:#fff;stroke-width:{_n(between)}}}\n"
            if look.second:
                yield f".u{number}{{stroke:{palette.INKS[look.state]};stroke-width:1}}\n"
        for state in dict.fromkeys(look.state for look in self.drawn.looks):
            yield f".{state} text{{fill:{palette.INKS[state]}}}\n"

    def patterns(self) -> Iterator[str]:
        for number, look in enumerate(self.drawn.looks):
            if look.tone:
                yield _pattern(f"h{number}", look)


def _pattern(name: str, look: Look) -> str:
    """Slanted lines, one to every 2.6 points."""
    ground, line = palette.ground(look), palette.hatching(look.state)
    return (
        f'<pattern id="{name}" width="2.6" height="2.6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="2.6" height="2.6" fill="{ground}"/><rect width=".7" height="2.6" fill="{line}"/></pattern>'
    )


def _n(value: float) -> str:
    """A length as short as a hundredth of a point allows."""
    return f"{round(value, 2):g}" if abs(value) < 1000 else f"{round(value, 2)}"
