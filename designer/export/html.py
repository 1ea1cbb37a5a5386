"""A preview as a page of its own, for a browser without a network: Gantt chart and memory on one axis, by plotly.

The chart is one trace for each kind of action, as plain dictionaries: a trace or an object for each bar would take
seconds. The buttons are those of page.py, which hold no figures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from colorsys import hls_to_rgb
from html import escape
from typing import Any

from contraflow.designer.design import Preview
from contraflow.designer.explain import CAUSES
from contraflow.designer.format.graph import NONE

from . import palette
from .axis import scale
from .chart import LETTERS, Chart, State, chart
from .held import Held, held
from .hover import critical_nodes, texts
from .page import PAGE, SCRIPT, STYLE
from .text import NAMES, assumptions, headline, percent, shape

LIGHTNESS: dict[State, float] = {"forward": 0.76, "input": 0.6, "backward": 0.44, "weight": 0.3}
"""Of a microbatch's colour, by kind."""
PATH = "#e5197f"
"""The critical path: a colour that no bar has."""
FEW = 1500
"""Actions of a chart that has words in all bars with room for them from the beginning."""
STRIP = 0.86
"""What a memory curve takes of the distance from one device's to the next one's."""


def dumps(preview: Preview) -> str:
    """The page, with everything that it needs in it."""
    from plotly.offline import get_plotlyjs

    levels = held(preview)
    chart = _chart(preview, levels)
    rows = len(preview.timeline.devices)
    controls = [
        _choice(
            "colour", "colour by", ["kind", "microbatch", *["direction"] * ("direction" in chart["colours"])]
        ),
        _choice("memory", "memory", ["apart", "together", "off"]),
        '<fieldset><button data-what="critical" aria-pressed="false">critical path</button></fieldset>',
    ]
    return PAGE.format(
        title=escape(preview.schedule.name),
        shape=" · ".join(shape(preview)),
        figures=" · ".join(headline(preview, levels)),
        caption=escape(assumptions(preview, levels)),
        controls="".join(controls),
        key=_key(chart["tones"]),
        table=_table(preview, levels),
        height=min(max(460, 150 + 48 * rows), 1600),
        style=STYLE,
        script=SCRIPT,
        library=get_plotlyjs(),
        # So that no name can end the script that it stands in.
        chart=json.dumps(chart, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _chart(preview: Preview, levels: Held) -> dict[str, Any]:
    """What the page's script reads: plotly's figure, and what the buttons change in it."""
    drawn = chart(preview)
    factor, unit = scale(preview.timeline.prices.clock, preview.makespan)
    bars = _Bars(drawn, levels, factor)
    curves = [_curve(preview, levels, device, factor) for device in range(len(drawn.bars))]
    if levels.cap is not None:
        curves.append(_cap(preview, levels, factor))
    data = [*bars.traces, *([bars.reductions] if bars.reductions else []), *curves, _path(preview, factor)]
    first = len(data) - 1 - len(curves)
    apart, together = _apart(levels, curves), _together(levels, curves)
    for number, curve in enumerate(curves):
        curve["y"], curve["fill"] = apart["curves"]["y"][number], apart["curves"]["fill"][number]
    return {
        "data": data,
        "layout": _layout(preview, unit, factor, apart["layout"]),
        "config": {
            "responsive": True,
            "displaylogo": False,
            # Nothing of a schedule leaves the machine by a slip of the mouse.
            "showSendToCloud": False,
            "plotlyServerURL": "",
            "modeBarButtonsToRemove": ["select2d", "lasso2d"],
        },
        "bars": list(range(len(bars.traces))),
        "curves": list(range(first, first + len(curves))),
        "path": len(data) - 1,
        "colours": bars.colours(),
        "faded": bars.faded,
        "names": bars.names,
        "tones": drawn.tones,
        "few": len(preview.timeline.graph.actions) <= FEW,
        "shortest": drawn.shortest * factor,
        "domain": DOMAIN,
        "memory": {"apart": apart, "together": together},
    }


DOMAIN = [0.4, 1.0]
"""Of the height, what the Gantt chart takes beside the memory."""


class _Bars:
    """One trace for each kind of action, and what of it depends on the buttons."""

    def __init__(self, drawn: Chart, levels: Held, factor: float) -> None:
        preview = drawn.preview
        timeline, explanation = preview.timeline, preview.explanation
        self.actions = timeline.graph.actions
        self.layout = preview.schedule.layout
        self.states: list[State] = list(dict.fromkeys(look.state for look in drawn.looks))
        self.nodes: dict[State, list[int]] = {state: [] for state in self.states}
        looks: dict[State, list[int]] = {state: [] for state in self.states}
        for bars in drawn.bars:
            for node, number in zip(bars.nodes, bars.looks, strict=True):
                state = drawn.looks[number].state
                self.nodes[state].append(node)
                looks[state].append(number)
        grounds = [palette.ground(look) for look in drawn.looks]
        self.by_kind = [[grounds[number] for number in looks[state]] for state in self.states]
        on_path = set(critical_nodes(explanation))
        self.faded = [[1 if node in on_path else 0.2 for node in self.nodes[s]] for s in self.states]
        self.names = [[str(self.actions[node]) for node in self.nodes[state]] for state in self.states]
        hover = texts(preview, levels, explanation)
        times = [round(time * factor, 6) for time in timeline.start]
        lengths = [
            round((end - start) * factor, 6) for start, end in zip(timeline.start, timeline.end, strict=True)
        ]
        device = timeline.graph.device

        def trace(name: str, nodes: Sequence[int], **more: Any) -> dict[str, Any]:
            return {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [device[node] for node in nodes],
                "base": [times[node] for node in nodes],
                "x": [lengths[node] for node in nodes],
                "hovertext": [hover[node] for node in nodes],
                "hovertemplate": "%{hovertext}<extra></extra>",
                **more,
            }

        self.traces = [
            trace(
                f"{LETTERS[state]} {NAMES[state]}",
                self.nodes[state],
                width=0.82,
                marker={"color": colours, "line": {"width": 0}},
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                insidetextfont={"color": palette.INKS[state]},
            )
            for state, colours in zip(self.states, self.by_kind, strict=True)
        ]
        posted = [node for node, slot in enumerate(timeline.graph.slot) if slot == NONE]
        self.reductions = posted and trace(
            "gradients to their owner", posted, width=0.09, offset=0.41, marker={"color": palette.REDUCTION}
        )

    def colours(self) -> dict[str, list[list[str | None]]]:
        """By what the bars are coloured, those of each trace."""
        found: dict[str, list[list[str | None]]] = {"kind": self.by_kind}
        groups: dict[str, Sequence[int]] = {"microbatch": range(self.layout.num_microbatches)}
        if len(self.layout.directions) > 1:
            groups["direction"] = self.layout.direction_of
        for name, group in groups.items():
            count = max(group) + 1
            tables = {
                state: [_hue(number, count, LIGHTNESS[state]) for number in group] for state in self.states
            }
            found[name] = [
                [tables[state][self.actions[node].microbatch or 0] for node in self.nodes[state]]
                for state in self.states
            ]
        return found


def _hue(number: int, count: int, lightness: float) -> str:
    """Hues far apart for numbers that are near."""
    turn = number / count if count <= 6 else number * 0.618034
    red, green, blue = (round(255 * part) for part in hls_to_rgb((0.58 + turn) % 1, lightness, 0.62))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _curve(preview: Preview, levels: Held, device: int, factor: float) -> dict[str, Any]:
    """A device's memory as steps; it begins and ends on the ground, so that it can be filled."""
    curve, end = levels.curves[device], preview.makespan
    times = [round(time * factor, 6) for time in curve.times]
    last = round(end * factor, 6)
    words = [f"device {device} holds {levels.figure(level)}" for level in curve.levels]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"device {device}",
        "x": [0, *times, last, last],
        "hovertext": [words[0], *words, words[-1], words[-1]],
        "hovertemplate": "%{hovertext}<br>from %{x}<extra></extra>",
        "line": {"shape": "hv", "width": 1.4, "color": palette.MEMORY},
        "hoveron": "points",
        "yaxis": "y2",
        "showlegend": False,
    }


def _cap(preview: Preview, levels: Held, factor: float) -> dict[str, Any]:
    """The line, on each device's strip, of what a device has."""
    assert levels.cap is not None
    end = round(preview.makespan * factor, 6)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "what a GPU has",
        "x": [0, end, None] * len(levels.curves),
        "hovertemplate": f"a GPU has {levels.figure(levels.cap)}<extra></extra>",
        "line": {"width": 1, "dash": "dash", "color": palette.MEMORY},
        "yaxis": "y2",
        "showlegend": False,
    }


