"""`contraflow compare`: schedules side by side on one clock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import Costs, Json
from .exit import Complaint, Exit
from .output import draw, narrate, put_json

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="schedule files", show_default=False)]

RanksTried = Annotated[
    str | None,
    typer.Option(
        "--ranks",
        metavar="MAPPINGS",
        help="each file with its devices on these ranks: linear, interleave, fold, best, with commas between",
    ),
]


def compare(files: Files, costs: Costs = "unit", ranks: RanksTried = None, json: Json = False) -> Exit:
    """Schedules side by side on one clock; speed-ups are relative to the first."""
    from contraflow.designer.comparison import unlike
    from contraflow.designer.costs import named

    from . import report

    words = ranks.split(",") if ranks else []
    if len(files) < 2 and not words:
        raise Complaint("takes two files or more; of one file, contraflow simulate tells more")
    cost_model = named(costs)
    names = report.short_names(files)
    previews = [report.read(file, cost_model) for file in files]
    if words:
        names = [f"{name}, {word}" for name in names for word in words]
        files = [file for file in files for _ in words]
        previews = [report.on_ranks(shown, word) for shown in previews for word in words]
    if json:
        put_json(
            [
                {"file": str(file), "speedup": report.speedup(previews[0], shown), **report.facts(shown)}
                for file, shown in zip(files, previews, strict=True)
            ]
        )
    else:
        captions = dict.fromkeys(shown.caption for shown in previews)
        draw(report.comparison_table(names, previews), "", *captions)
    for warning in unlike(previews):
        narrate(warning)
    return Exit.FINE
