"""`contraflow overlay`: a measured step laid over the predicted one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import File, Json, at_least
from .exit import Complaint, Exit
from .output import draw, narrate, put_json

if TYPE_CHECKING:
    from rich.table import Table

    from contraflow.designer.format.schedule import Schedule
    from contraflow.designer.format.trace import Times, Trace
    from contraflow.designer.overlay import Compared, Compute, Overlay, Wait

TraceFile = Annotated[
    Path, typer.Argument(metavar="TRACE", help="written by contraflow run --trace", show_default=False)
]
Worst = Annotated[
    int, typer.Option("--worst", metavar="N", parser=at_least(0), help="name so many actions and waits")
]
Costs = Annotated[
    str | None,
    typer.Option(
        metavar="COSTS",
        help="predict afresh, by a preset, a model.toml or a profile.json (default: as the run was predicted)",
    ),
]


def overlay(file: File, trace: TraceFile, worst: Worst = 10, costs: Costs = None, json: Json = False) -> Exit:
    """Measured against predicted: which actions took longer, and what was waited for longer."""
    from contraflow.designer.format.check import load
    from contraflow.designer.format.graph import build
    from contraflow.designer.overlay import overlay as laid_over

    schedule = load(file)
    traced = read(trace, schedule)
    expected, caption = prediction(schedule, traced, trace, costs)
    found = laid_over(build(schedule), expected, traced.measured)
    if json:
        put_json(
            {"step": traced.step, "machine": traced.machine, "assumptions": caption, **facts(found, worst)}
        )
    else:
        narrate(f"{schedule.name}: step {traced.step} on {traced.machine}")
        draw(*tables(found, worst), f"Predicted: {caption}.")
    return Exit.FINE


def read(path: Path, schedule: Schedule) -> Trace:
    """The trace in a file. Raises Complaint where there is none, or one of another schedule."""
    from contraflow.designer.format.trace import load
    from contraflow.designer.overlay import OverlayError, check

    try:
        found = load(path)
    except ValueError as error:
        raise Complaint(str(error)) from None
    try:
        check(found, schedule)
    except OverlayError as error:
        raise Complaint(f"{path}: {error}") from None
    return found


def prediction(schedule: Schedule, traced: Trace, path: Path, costs: str | None) -> tuple[Times, str]:
    """What was, or is now, expected of the step, and on which assumptions. Raises CostError or Complaint."""
    from contraflow.designer.overlay import predicted

    from .run import prediction

    if costs is not None:
        timeline = prediction(schedule, costs).timeline
        return predicted(timeline), timeline.prices.caption
    if traced.predicted is None:
        raise Complaint(f"{path} carries no prediction; name --costs")
    return traced.predicted, traced.caption


def facts(found: Overlay, worst: int) -> dict[str, Any]:
    """All comparisons in seconds, as JSON."""
    return {
        "makespan": compared(found.makespan),
        "bubble": {"predicted": found.bubble.predicted, "measured": found.bubble.measured},
        "kinds": {kind: compared(time) for kind, time in found.kinds.items()},
        "devices": [
            {"busy": compared(device.busy), "idle": compared(device.idle)} for device in found.devices
        ],
        "worst": [
            {"device": compute.device, "action": str(compute.action), **compared(compute.time)}
            for compute in found.worst(worst)
        ],
        "waits": [
            {
                "device": wait.device,
                "before": str(wait.action),
                **compared(wait.time),
                "for": None if wait.source is None else str(wait.source),
                "late": wait.late,
                "way": wait.way,
                "own": wait.own,
            }
            for wait in found.longest(worst)
        ],
    }


def compared(time: Compared) -> dict[str, float | None]:
    """A pair of times, and the measured to the predicted one."""
    return {"predicted": time.predicted, "measured": time.measured, "ratio": time.ratio}


def tables(found: Overlay, worst: int) -> list[Table | str]:
    """All comparisons, in milliseconds."""
    from contraflow.designer.export.text import percent

    from .report import plain_table

    whole = plain_table("", "predicted (ms)", "measured (ms)", "ratio")
    whole.columns[0].justify = "left"
    rows = {"makespan": found.makespan, **{f"all {kind}": time for kind, time in found.kinds.items()}}
    for device, (busy, idle) in enumerate(found.devices):
        rows |= {f"device {device} busy": busy, f"device {device} idle": idle}
    for name, time in rows.items():
        whole.add_row(name, *cells(time))
    whole.add_row("bubble", percent(found.bubble.predicted), percent(found.bubble.measured), "")
    shown: list[Table | str] = [whole]
    if computes := found.worst(worst):
        shown += ["", "Actions farthest from their prediction:", worst_table(computes)]
    if waits := found.longest(worst):
        shown += [
            "",
            "Idle longer than predicted. Of that: until the input was made elsewhere, while",
            "it was on its way, and while the device waited for no message:",
            wait_table(waits),
        ]
    return [*shown, ""]


def worst_table(computes: Sequence[Compute]) -> Table:
    """One row for each action."""
    from .report import plain_table

    table = plain_table("device", "action", "predicted (ms)", "measured (ms)", "ratio")
    for compute in computes:
        table.add_row(str(compute.device), str(compute.action), *cells(compute.time))
    return table


def wait_table(waits: Sequence[Wait]) -> Table:
    """One row for each wait."""
    from .report import plain_table

    table = plain_table("device", "before", "idle (ms)", "predicted", "for", "made later", "way", "own")
    for wait in waits:
        table.add_row(
            str(wait.device),
            str(wait.action),
            *map(milliseconds, (wait.time.measured, wait.time.predicted)),
            "-" if wait.source is None else str(wait.source),
            *(f"{part * 1e3:+.2f}" for part in (wait.late, wait.way, wait.own)),
        )
    return table


def cells(time: Compared) -> tuple[str, str, str]:
    """Predicted, measured, ratio."""
    ratio = "-" if time.ratio is None else f"{time.ratio:.3f}x"
    return milliseconds(time.predicted), milliseconds(time.measured), ratio


def milliseconds(seconds: float) -> str:
    """Three digits behind the point where they matter."""
    return f"{seconds * 1e3:.{3 if abs(seconds) < 0.01 else 2}f}"