def _apart(levels: Held, curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each device's curve on ground of its own, in the order of the chart above."""
    count, step = len(levels.curves), STRIP / levels.top
    y: list[list[float | None]] = [
        [-device, *[round(step * level - device, 5) for level in curve.levels], None, -device]
        for device, curve in enumerate(levels.curves)
    ]
    for heights in y:
        heights[-2] = heights[-3]
    cap = [value for device in range(count) for value in (*[step * (levels.cap or 0.0) - device] * 2, None)]
    layout = {
        "yaxis2.title.text": f"{levels.title}<br>each 0 to {levels.figure(levels.top)}",
        "yaxis2.tickvals": [STRIP / 2 - device for device in range(count)],
        "yaxis2.ticktext": [str(device) for device in range(count)],
        "yaxis2.range": [0.95 - count, 1],
        "yaxis2.showgrid": False,
    }
    return _view([*y, cap], [palette.MEMORY] * count, "toself", len(curves), layout)


def _together(levels: Held, curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All curves over one scale of figures."""
    count = len(levels.curves)
    heights = [[round(level * levels.factor, 5) for level in curve.levels] for curve in levels.curves]
    y: list[list[float | None]] = [[each[0], *each, each[-1], each[-1]] for each in heights]
    cap = [*[(levels.cap or 0.0) * levels.factor] * 2, None] * count
    layout = {
        "yaxis2.title.text": f"{levels.title}<br>{levels.unit}",
        "yaxis2.tickvals": None,
        "yaxis2.ticktext": None,
        "yaxis2.range": [0, 1.06 * levels.top * levels.factor],
        "yaxis2.showgrid": True,
    }
    colours = [_hue(device, count, 0.55) for device in range(count)]
    return _view([*y, cap], colours, "none", len(curves), layout)


def _view(
    y: Sequence[Sequence[float | None]], colours: Sequence[str], fill: str, count: int, layout: dict[str, Any]
) -> dict[str, Any]:
    """What changes from one way to show the `count` curves to another; without a cap there is one less than in `y`."""
    return {
        "curves": {
            "y": list(y)[:count],
            "line.color": [*colours, palette.MEMORY][:count],
            "fill": [*[fill] * len(colours), "none"][:count],
            "showlegend": [*[fill == "none"] * len(colours), False][:count],
        },
        "layout": layout,
    }


def _path(preview: Preview, factor: float) -> dict[str, Any]:
    """The critical path as a line from action to action, hidden at first."""
    timeline = preview.timeline
    nodes = critical_nodes(preview.explanation)
    times = [round(time * factor, 6) for node in nodes for time in (timeline.start[node], timeline.end[node])]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "critical path",
        "x": times,
        "y": [timeline.graph.device[node] for node in nodes for _ in range(2)],
        "line": {"color": PATH, "width": 2},
        "hoverinfo": "skip",
        "visible": False,
    }


def _layout(preview: Preview, unit: str, factor: float, memory: dict[str, Any]) -> dict[str, Any]:
    rows = len(preview.timeline.devices)
    second = {
        key.removeprefix("yaxis2."): value for key, value in memory.items() if key != "yaxis2.title.text"
    }
    return {
        "barmode": "overlay",
        "hovermode": "closest",
        "dragmode": "zoom",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 70, "r": 12, "t": 34, "b": 44},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        # Grounds, on which idle time shows.
        "shapes": [
            {
                "type": "rect",
                "layer": "below",
                "x0": 0,
                "x1": preview.makespan * factor,
                "y0": row - 0.41,
                "y1": row + 0.41,
                "line": {"width": 0},
                "fillcolor": "rgba(128,142,160,.14)",
            }
            for row in range(rows)
        ],
        "hoverlabel": {"align": "left", "namelength": -1},
        "uniformtext": {"mode": "hide", "minsize": 9},
        "xaxis": {
            "title": {"text": f"time ({unit})" if unit else "time"},
            "range": [0, preview.makespan * factor or 1],
            "anchor": "free",
            "position": 0,
            "zeroline": False,
        },
        "yaxis": {
            "title": {"text": "device"},
            "range": [rows - 0.5, -0.5],
            "tickvals": list(range(rows)),
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
            "domain": DOMAIN,
        },
        "yaxis2": {
            "title": {"text": memory["yaxis2.title.text"]},
            "fixedrange": True,
            "zeroline": False,
            "domain": [0, DOMAIN[0] - 0.06],
            **second,
        },
    }


def _choice(what: str, words: str, values: Sequence[str]) -> str:
    """Buttons of which one is pressed, the first one at the beginning."""
    pressed = ["true", *["false"] * (len(values) - 1)]
    buttons = "".join(
        f'<button data-what="{what}" data-value="{value}" aria-pressed="{yes}">{value}</button>'
        for value, yes in zip(values, pressed, strict=True)
    )
    return f"<fieldset><legend>{words}</legend>{buttons}</fieldset>"


def _key(tones: Sequence[str]) -> str:
    """Which shade is which."""
    if not tones:
        return ""
    light, dark = map(escape, tones)
    return f'<p class="dim">by kind, the lighter shade: {light}, the darker: {dark}</p>'


def _table(preview: Preview, levels: Held) -> str:
    """Every device's idle time by its causes, and its peak."""
    whole = preview.makespan or 1.0
    causes = [idle.by_cause() for idle in preview.explanation.idle]
    used = [cause for cause in CAUSES if any(row[cause] for row in causes)]
    heads = ["device", "idle", *used, f"peak ({levels.unit})"]
    rows = [
        [
            str(device),
            percent(use.idle / whole),
            *[percent(row[cause] / whole) for cause in used],
            levels.number(curve.peak),
        ]
        for device, (use, row, curve) in enumerate(
            zip(preview.timeline.devices, causes, levels.curves, strict=True)
        )
    ]
    head = "".join(f'<th scope="col">{word}</th>' for word in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<table><caption>idle time and its causes, as shares of the makespan</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
