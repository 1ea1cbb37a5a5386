"""Memory curves of an interactive chart as plotly's traces, and the two ways to show them: apart and together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contraflow.designer.design import Preview

from . import palette
from .held import Held

STRIP = 0.86
"""What a memory curve takes of the distance from one device's to the next one's."""


def curve_traces(preview: Preview, levels: Held, factor: float) -> list[dict[str, Any]]:
    """One for each device, and one for what a device has where that is known; times are multiplied by `factor`."""
    found = [_curve(preview, levels, device, factor) for device in range(len(levels.curves))]
    return found if levels.cap is None else [*found, _cap(preview, levels, factor)]


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


def apart(levels: Held, curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
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


def together(levels: Held, curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
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
    colours = [palette.hue(device, count, 0.55) for device in range(count)]
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
