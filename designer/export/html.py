"""A preview as a page of its own, for a browser without a network: Gantt chart and memory on one axis, by plotly.

The chart is one trace for each kind of action, as plain dictionaries: a trace or an object for each bar would take
seconds. The buttons are those of page.py, which hold no figures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from contraflow.designer.design import Preview
from contraflow.designer.explain import CAUSES

from .axis import scale
from .chart import chart
from .curves import apart, curve_traces, together
from .held import Held, held
from .page import PAGE, SCRIPT, STYLE
from .text import assumptions, headline, percent, shape
from .traces import BarTraces, path_trace

FEW = 1500
"""Actions of a chart that has words in all bars with room for them from the beginning."""


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
        height=min(max(340, 240 + 56 * rows), 1600),
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
    bars = BarTraces(drawn, levels, factor)
    curves = curve_traces(preview, levels, factor)
    data = [
        *bars.traces,
        *bars.keys,
        *([bars.reductions] if bars.reductions else []),
        *curves,
        path_trace(preview, factor),
    ]
    first = len(data) - 1 - len(curves)
    views = {"apart": apart(levels, curves), "together": together(levels, curves)}
    for number, curve in enumerate(curves):
        curve |= {key: views["apart"]["curves"][key][number] for key in ("y", "fill")}
    return {
        "data": data,
        "layout": _layout(preview, unit, factor, views["apart"]["layout"]),
        "config": {
            "responsive": True,
            "displaylogo": False,
            # Nothing of a schedule leaves the machine by a slip of the mouse.
            "showSendToCloud": False,
            "plotlyServerURL": "",
            "modeBarButtonsToRemove": ["select2d", "lasso2d"],
        },
        "bars": list(range(len(bars.traces))),
        "keys": list(range(len(bars.traces), 2 * len(bars.traces))),
        "curves": list(range(first, first + len(curves))),
        "path": len(data) - 1,
        "colours": bars.colours(),
        "faded": bars.faded,
        "names": bars.names,
        "tones": drawn.tones,
        "few": len(preview.timeline.graph.actions) <= FEW,
        "shortest": drawn.shortest * factor,
        "domain": DOMAIN,
        "memory": views,
    }


DOMAIN = [0.4, 1.0]
"""Of the height, what the Gantt chart takes beside the memory."""


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
