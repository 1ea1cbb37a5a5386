"""`contraflow profile`: what a schedule's actions and messages take on this machine, for --costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .arguments import File, Output, at_least
from .exit import Exit
from .output import narrate, put, write
from .overlay import read
from .processes import check_world, device_type, names, said_once, told_to_end
from .run import Config, configured

if TYPE_CHECKING:
    from contraflow.designer.format.profile import Profile
    from contraflow.designer.format.schedule import Schedule

Repeats = Annotated[
    int, typer.Option("--repeats", metavar="N", parser=at_least(1), help="of each action; the median counts")
]
From = Annotated[
    Path | None,
    typer.Option("--from", metavar="TRACE", help="take the times from a traced run instead of measuring"),
]


def profile(
    file: File, output: Output = None, config: Config = None, repeats: Repeats = 5, from_: From = None
) -> Exit:
    """What actions and messages take on this machine: prices for --costs.

    Measured are the schedule's own stages, and small ones on pieces of several lengths, so that the profile also
    prices other schedules and splits of the same model.
    """
    from contraflow.designer.format.check import load
    from contraflow.designer.format.profile import dumps

    with said_once():
        schedule = load(file)
        if from_ is not None:
            from contraflow.designer.costs.traced import profile_of

            found: list[Profile] = [profile_of(read(from_, schedule))]
        else:
            found = measured(schedule, config, repeats)
    for one in found:  # under torchrun only rank 0 hears of it
        if output is None:
            put(dumps(one))
        else:
            write(dumps(one), output)
            narrate(f"{output}: {len(one.actions) + len(one.parts)} times on {one.machine}")
    return Exit.FINE


def measured(schedule: Schedule, config: Path | None, repeats: int) -> list[Profile]:
    """Measure in one process for each device. Raises RunError, Refused, ConfigError or Complaint."""
    from contraflow.designer.format.file import dumps
    from contraflow.engine import launch
    from contraflow.engine.train import profile

    check_world(schedule.layout)
    settings = configured(config, None, schedule)
    heard: list[Profile] = []
    with told_to_end():
        launch.run(
            profile,
            {"text": dumps(schedule), "config": settings, "repeats": repeats},
            schedule.layout.num_devices,
            heard.append,
            timeout=settings.run.timeout,
            device_type=device_type(settings.run.device, schedule.layout),
            names=names(schedule.layout),
        )
    return heard
