"""A device's row of a Gantt chart as character cells: what fills each column, and the runs that draw it.

Plain characters and looks; no colours. The static chart and the terminal interface draw from here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import groupby, pairwise
from math import floor
from typing import NamedTuple

from contraflow.designer.format.graph import NONE
from contraflow.designer.format.schedule import Action

from .axis import Axis
from .chart import IDLE, LETTERS, REDUCTION, Bars, Chart, Look
from .glyphs import Glyphs


class Paint(NamedTuple):
    """The look that a cell stands on; `ink` where its character is filled by a second look."""

    ground: Look
    ink: Look | None = None


class Run(NamedTuple):
    """Consecutive cells of one paint."""

    text: str
    paint: Paint


class Span(NamedTuple):
    """Columns [low, high) and what fills most of each: an index into the chart's looks, NONE where it is idle.

    `bar` is the one that does so, NONE where there is none or where several share a column. Such a crowded column is
    a span of its own and knows the `rest`: what fills it next to most, and which share of the two that has.
    """

    low: int
    high: int
    look: int
    bar: int = NONE
    rest: tuple[int, float] | None = None


def spans(bars: Bars, axis: Axis) -> list[Span]:
    """The states that fill most of each column, left to right without gaps."""
    starts, ends = bars.starts, bars.ends
    count, step, num_looks = len(starts), axis.step, max(bars.looks, default=0) + 1
    found: list[Span] = []
    low, look, bar = 0, NONE, NONE  # of the span that is open
    index = bisect_right(ends, axis.start)
    for column in range(axis.width):
        left = axis.start + column * step
        right = left + step
        if index < count and ends[index] <= left:
            index = bisect_right(ends, left, index)
        here, owner, rest = NONE, NONE, None
        if index < count and starts[index] < right:
            if ends[index] >= right:
                if right - starts[index] >= step / 2:
                    here, owner = bars.looks[index], index
            else:
                here, owner, rest = _shared(
                    bars, index, bisect_left(starts, right, index), left, right, num_looks
                )
        if here != look or owner != bar or rest is not None:
            if column > low:
                found.append(Span(low, column, look, bar))
            low, look, bar = column, here, owner
            if rest is not None:
                found.append(Span(column, column + 1, here, NONE, rest))
                low, look, bar = column + 1, NONE, NONE
    if axis.width > low:
        found.append(Span(low, axis.width, look, bar))
    return found


def _shared(
    bars: Bars, index: int, behind: int, left: float, right: float, num_looks: int
) -> tuple[int, int, tuple[int, float] | None]:
    """Look, bar and rest of the column [left, right), touched by the bars from `index` to before `behind`."""
    last, looks = behind - 1, bars.looks
    times = [0.0] * (num_looks + 1)
    for look, length in zip(looks[index:behind], bars.lengths[index:behind], strict=True):
        times[look] += length
    if bars.starts[index] < left:
        times[looks[index]] -= left - bars.starts[index]
    if bars.ends[last] > right:
        times[looks[last]] -= bars.ends[last] - right
    # The last place is idle's, where the index NONE finds it.
    times[NONE] = right - left - sum(times)
    look = _largest(times)
    most, times[look] = times[look], -1.0
    if last - index > 1:
        second = _largest(times)
        return look, NONE, (second, most / (most + times[second]))
    mine = [bar for bar in (index, last) if looks[bar] == look]
    return (
        look,
        max(mine, key=lambda bar: min(bars.ends[bar], right) - max(bars.starts[bar], left), default=NONE),
        None,
    )


def _largest(times: list[float]) -> int:
    """Index of the largest; NONE for the last place."""
    found = times.index(max(times))
    return found if found < len(times) - 1 else NONE


class _Canvas(NamedTuple):
    """The cells of one line while it is drawn."""

    chars: list[str]
    paints: list[Paint]

    def add(self, text: str, paint: Paint) -> None:
        self.chars.extend(text)
        self.paints.extend([paint] * len(text))


def row(
    chart: Chart,
    device: int,
    axis: Axis,
    glyphs: Glyphs,
    *,
    labels: bool = True,
    found: Sequence[Span] | None = None,
) -> list[Run]:
    """One line of cells for a device; `labels` off gives the lines above and below the labelled one.

    `found` spares looking for the spans once more.
    """
    bars = chart.bars[device]
    found = spans(bars, axis) if found is None else found
    canvas = _Canvas([], [])
    looks = [*chart.looks, IDLE]  # so that NONE finds idle
    bare = [look._replace(second=False) for look in looks]
    for before, span, behind in zip([None, *found], found, [*found[1:], None], strict=False):
        look, width = looks[span.look], span.high - span.low
        if span.rest is not None:
            canvas.add(*_crowd(bare[span.look], bare[span.rest[0]], span.rest[1], glyphs, labels=labels))
        elif span.bar == NONE:
            canvas.add(glyphs.textures[look.state] * width, Paint(look))
        elif labels and not (width == 1 and glyphs.solid and _crowded(before, behind)):
            action = chart.preview.timeline.graph.actions[bars.nodes[span.bar]]
            text = _label(action, look, width, glyphs)
            if len(text) < width and bars.starts[span.bar] >= axis.time(span.low - 0.5):
                text = glyphs.separator + text
            canvas.add(text.ljust(width, glyphs.textures[look.state]), Paint(look))
        else:
            canvas.add(glyphs.textures[look.state] * width, Paint(bare[span.look]))
    for start, end in bars.reductions:
        _draw_reduction(axis.column(start), axis.column(end), axis.width, glyphs, canvas)
    if glyphs.edges:
        for left, right in pairwise(found):
            _draw_edge(bars, axis, left, right, looks, glyphs, canvas)
    return [
        Run("".join(char for char, _ in cells), paint)
        for paint, cells in groupby(zip(*canvas, strict=True), key=lambda cell: cell[1])
    ]


def letter(look: Look) -> str:
    """The letter of a bar: that of its kind, small for the second tone."""
    capital = LETTERS[look.state]
    return capital.lower() if look.tone else capital


def _crowded(*neighbours: Span | None) -> bool:
    """Whether one of them is: a lone letter among crowded columns would look as if it meant more."""
    return any(span is not None and span.rest is not None for span in neighbours)


def _label(action: Action, look: Look, width: int, glyphs: Glyphs) -> str:
    """What a bar of `width` cells says: its letter, then its microbatch, then its subsequence, as room allows."""
    short = letter(look)
    whole = f"{short}{action.microbatch}"
    cut = whole if action.subsequence is None else whole + glyphs.suffix(action.subsequence)
    return next(form for form in (cut, whole, short) if len(form) <= width or form is short)


def _crowd(most: Look, rest: Look, share: float, glyphs: Glyphs, *, labels: bool) -> tuple[str, Paint]:
    """A crowded column: the two looks that fill most of it, one standing on the other, or the first one's letter."""
    if not glyphs.solid:
        return letter(most) if labels and most != IDLE else glyphs.textures[most.state], Paint(most)
    if not glyphs.edges:
        return " ", Paint(most)
    if most == IDLE:
        most, rest, share = rest, most, 1 - share
    eighths = round(8 * share)
    return (glyphs.levels[eighths], Paint(rest, most)) if eighths < 8 else (" ", Paint(most))


