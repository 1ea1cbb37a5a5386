"""`contraflow diff`: which actions were added, removed and moved between two schedules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import Costs, Json
from .exit import Exit
from .output import draw, narrate, put, put_json

if TYPE_CHECKING:
    from contraflow.designer.difference import Difference, Place
    from contraflow.designer.format.schedule import Action

Before = Annotated[Path, typer.Argument(metavar="A", help="a schedule file", show_default=False)]
After = Annotated[Path, typer.Argument(metavar="B", help="another, or a later one", show_default=False)]


def diff(before: Before, after: After, costs: Costs = "unit", json: Json = False) -> Exit:
    """What turns schedule A into B: fields, and actions added (+), removed (-) and moved (>); exit code 1 if any.

    As few actions as possible count as moved: all others kept their order on their device.
    """
    from contraflow.designer.costs import named
    from contraflow.designer.difference import difference

    from . import report

    cost_model = named(costs)
    shown = [report.read(file, cost_model) for file in (before, after)]
    found = difference(shown[0].schedule, shown[1].schedule)
    if json:
        put_json(entry(found) | {"makespans": [preview.makespan for preview in shown]})
    else:
        put("".join(f"{line}\n" for line in lines(found)))
        if found.same_program:
            narrate("the programs are the same")
        else:
            counts = [len(found.added), len(found.removed), len(found.moved)]
            narrate("{} added, {} removed, {} moved".format(*counts))
            captions = dict.fromkeys(preview.caption for preview in shown)
            draw("", report.comparison_table([str(before), str(after)], shown), "", *captions)
    return Exit.FINE if found.same_program and not found.fields else Exit.FINDINGS


def lines(found: Difference) -> list[str]:
    """A line for each difference."""
    said = [f"{name}: {_short(before)} -> {_short(after)}" for name, (before, after) in found.fields.items()]
    said += [f"- {action}  {_at(place)}" for place, action in found.removed]
    said += [f"+ {action}  {_at(place)}" for place, action in found.added]
    for action, before, after in ((move.action, move.before, move.after) for move in found.moved):
        there = f"action {after.position}" if before.device == after.device else _at(after)
        said.append(f"> {action}  {_at(before)} -> {there}")
    return said


def entry(found: Difference) -> dict[str, Any]:
    """A difference as JSON."""

    def placed(place: Place, action: Action) -> dict[str, Any]:
        return {"action": str(action), "device": place.device, "position": place.position}

    return {
        "fields": {
            name: {"before": before, "after": after} for name, (before, after) in found.fields.items()
        },
        "added": [placed(*pair) for pair in found.added],
        "removed": [placed(*pair) for pair in found.removed],
        "moved": [
            {"action": str(move.action), "before": move.before._asdict(), "after": move.after._asdict()}
            for move in found.moved
        ],
    }


def _at(place: Place) -> str:
    return f"device {place.device}, action {place.position}"


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 100 else text[:97] + "..."
