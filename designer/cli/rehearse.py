"""`contraflow rehearse`: a schedule's real processes and messages, with timed stand-ins for compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .arguments import COSTS, File, Json, amount, at_least
from .exit import Complaint, Exit
from .output import draw, put_json
from .processes import check_world, said_once, start

if TYPE_CHECKING:
    from contraflow.designer.costs.prices import Clock
    from contraflow.designer.format.schedule import Schedule

    from .rehearsal import Rehearsal

UNIT = 0.1
"""Seconds that stand for 1 on the unit clock, unless --scale says otherwise."""

PATIENCE = 300.0
"""Seconds that a process waits for a message, beside twice the time that all is predicted to take."""


class Scale(NamedTuple):
    """What 1 on a clock takes: seconds, or a factor of those that it has."""

    value: float
    is_time: bool


class Delay(NamedTuple):
    """Seconds that messages take longer: on one lane, or on all of them."""

    lane: tuple[int, int] | None
    seconds: float


def time(text: str) -> float:
    """Seconds, from 20ms, 1.5s or 300us."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+) ?(s|ms|us|µs)", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a time such as 20ms, 1.5s or 300us")
    number, unit = found.groups()
    return float(number) * {"s": 1.0, "ms": 1e-3}.get(unit, 1e-6)


def scale(text: str) -> Scale:
    """A time, or a number; more than 0."""
    found = Scale(time(text), True) if text.endswith("s") else Scale(amount(text), False)
    if not found.value:
        raise typer.BadParameter(f"{text} leaves nothing to play")
    return found


def delay(text: str) -> Delay:
    """A time, or a lane and a time."""
    lane, _, length = text.rpartition(":")
    if not lane:
        return Delay(None, time(length))
    if not re.fullmatch(r"\d{1,9}-\d{1,9}", lane):
        raise typer.BadParameter(f"{lane!r} is not a lane such as 2-3, from device 2 to device 3")
    source, target = lane.split("-")
    return Delay((int(source), int(target)), time(length))


# typer knows no tuples of its own: the parsers make them.
ScaleFlag = Annotated[
    Any,
    typer.Option(
        "--scale",
        metavar="TIME",
        parser=scale,
        help="what stands for 1 on the unit clock (default: 100ms); of costs in seconds a factor (default: 1)",
    ),
]
Repeat = Annotated[int, typer.Option(metavar="N", parser=at_least(1), help="so many times, for the median")]
Costs = Annotated[str, typer.Option(metavar="COSTS", help=f"what actions take: {COSTS}")]
Delays = Annotated[
    list[Any] | None,
    typer.Option(
        "--delay",
        metavar="[LANE:]TIME",
        parser=delay,
        help="longer on their way are all messages (20ms), or those from device 2 to 3 (2-3:20ms); may be repeated",
    ),
]
Values = Annotated[
    int, typer.Option(metavar="N", parser=at_least(1), help="floats of a message for each token")
]


def rehearse(
    file: File,
    scale: ScaleFlag = None,
    repeat: Repeat = 1,
    costs: Costs = "unit",
    delay: Delays = None,
    values: Values = 1,
    json: Json = False,
) -> Exit:
    """Play a schedule: real processes and messages, timed stand-ins for compute; measured against predicted.

    One process for each device, here or under torchrun. An action is slept through; a message is as long as --values
    says, a reduction as long as a whole microbatch. Before anything is played each lane is timed while all others
    rest, and the prediction counts that. A delayed message leaves so much later, and holds up neither its sender nor
    the next one.
    """
    from contraflow.designer.costs import named
    from contraflow.designer.format.check import load

    from .rehearsal import Rehearsal, device_table, outcome, summary

    with said_once():
        schedule = load(file)
        check_world(schedule.layout)
        cost_model = named(costs)
        rehearsal = Rehearsal(
            schedule,
            cost_model,
            factor(cost_model(schedule.layout).clock, scale),
            delays_of(schedule, delay or []),
        )
        play(rehearsal, repeat, values)
    if rehearsal.predicted is None or not rehearsal.runs:  # under torchrun only rank 0 hears of it
        return Exit.FINE
    found = outcome(rehearsal.predicted.timeline, rehearsal.runs)
    if json:
        put_json(rehearsal.facts() | found)
    else:
        draw(device_table(found), "", summary(found))
    return Exit.FINE


def factor(clock: Clock, scale: Scale | None) -> float:
    """Seconds for 1 on a clock. Raises Complaint for a scale that does not fit it."""
    if scale is None:
        return UNIT if clock == "unit" else 1.0
    if scale.is_time != (clock == "unit"):
        raise Complaint(
            "--scale: on the unit clock it is a time such as 100ms"
            if clock == "unit"
            else "--scale: these costs have seconds, of which it is a factor such as 2"
        )
    return scale.value


def delays_of(schedule: Schedule, delays: Sequence[Delay]) -> dict[tuple[int, int], float]:
    """The delay of each lane: its own, or that of all. Raises Complaint for a lane that there is not."""
    from contraflow.designer.format.lowering import lower

    lanes = sorted({(lane.source, lane.target) for lane in lower(schedule).lanes})
    everywhere = sum([delay.seconds for delay in delays if delay.lane is None], 0.0)
    found = dict.fromkeys(lanes, everywhere)
    for lane, seconds in delays:
        if lane is not None:
            if lane not in found:
                known = ", ".join(f"{source}-{target}" for source, target in lanes) or "none"
                raise Complaint(
                    f"--delay: device {lane[0]} sends nothing to device {lane[1]}; the lanes are {known}"
                )
            found[lane] = seconds
    return found


def play(rehearsal: Rehearsal, repeat: int, values: int) -> None:
    """Play it in one process for each device. Raises RunError or Refused."""
    from contraflow.designer.costs.rehearsed import reduced
    from contraflow.designer.format.file import dumps
    from contraflow.engine.rehearse import Script
    from contraflow.engine.rehearse import rehearse as work

    schedule, planned = rehearsal.schedule, rehearsal.planned.timeline
    layout = schedule.layout
    script = Script(planned.prices.durations(), values, reduced(layout), rehearsal.delays, repeat)
    start(
        "rehearse",
        work,
        {"text": dumps(schedule), "script": script},
        layout,
        rehearsal.hear,
        timeout=PATIENCE + 2 * planned.makespan,
    )
