"""`contraflow explain`: what an action waited for, or where all the idle time comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from math import floor
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

SHOWN_RUN = 3
"""Of actions that followed one another on a device, before the last: more would not fit 80 columns."""


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
        there = " and ".join(f"device {graph.device[node]}" for node in named)
        raise Complaint(f"{token} runs on {there}, not on {device!r}")
    reason = _no_reduction(shown, token)
    if reason:
        raise Complaint(reason)
    # A microbatch that is cut needs its subsequence.
    near = f"{token}.0"
    if near not in map(str, graph.actions):
        near = get_close_matches(token, map(str, graph.actions), 1, 0.0)[0]
    raise Complaint(f"no action {token!r} in {shown.schedule.name}; did you mean {near}?")


def _no_reduction(shown: Preview, token: str) -> str | None:
    """Why a REDUCE_GRAD is not on the schedule's timeline; None for all other tokens."""
    from contraflow.designer.format.schedule import parse_token

    named, layout = parse_token(token), shown.schedule.layout
    if named is None or named.kind != "REDUCE_GRAD":
        return None
    if named.stage >= layout.num_stages:
        return (
            f"there is no stage {named.stage}: {shown.schedule.name} has stages 0 to {layout.num_stages - 1}"
        )
    copies = layout.copies[named.stage]
    if len(copies) == 1:
        return f"stage {named.stage} runs on device {copies[0]} alone: there are no gradients of copies to add up"
    return (
        f"{token} takes no time with --costs {shown.costs.name}, which leaves it out of the timeline; "
        "--costs MODEL-HARDWARE prices it"
    )


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
        mark = "  <- last" if other == found.binding[node] else ""
        yield f"  waited for {graph.actions[other]} {how} at {at(when)}{mark}"
        if found.ahead[other] >= 0 and other == graph.producer[node]:
            queued = found.queued(other)
            flight = when - timeline.end[other] - queued
            yield (
                f"    its message queued for {at(queued)} behind that of {graph.actions[found.ahead[other]]}, "
                f"then took {at(flight)}"
            )
    if found.binding[node] < 0:
        yield "  waited for nothing: it starts as soon as its device may"
    if node in found.gaps:
        gap = found.gaps[node]
        causes = ", ".join(f"{cause} {at(value)}" for cause, value in gap.by_cause().items())
        yield f"  its device was idle before it for {at(sum(gap))}: {causes}"
    links = list(found.chain(node))
    yield f"  float {at(found.floats[node])}: " + (
        "a delay up to that costs nothing"
        if found.floats[node]
        else "critical, any delay makes the whole schedule longer"
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
            followed = [str(graph.actions[entry.waited_for]) for entry in links[index:stop]]
            words = " ".join(followed)
            if len(followed) > SHOWN_RUN + 1:
                words = f"{' '.join(followed[:SHOWN_RUN])} ... {followed[-1]}, {len(followed)} in a row"
            yield f"{at(timeline.start[link.node]):>9}  {name} on device {here} followed {words}"
            index = stop
            continue
        other, there = graph.actions[link.waited_for], graph.device[link.waited_for]
        if link.why == "input":
            yield (
                f"{at(timeline.start[link.node]):>9}  {name} on device {here} waited for {other} of device {there} "
                f"(ended {at(timeline.end[link.waited_for])})"
            )
        elif link.why == "queue":
            yield f"{at(timeline.end[link.node]):>9}  {name}'s message queued behind that of {other}"
        else:
            yield f"{at(timeline.end[link.node]):>9}  {name} on device {here} waited for {other} of device {there}"
        index += 1


def idle_table(shown: Preview) -> Table:
    """Idle time by cause, one row for each device and one for their mean; every row adds up as it is shown."""
    from contraflow.designer.explain import CAUSES
    from contraflow.designer.export.axis import scale

    from . import report

    factor, unit = scale(shown.timeline.prices.clock, shown.makespan)
    idle = [[value * factor for value in entry.by_cause().values()] for entry in shown.explanation.idle]
    idle.append([sum(column) / len(idle) for column in zip(*idle, strict=True)])
    digits = 2 if unit else 4
    rows = [adding_up(row, digits) for row in idle]
    columns = [
        report.column(column, digits) for column in zip(*([sum(row), *row] for row in rows), strict=True)
    ]
    table = report.plain_table("device", f"idle ({unit})" if unit else "idle", *CAUSES)
    for row in zip([*map(str, range(len(idle) - 1)), "mean"], *columns, strict=True):
        table.add_row(*row)
    return table


def adding_up(values: Sequence[float], digits: int) -> list[float]:
    """Values of at least 0 rounded to so many decimals, such that they add up to their rounded sum."""
    steps = [value * 10**digits for value in values]
    whole = [floor(step + 1e-9) for step in steps]
    # Those go up that would lose most.
    most = sorted(range(len(steps)), key=lambda index: whole[index] - steps[index])
    for index in most[: round(sum(steps)) - sum(whole)]:
        whole[index] += 1
    return [count / 10**digits for count in whole]


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
        "critical": not found.floats[node],
        "idle_before": found.gaps[node].by_cause() if node in found.gaps else {},
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
