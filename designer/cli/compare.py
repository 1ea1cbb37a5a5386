"""`contraflow compare`: schedules side by side on one clock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import Costs, Json
from .exit import Complaint, Exit
from .output import draw, narrate, put_json

Files = Annotated[list[Path], typer.Argument(metavar="FILE", help="schedule files", show_default=False)]


def compare(files: Files, costs: Costs = "unit", json: Json = False) -> Exit:
    """Schedules side by side on one clock; speed-ups are relative to the first."""
    from contraflow.designer.costs import named

    from . import report

    if len(files) < 2:
        raise Complaint("takes two files or more; of one file, contraflow simulate tells more")
    cost_model = named(costs)
    previews = [report.read(file, cost_model) for file in files]
    if json:
        speedups = [report.speedup(previews[0], shown) for shown in previews]
        put_json(
            [
                {"file": str(file), "speedup": speedup, **report.facts(shown)}
                for file, speedup, shown in zip(files, speedups, previews, strict=True)
            ]
        )
    else:
        captions = dict.fromkeys(shown.caption for shown in previews)
        draw(report.comparison_table(files, previews), "", *captions)
    for warning in report.unlike(previews):
        narrate(warning)
    return Exit.FINE