def _draw_reduction(start: float, end: float, width: int, glyphs: Glyphs, canvas: _Canvas) -> None:
    """Reductions run beside the computes: they show where those leave room."""
    for column in range(max(round(start), 0), min(round(end), width)):
        if canvas.paints[column] == Paint(IDLE):
            canvas.chars[column], canvas.paints[column] = glyphs.textures["reduction"], Paint(REDUCTION)


def _draw_edge(
    bars: Bars, axis: Axis, left: Span, right: Span, looks: list[Look], glyphs: Glyphs, canvas: _Canvas
) -> None:
    """Where one state meets another inside a column that holds no letter, both get their eighths of it."""
    if left.bar == right.bar == NONE or left.look == right.look:
        return
    place = axis.column(bars.ends[left.bar] if left.bar != NONE else bars.starts[right.bar])
    column = floor(place)
    if column not in (right.low - 1, right.low):
        return
    paint = canvas.paints[column]
    blank = canvas.chars[column] == " " or (canvas.chars[column] == glyphs.separator and column == right.low)
    eighths = round(8 * (place - column))
    if blank and paint.ink is None and 0 < eighths < 8:
        canvas.chars[column] = glyphs.edges[eighths]
        canvas.paints[column] = Paint(looks[right.look], looks[left.look])
