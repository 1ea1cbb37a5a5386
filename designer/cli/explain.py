"""`contraflow explain`: what an action waited for, or where all the idle time comes from."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import Costs, File, Json
from .exit import Complaint, Exit
from .output import draw, put, put_json

if TYPE_CHECKING:
    from rich.table import Table

    from contraflow.designer.design import Preview
    from contraflow.designer.explain import Link

ActionName = Annotated[
    str | None,
    typer.Argument(
        metavar="ACTION",
        help="such as 3F1.0, or d1:3REDUCE_GRAD where the device must be told; without one, idle time by its causes",
    ),
]

SHOWN_LINKS = 40
"""Of a chain; the rest is counted."""


def explain(file: File, action: ActionName = None, costs: Costs = "unit", json: Json = False) -> Exit:
    """What an action waited for, the chain of waits back to time zero, and whether it is on the critical path."""
    from contraflow.designer.costs import named

    from . import report

    shown = report.read(file, named(costs))
    if action is None:
        if json:
            put_json(all_idle(shown))
        else:
            draw(report.headline(shown), idle_table(shown), "", critical_path(shown), "", shown.caption)
        return Exit.FINE
    node = find(shown, action)
    if json:
        put_json(entry(shown, node))
    else:
        put("".join(f"{line}\n" for line in story(shown, node)))
        draw("", shown.caption)
    return Exit.FINE


def find(shown: Preview, word: str) -> int:
    """The node that a person names. Raises Complaint where there is none, or more than one."""
    graph = shown.timeline.graph
    device, _, token = word.rpartition(":")
    named = [node for node, action in enumerate(graph.actions) if str(action) == token]
    found = [node for node in named if device in ("", f"d{graph.device[node]}")]
    if len(found) == 1:
        return found[0]
    if found:
        choices = ", ".join(f"d{graph.device[node]}:{token}" for node in found)
        raise Complaint(f"{token} runs on several devices; name one of {choices}")
    if named:
        raise Complaint(f"{token} runs on device {graph.device[named[0]]}, not on {device!r}")
    # A microbatch that is cut needs its subsequence.
    near = f"{token}.0"
    if near not in map(str, graph.actions):
        near = get_close_matches(token, map(str, graph.actions), 1, 0.0)[0]
    raise Complaint(f"no action {token!r} in {shown.schedule.name}; did you mean {near}?")


class Clock:
    """Times as people read them, all on one scale."""

    def __init__(self, shown: Preview) -> None:
        from contraflow.designer.export.axis import scale

        self._factor, self.unit = scale(shown.timeline.prices.clock, shown.makespan)

    def __call__(self, time: float) -> str:
        number = f"{round(time * self._factor, 4):g}"
        return f"{number} {self.unit}" if self.unit else number


def story(shown: Preview, node: int) -> Iterator[str]:
    """What happened to an action, line by line."""
    timeline, found, at = shown.timeline, shown.explanation, Clock(shown)
    graph = timeline.graph
    here, name = graph.device[node], graph.actions[node]
    position = node - graph.first[here]
    yield f"{name}: device {here}, action {position}, from {at(timeline.start[node])} to {at(timeline.end[node])}"
    yield ""
    for other, when, how in waits(shown, node):
        mark = "  <- the last" if other == found.binding[node] else ""
        yield f"  waited for {graph.actions[other]} {how} at {at(when)}{mark}"
    if found.binding[node] < 0:
        yield "  waited for nothing: it starts as soon as its device may"
    before = _before(shown, node)
    free = 0.0 if before is None else timeline.end[before]
    if timeline.start[node] > free:
        yield f"  its device was idle before it for {at(timeline.start[node] - free)}"
    links = list(found.chain(node))
    last_bound = found.floats[node] == 0
    yield f"  float {at(found.floats[node])}: " + (
        "any delay makes the whole schedule longer" if last_bound else "a delay up to that costs nothing"
    )
    if links:
        yield ""
        yield "the chain of waits, back to time zero:"
        yield from (f"  {line}" for line in told(shown, links))


def _before(shown: Preview, node: int) -> int | None:
    graph = shown.timeline.graph
    return next(
        (
            other
            for other in range(node - 1, graph.first[graph.device[node]] - 1, -1)
            if graph.slot[other] >= 0
        ),
        None,
    )


def waits(shown: Preview, node: int) -> Iterator[tuple[int, float, str]]:
    """All that an action waits for: the node, when it was there, and how."""
    from contraflow.designer.format.graph import waits as waits_of

    timeline = shown.timeline
    graph, before = timeline.graph, _before(shown, node)
    if graph.slot[node] < 0:
        # A reduction waits for every backward of its stage: of these the last is enough.
        others = []
        bound = shown.explanation.binding[node]
        if bound not in (-1, before):
            yield bound, timeline.end[bound], f"on device {graph.device[bound]}, whose gradients were through"
    else:
        others = waits_of(graph, node)
    for other in others:
        if other != graph.producer[node]:
            yield other, timeline.end[other], "of its own stage, which ended"
        elif graph.device[other] == graph.device[node]:
            yield other, timeline.end[other], "on its own device, whose product was there"
        else:
            yield other, timeline.arrival[other], f"on device {graph.device[other]}, whose message was here"
    if before is not None and before not in others:
        yield before, timeline.end[before], "before it on its device, which ended"


def told(shown: Preview, links: list[Link]) -> Iterator[str]:
    """A chain in words; runs of actions that only followed one another on a device in one line."""
    timeline, at = shown.timeline, Clock(shown)
    graph = timeline.graph
    index = count = 0
    while index < len(links):
        if count == SHOWN_LINKS:
            yield f"... and {len(links) - index} more"
            return
        count += 1
        link = links[index]
        here, name = graph.device[link.node], graph.actions[link.node]
        if link.why == "order":
            stop = index
            while stop < len(links) and links[stop].why == "order":
                stop += 1
            followed = [graph.actions[entry.waited_for] for entry in links[index:stop]]
            words = " ".join(map(str, followed[:8])) + (f" ... {followed[-1]}" if len(followed) > 8 else "")
            yield f"{at(timeline.start[link.node]):>9}  {name} on device {here} followed {words}"
            index = stop
            continue
        other, there = graph.actions[link.waited_for], graph.device[link.waited_for]
        if link.why == "input":
            yield (
                f"{at(timeline.start[link.node]):>9}  {name} on device {here} waited for {other} of device {there}, "
                f"which ended at {at(timeline.end[link.waited_for])}"
            )
        elif link.why == "queue":
            yield f"{at(timeline.end[link.node]):>9}  {name}'s message queued behind that of {other}"
        else:
            yield f"{at(timeline.end[link.node]):>9}  {name} on device {here} waited for {other} of device {there}"
        index += 1


def idle_table(shown: Preview) -> Table:
    """Idle time by cause, one row for each device and one for their mean."""
    from contraflow.designer.explain import CAUSES

    from . import report

    idle = [entry.by_cause() for entry in shown.explanation.idle]
    rows = [*idle, {cause: sum(entry[cause] for entry in idle) / len(idle) for cause in CAUSES}]
    unit, totals = report.times([shown], [sum(row.values()) for row in rows])
    columns = [report.times([shown], [row[cause] for row in rows])[1] for cause in CAUSES]
    table = report.plain_table("device", f"idle ({unit})" if unit else "idle", *CAUSES)
    names = [*map(str, range(len(idle))), "mean"]
    for row in zip(names, totals, *columns, strict=True):
        table.add_row(*row)
    return table


def critical_path(shown: Preview) -> str:
    """How the time from zero to the makespan is filled, in one sentence."""
    timeline, found, at = shown.timeline, shown.explanation, Clock(shown)
    links = found.critical
    messages = sum(
        timeline.start[link.node] - timeline.end[link.waited_for] for link in links if link.why == "input"
    )
    free = sum(not float_ for float_ in found.floats)
    return (
        f"The critical path has {len(links) + 1} actions and changes devices "
        f"{sum(link.why == 'input' for link in links)} times, {at(messages)} of it on messages. "
        f"{free} of {len(found.floats)} actions bear no delay."
    )


def all_idle(shown: Preview) -> dict[str, Any]:
    """Causes of idle time and the critical path, as JSON."""
    graph, found = shown.timeline.graph, shown.explanation
    path = [*(link.node for link in found.critical), *(link.waited_for for link in found.critical[-1:])]
    return {
        "clock": shown.timeline.prices.clock,
        "costs": shown.costs.name,
        "makespan": shown.makespan,
        "idle": [entry.by_cause() for entry in found.idle],
        "critical": [
            {"device": graph.device[node], "action": str(graph.actions[node])} for node in reversed(path)
        ],
    }


def entry(shown: Preview, node: int) -> dict[str, Any]:
    """All that is known of one action, as JSON."""
    timeline, found = shown.timeline, shown.explanation
    graph = timeline.graph
    return {
        "action": str(graph.actions[node]),
        "device": graph.device[node],
        "position": node - graph.first[graph.device[node]],
        "start": timeline.start[node],
        "end": timeline.end[node],
        "float": found.floats[node],
        "critical": node in {n for link in found.critical for n in (link.node, link.waited_for)},
        "waits": [
            {"action": str(graph.actions[other]), "device": graph.device[other], "until": when,
             "last": other == found.binding[node]}
            for other, when, _ in waits(shown, node)
        ],
        "chain": [
            {"action": str(graph.actions[one]), "waited_for": str(graph.actions[other]), "why": why}
            for one, other, why in found.chain(node)
        ],
    }  # fmt: skip
