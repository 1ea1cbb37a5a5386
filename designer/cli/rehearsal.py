"""A rehearsal as it is shown: what is played, priced, and measured beside predicted for every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table

from contraflow.designer.costs.prices import CostModel, Link
from contraflow.designer.costs.rehearsed import rehearsed
from contraflow.designer.design import Preview, preview
from contraflow.designer.export.axis import figure
from contraflow.designer.export.text import plural
from contraflow.designer.format.graph import NONE
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.simulate import Timeline

from .output import narrate
from .report import plain_table

Pair = tuple[int, int]
"""Source and target, two devices."""

FINE = 0.012
"""Seconds of an action from which on 3 % can be kept."""


class Rehearsal:
    """What is played, priced; and what is heard of it. Raises CostError.

    Actions take `scale` seconds for 1 on the clock of `costs`; `delays` has every lane's.
    """

    def __init__(
        self, schedule: Schedule, costs: CostModel, scale: float, delays: Mapping[Pair, float]
    ) -> None:
        self.schedule, self.delays = schedule, delays
        self.predicted: Preview | None = None
        """Known as soon as the lanes have been timed."""
        self.runs: list[Sequence[float]] = []
        """Of each time when every device ended, in seconds since all began."""
        self._costs, self._scale = costs, scale
        self._lanes: Mapping[Pair, Link] = {pair: Link(0.0, 0.0) for pair in self.delays}
        self.planned = self._preview()
        """As if messages took no longer than they are delayed."""

    @property
    def shortest(self) -> float:
        """Seconds of the shortest action that takes any."""
        timeline = self.planned.timeline
        graph, durations = timeline.graph, timeline.prices.durations()
        nodes = zip(graph.actions, graph.slot, strict=True)
        spans = [durations[action.kind][slot] for action, slot in nodes if slot != NONE]
        return min([span for span in spans if span], default=0.0)

    def hear(self, report: Any) -> None:
        """Take in one report of `engine.rehearse`."""
        from contraflow.engine.rehearse import Flights, Played

        if isinstance(report, Flights):
            self._lanes = {pair: Link(*flight) for pair, flight in report.flights.items()}
            self.predicted = self._preview()
            self._announce(self.predicted.makespan)
        elif isinstance(report, Played):
            self.runs.append(report.ends)
            narrate(f"measured {_seconds(max(report.ends))}")

    def facts(self) -> dict[str, Any]:
        """What was played, as JSON."""
        return {
            "name": self.schedule.name,
            "costs": self._costs.name,
            "shortest_action_s": self.shortest,
            "lanes": [
                {
                    "source": pair[0],
                    "target": pair[1],
                    "latency_s": link.latency,
                    "token_s": link.slowness,
                    "delay_s": self.delays[pair],
                }
                for pair, link in sorted(self._lanes.items())
            ],
        }

    def _preview(self) -> Preview:
        lanes = {
            pair: Link(link.latency + self.delays[pair], link.slowness) for pair, link in self._lanes.items()
        }
        return preview(self.schedule, rehearsed(self._costs, self._scale, lanes))

    def _announce(self, makespan: float) -> None:
        num_devices = self.schedule.layout.num_devices
        narrate(
            f"{self.schedule.name}: {plural(num_devices, 'process')}, "
            f"actions of {_seconds(self.shortest)} and more, predicted {_seconds(makespan)}"
        )
        latencies = [link.latency for link in self._lanes.values()]
        if latencies:
            narrate(f"a message takes {_seconds(min(latencies))} to {_seconds(max(latencies))}")
        if self.shortest < FINE:
            narrate(f"below {_seconds(FINE)} an error of 3 % cannot be kept: a larger --scale can")


def outcome(predicted: Timeline, runs: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Predicted and measured seconds as JSON, of all and of each device: medians over the runs."""
    expected = ends(predicted)
    measured = [median(times) for times in zip(*runs, strict=True)]
    makespan = median(max(run) for run in runs)
    alone = sum(use.busy for use in predicted.devices)
    return {
        **_compared(predicted.makespan, makespan),
        "runs_s": [max(run) for run in runs],
        "alone_s": alone,
        "speedup_predicted": _ratio(alone, predicted.makespan),
        "speedup": _ratio(alone, makespan),
        "devices": [_compared(*pair) for pair in zip(expected, measured, strict=True)],
    }


def ends(timeline: Timeline) -> list[float]:
    """When each device has done its last action, and has what is reduced to it."""
    graph, found = timeline.graph, [0.0] * timeline.graph.layout.num_devices
    for node, (here, end) in enumerate(zip(graph.device, timeline.end, strict=True)):
        if graph.slot[node] != NONE or graph.layout.owners[graph.actions[node].stage] == here:
            found[here] = max(found[here], end)
    return found


def _compared(predicted: float, measured: float) -> dict[str, Any]:
    ratio = _ratio(measured, predicted)
    return {
        "predicted_s": predicted,
        "measured_s": measured,
        "error": None if ratio is None else ratio - 1,
    }


def _ratio(one: float, other: float) -> float | None:
    return one / other if other else None


def device_table(found: Mapping[str, Any]) -> Table:
    """A row for each device, which ends when it says."""
    longest = found["measured_s"]
    table = plain_table("device", "predicted", "measured", "error")
    for device, row in enumerate(found["devices"]):
        both = [_seconds(row[key], longest) for key in ("predicted_s", "measured_s")]
        table.add_row(str(device), *both, _percent(row["error"]))
    return table


def summary(found: Mapping[str, Any]) -> Table:
    """The whole in words."""
    predicted, measured, runs = found["predicted_s"], found["measured_s"], found["runs_s"]
    shown = Table.grid(padding=(0, 3, 0, 0))
    shown.add_row(
        "makespan",
        f"{_seconds(measured)}, predicted {_seconds(predicted, measured)}: {_percent(found['error'])}",
    )
    if len(runs) > 1:
        low, high = _seconds(min(runs), measured), _seconds(max(runs), measured)
        shown.add_row(f"median of {len(runs)}", f"{low} to {high}")
    if found["speedup_predicted"] is not None:
        shown.add_row(
            "speed-up",
            f"{found['speedup']:.3f}x one device that plays alone ({_seconds(found['alone_s'])}), "
            f"predicted {found['speedup_predicted']:.3f}x",
        )
    return shown


def _seconds(value: float, largest: float | None = None) -> str:
    return figure(value, "seconds", largest)


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f} %"
