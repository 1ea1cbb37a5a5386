"""Everything known of an action, in lines for a pointer that rests on it."""

from __future__ import annotations

from bisect import bisect_right
from html import escape
from itertools import pairwise

from contraflow.designer.design import Preview
from contraflow.designer.explain import Explanation, Why
from contraflow.designer.format.graph import NONE, waits
from contraflow.designer.format.schedule import Layout

from .axis import scale
from .held import Held
from .text import NAMES

WORDS = {
    "F": NAMES["forward"],
    "B": NAMES["backward"],
    "I": NAMES["input"],
    "W": NAMES["weight"],
    "REDUCE_GRAD": "gradients to their owner",
}
BOUND: dict[Why, str] = {
    "order": "the action before it",
    "input": "its input",
    "reduction": "other gradients",
}


def texts(preview: Preview, levels: Held, found: Explanation | None = None) -> list[str]:
    """Of every node, in plotly's subset of HTML: what it is, when it runs, what it waits for, what it sends and what
    its device holds; with an explanation also what bound its start and what a delay would do.
    """
    timeline, graph = preview.timeline, preview.timeline.graph
    device, producer, consumer, slot = graph.device, graph.producer, graph.consumer, graph.slot
    # Each of these is needed several times over, so it is put into words once.
    names = [str(action) for action in graph.actions]
    factor, unit = scale(timeline.prices.clock, preview.makespan)
    behind = f" {unit}" if unit else ""
    starts, ends, arrivals = (
        [f"{time * factor:.6g}{behind}" for time in times]
        for times in (timeline.start, timeline.end, timeline.arrival)
    )
    pieces, held = _pieces(preview.schedule.layout), _held(preview, levels)
    on_path = set() if found is None else set(critical_nodes(found))
    lines = []
    for node, (stage, kind, microbatch, subsequence) in enumerate(graph.actions):
        here = device[node]
        text = f"<b>{names[node]}</b> {WORDS[kind]} on device {here}<br>stage {stage}"
        if microbatch is not None:
            text += pieces[microbatch][subsequence or 0]
        length = (timeline.end[node] - timeline.start[node]) * factor
        text += f"<br>from {starts[node]} to {ends[node]}, takes {length:.6g}{behind}"
        if slot[node] != NONE:
            source, target = producer[node], consumer[node]
            for other in waits(graph, node):
                if other != source:
                    text += f"<br>after {names[other]}, which ends at {ends[other]}"
                elif device[other] == here:
                    text += f"<br>input of {names[other]} on this device, there at {ends[other]}"
                else:
                    text += (
                        f"<br>input of {names[other]} from device {device[other]}, here at {arrivals[other]}"
                    )
            if target != NONE and device[target] == here:
                text += f"<br>makes the input of {names[target]} on this device"
            elif target != NONE:
                text += f"<br>sends to {names[target]} on device {device[target]}, there at {arrivals[node]}"
        text += held[node]
        if found is not None:
            bound, spare = found.binding[node], found.floats[node] * factor
            last = "nothing" if bound == NONE else f"{names[bound]}, {BOUND[found.why(node)]}"
            delay = f"float {spare:.6g}{behind}" if spare > 0 else "any delay makes the whole longer"
            text += f"<br><i>waits last for {last}</i><br><i>{'on the critical path: ' * (node in on_path)}{delay}</i>"
        lines.append(text)
    return lines


def _pieces(layout: Layout) -> list[list[str]]:
    """What is to be said of each subsequence of each microbatch."""
    names = [escape(direction.name, quote=False) for direction in layout.directions]
    return [
        [
            f" · microbatch {microbatch}"
            + (f" · subsequence {number} of {len(split)}" if len(split) > 1 else "")
            + f"<br>tokens {low:,} to {high - 1:,} ({high - low:,}), direction {names[direction]}"
            for number, (low, high) in enumerate(layout.borders(microbatch))
        ]
        for microbatch, (split, direction) in enumerate(zip(layout.splits, layout.direction_of, strict=True))
    ]


def _held(preview: Preview, levels: Held) -> list[str]:
    """What its device holds while each node runs."""
    lines: list[str] = []
    if preview.memory is not None:
        for curve in preview.memory:
            lines += [
                f"<br>a GPU holds up to {levels.figure(highest)}, {levels.figure(kept)} afterwards"
                for highest, kept in zip(curve.highest, curve.kept, strict=True)
            ]
        return lines
    for held, (low, high) in zip(levels.curves, pairwise(preview.timeline.graph.first), strict=True):
        for start in preview.timeline.start[low:high]:
            level = held.levels[bisect_right(held.times, start) - 1]
            lines.append(f"<br>the device holds {levels.figure(level)}")
    return lines


def critical_nodes(found: Explanation) -> list[int]:
    """The critical path, each node once, from its beginning."""
    nodes = [node for link in found.critical for node in (link.node, link.waited_for)]
    return list(dict.fromkeys(reversed(nodes)))
