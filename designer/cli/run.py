"""`contraflow run`: train on a schedule, and hold the time it takes against the prediction."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import File, Json, at_least
from .exit import Complaint, Exit
from .output import narrate, put, write
from .processes import check_world, device_type, said_once, start

if TYPE_CHECKING:
    from contraflow.designer.design import Preview
    from contraflow.designer.format.schedule import Schedule
    from contraflow.designer.format.trace import Trace
    from contraflow.engine.config import TrainConfig

    from .watch import Watch


def _help_config(asked: bool) -> None:
    if asked:
        from contraflow.engine.config import describe

        put(describe())
        raise typer.Exit


Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="a train.toml (default: a small LLaMA on Python's sources)"),
]
Steps = Annotated[
    int | None, typer.Option(metavar="N", parser=at_least(1), help="training steps (default: as configured)")
]
Costs = Annotated[
    str | None,
    typer.Option(
        metavar="COSTS",
        help="predict by a preset, a model.toml or a profile.json (default: measure before the first step)",
    ),
]
TraceTo = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="write when every action ran and every message travelled, for `contraflow overlay` and Perfetto: "
        "the median one of the last nine steps",
    ),
]
HelpConfig = Annotated[
    bool,
    typer.Option(
        "--help-config", callback=_help_config, is_eager=True, help="all that a train.toml can say, as one"
    ),
]


def run(
    file: File,
    config: Config = None,
    steps: Steps = None,
    costs: Costs = None,
    trace: TraceTo = None,
    json: Json = False,
    help_config: HelpConfig = False,
) -> Exit:
    """Train on a schedule, and hold the time it takes against the prediction."""
    from contraflow.designer.format.check import load

    from .watch import Watch

    with said_once():
        schedule = load(file)
        check_world(schedule.layout)
        settings = configured(config, steps, schedule)
        predicted = None if costs is None else prediction(schedule, costs)
        hardware = device_type(settings.run.device, schedule.layout)
        watch = Watch(schedule, settings.run, hardware, predicted, json)
        try:
            train(schedule, settings, hardware, watch, traced=trace is not None)
        except KeyboardInterrupt:
            narrate(f"contraflow run: interrupted in step {len(watch.steps) + 1}")
            raise
    if trace is not None and watch.trace is not None:
        save_trace(watch.trace, watch.predicted, trace)
    watch.conclude()
    return Exit.FINE


def configured(path: Path | None, steps: int | None, schedule: Schedule) -> TrainConfig:
    """The configuration that fits a schedule. Raises ConfigError."""
    from contraflow.engine.config import load

    found = load(path, schedule.layout)
    return found if steps is None else replace(found, run=replace(found.run, steps=steps))


def prediction(schedule: Schedule, costs: str) -> Preview:
    """What is expected of a schedule. Raises CostError, or Complaint for a clock that has no seconds."""
    from contraflow.designer.costs import CostError, named
    from contraflow.designer.design import preview

    try:
        shown = preview(schedule, named(costs))
    except CostError as error:
        raise CostError(f"--costs: {error}") from None
    if shown.timeline.prices.clock != "seconds":
        raise Complaint(f"--costs: {costs} has no seconds; take a preset, a model.toml or a profile.json")
    return shown


def save_trace(trace: Trace, predicted: Preview | None, path: Path) -> None:
    """Write a trace beside what was predicted. Raises Complaint where that cannot be."""
    from contraflow.designer import overlay
    from contraflow.designer.export import perfetto
    from contraflow.designer.format.trace import dumps

    if predicted is not None:
        times = overlay.predicted(predicted.timeline)
        trace = replace(trace, predicted=times, caption=predicted.timeline.prices.caption)
    write(dumps(trace, perfetto.picture(trace)), path)
    narrate(
        f"{path}: step {trace.step}, {len(trace.measured.spans)} actions, {len(trace.measured.deliveries)} messages"
    )


def train(
    schedule: Schedule, settings: TrainConfig, device_type: str, watch: Watch, *, traced: bool = False
) -> None:
    """Train in one process for each device. Raises RunError, Refused or FloatingPointError."""
    from contraflow.designer.format.file import dumps
    from contraflow.engine.train import train

    with closing(watch):
        start(
            "run",
            train,
            {
                "text": dumps(schedule),
                "config": settings,
                "profile": watch.predicted is None,
                "trace": traced,
            },
            schedule.layout,
            watch.hear,
            timeout=settings.run.timeout,
            device_type=device_type,
        )
