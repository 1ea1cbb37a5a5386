"""A preview as text: figures, Gantt chart, ruler, memory strips and the assumptions behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.text import Text

from contraflow.designer.design import Preview

from . import palette
from .axis import Axis, figure, fitted, ruler, scale
from .cells import Paint, letter, row
from .chart import Chart, chart
from .glyphs import Glyphs, glyphs
from .held import Held
from .strips import strip

MIN_WIDTH = 60
NAMES = {
    "forward": "forward", "backward": "backward", "input": "input gradient", "weight": "weight gradient",
}  # fmt: skip
MARGIN = 8
"""Columns at the right for each device's figures."""


def show(preview: Preview, width: int, *, color: bool = True, ascii: bool = False) -> RenderableType:
    """The static picture of a preview, `width` columns wide (at least 60).

    Without `color` it is bare text that letters and textures make legible; with `ascii` it is ASCII alone.
    """
    return Group(*_shown(preview, width, color=color, ascii=ascii))


def dumps(preview: Preview, width: int, *, ascii: bool = False) -> str:
    """The same without colours, for a file."""
    return "".join(f"{line.plain}\n" for line in _shown(preview, width, color=False, ascii=ascii))


def _shown(preview: Preview, width: int, *, color: bool, ascii: bool) -> list[Text]:
    width = max(width, MIN_WIDTH)
    drawn, marks = chart(preview), glyphs(color=color, ascii=ascii)
    lines = list(_lines(drawn, width, marks))
    if not color:
        lines = [Text(line.plain.rstrip()) for line in lines]
    if ascii:
        lines = [_ascii(line) for line in lines]
    for line in lines:
        line.no_wrap, line.overflow = True, "crop"
    return lines


def _lines(drawn: Chart, width: int, marks: Glyphs) -> Iterator[Text]:
    preview = drawn.preview
    clock, makespan = preview.timeline.prices.clock, preview.makespan
    gutter = len(str(len(drawn.bars) - 1)) + 2
    axis = fitted(drawn, width - gutter - MARGIN)
    dot = f" {marks.dot} "
    yield from flow([Text(preview.schedule.name, "bold"), *map(Text, shape(preview))], width, dot)
    yield from flow([Text(item) for item in figures(preview)], width, dot)
    yield Text()
    yield Text(_beside("device", axis, gutter, "idle"), "dim")
    for device, use in enumerate(preview.timeline.devices):
        line = Text().append(f"{device:>{gutter - 1}} ", "dim")
        for run in row(drawn, device, axis, marks):
            line.append(run.text, palette.style(run.paint))
        line.append(percent(use.idle / makespan if makespan else 0.0).rjust(MARGIN), "dim")
        yield line
    unit = scale(clock, makespan)[1]
    yield Text(" " * gutter + ruler(axis, clock, makespan, marks.mark) + unit.rjust(MARGIN), "dim")
    yield from _memory(preview, axis, gutter, marks)
    yield Text()
    yield from flow(legend(drawn, marks), width, "   ")
    for part in wrap(preview.caption, width):
        yield Text(part, "dim")


def shape(preview: Preview) -> list[str]:
    """What a schedule is made of, in words."""
    layout = preview.schedule.layout
    counts = [
        (layout.num_devices, "device"),
        (layout.num_stages, "stage"),
        (layout.num_microbatches, "microbatch"),
        (preview.schedule.num_actions, "action"),
    ]
    return [plural(count, noun) for count, noun in counts]


def figures(preview: Preview) -> list[str]:
    """The three figures that a schedule is judged by."""
    peaks = [curve.peak for curve in preview.curves]
    where = f"device {peaks.index(preview.peak)}" if min(peaks) < preview.peak else "every device"
    return [
        f"makespan {figure(preview.makespan, preview.timeline.prices.clock)}",
        f"bubble {percent(preview.bubble)}",
        f"peak {preview.peak:.4g} microbatches on {where}",
    ]


def headline(preview: Preview, levels: Held) -> list[str]:
    """All figures of a schedule as a whole: the three, and what costs that know of a model add to them."""
    found = figures(preview)
    if preview.step != preview.makespan:
        found.insert(1, f"step {figure(preview.step, preview.timeline.prices.clock)}")
    if preview.tokens_per_second is not None:
        found.append(f"{preview.tokens_per_second:,.0f} tokens/s")
    if preview.memory is not None:
        found.append(f"{levels.figure(max(curve.peak for curve in levels.curves))} on a GPU")
    if preview.traffic is not None and preview.traffic.total:
        found.append(f"{levels.figure(preview.traffic.total)} between nodes")
    return found


def assumptions(preview: Preview, levels: Held) -> str:
    """What every figure of a picture rests on, in sentences: the clock's, and the bytes' where it shows them."""
    more = levels.caption
    return preview.caption + (f" {more[0].upper()}{more[1:]}." if more else "")


def plural(count: int, noun: str) -> str:
    """`1 device`, `2 devices`, `3 microbatches`, `4 processes`."""
    ending = "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def percent(ratio: float) -> str:
    """A ratio with one decimal."""
    return f"{100 * ratio:.1f} %"


def legend(drawn: Chart, marks: Glyphs) -> list[Text]:
    """Which letter, colour and texture is which."""
    items = []
    for state in dict.fromkeys(look.state for look in drawn.looks):
        item = Text()
        for look in sorted({look._replace(second=False) for look in drawn.looks if look.state == state}):
            swatch, style = (
                (f" {letter(look)} ", palette.style(Paint(look))) if marks.solid else (letter(look), "")
            )
            item.append(swatch, style)
        item.append(f" {NAMES[state]}" if marks.solid else f"{marks.textures[state] * 2} {NAMES[state]}")
        items.append(item)
    if drawn.tones:
        items.append(Text(f"capitals: {drawn.tones[0]}, small letters: {drawn.tones[1]}", "dim"))
    if marks.solid and any(look.second for look in drawn.looks):
        items.append(Text("underlined: 2nd stage of a device", "dim"))
    return items


def _memory(preview: Preview, axis: Axis, gutter: int, marks: Glyphs) -> Iterator[Text]:
    title = f"activation in microbatches, 0 to {preview.peak:.4g}"
    yield Text(_beside(title, axis, gutter, "peak"), "dim")
    for device, curve in enumerate(preview.curves):
        line = Text().append(f"{device:>{gutter - 1}} ", "dim")
        [cells] = strip(curve, axis, preview.makespan, preview.peak, marks)
        line.append(cells, palette.MEMORY)
        line.append(f"{curve.peak:.4g}".rjust(MARGIN), "dim")
        yield line


def _beside(title: str, axis: Axis, gutter: int, right: str) -> str:
    return title.ljust(gutter + axis.width) + right.rjust(MARGIN)


def flow(items: Sequence[Text], width: int, joint: str) -> Iterator[Text]:
    """Items behind one another, on a new line where the width ends."""
    line = Text()
    for item in items:
        if line and len(line) + len(joint) + len(item) > width:
            yield line
            line = Text()
        line.append(joint if line else "", "dim").append_text(item)
    yield line


def _ascii(line: Text) -> Text:
    plain = line.plain.replace("µ", "u").encode("ascii", "replace").decode()
    return Text(plain, spans=line.spans, style=line.style)
