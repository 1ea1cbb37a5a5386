"""The bars of an interactive chart, and the line of its critical path, as plotly's traces in plain dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contraflow.designer.design import Preview
from contraflow.designer.format.graph import NONE

from . import palette
from .chart import LETTERS, Chart, State
from .held import Held
from .hover import critical_nodes, texts
from .text import NAMES

LIGHTNESS: dict[State, float] = {"forward": 0.76, "input": 0.6, "backward": 0.44, "weight": 0.3}
"""Of a microbatch's colour, by kind."""
PATH = "#e5197f"
"""The critical path: a colour that no bar has."""


class BarTraces:
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
                NAMES[state],
                self.nodes[state],
                legendgroup=state,
                showlegend=False,
                width=0.82,
                marker={"color": colours, "line": {"width": 0}},
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                insidetextfont={"color": palette.INKS[state]},
            )
            for state, colours in zip(self.states, self.by_kind, strict=True)
        ]
        # A hidden trace has no colour for its key where its bars have one each.
        self.keys = [
            {
                "type": "bar",
                "name": f"{LETTERS[state]} {NAMES[state]}",
                "x": [None],
                "y": [None],
                "legendgroup": state,
                "marker": {"color": colours[0]},
            }
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
                state: [palette.hue(number, count, LIGHTNESS[state]) for number in group]
                for state in self.states
            }
            found[name] = [
                [tables[state][self.actions[node].microbatch or 0] for node in self.nodes[state]]
                for state in self.states
            ]
        return found


def path_trace(preview: Preview, factor: float) -> dict[str, Any]:
    """The critical path as a line from action to action, hidden at first."""
    timeline = preview.timeline
    nodes = critical_nodes(preview.explanation)
    times, time = list[float](), 0.0
    for node in nodes:
        # A reduction is posted before what it waits for has come.
        start, time = max(timeline.start[node], time), max(timeline.end[node], time)
        times += [round(start * factor, 6), round(time * factor, 6)]
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
