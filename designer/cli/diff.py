"""`contraflow diff`: which actions were added, removed and moved between two schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import Costs, Json
from .exit import Exit
from .output import draw, narrate, put, put_json

if TYPE_CHECKING:
    from contraflow.designer.design import Preview
    from contraflow.designer.difference import Difference, Place
    from contraflow.designer.format.schedule import Action

TELLING = {"name", "design"}
"""Fields that say where a schedule comes from, and change nothing of what it takes."""

LONGEST = 40
"""Characters of a value; of longer ones the beginning is enough to see what is different."""

Before = Annotated[Path, typer.Argument(metavar="A", help="a schedule file", show_default=False)]
After = Annotated[Path, typer.Argument(metavar="B", help="another, or a later one", show_default=False)]


def diff(before: Before, after: After, costs: Costs = "unit", json: Json = False) -> Exit:
    """What turns schedule A into B: fields, and actions added (+), removed (-) and moved (>); exit code 1 if any.

    As few actions as possible count as moved: all others kept their order on their device. In a git repository,
    git difftool -x 'contraflow diff' compares the versions of a file.
    """
    from contraflow.designer.comparison import unlike
    from contraflow.designer.costs import named
    from contraflow.designer.difference import difference

    from . import report

    cost_model = named(costs)
    shown = [report.read(file, cost_model) for file in (before, after)]
    found = difference(shown[0].schedule, shown[1].schedule)
    if json:
        put_json(entry(found) | figures(shown))
    else:
        put("".join(f"{line}\n" for line in lines(found)))
        if found.same_program:
            narrate("the programs are the same")
        else:
            counts = [len(found.added), len(found.removed), len(found.moved)]
            narrate("{} added, {} removed, {} moved".format(*counts))
        if not found.same_program or not found.fields.keys() <= TELLING:
            captions = dict.fromkeys(preview.caption for preview in shown)
            names = report.short_names([before, after])
            draw("", report.comparison_table(names, shown), "", *captions)
    for warning in unlike(shown):
        narrate(warning)
    return Exit.FINE if found.same_program and not found.fields else Exit.FINDINGS


def lines(found: Difference) -> list[str]:
    """A line for each difference."""
    said = [f"{name}: {change}" for name, change in _changes(found.fields)]
    said += [f"- {action}  {_at(place)}" for place, action in found.removed]
    said += [f"+ {action}  {_at(place)}" for place, action in found.added]
    for action, before, after in ((move.action, move.before, move.after) for move in found.moved):
        there = f"action {after.position}" if before.device == after.device else _at(after)
        said.append(f"> {action}  {_at(before)} -> {there}")
    return said


def _changes(fields: Mapping[str, tuple[Any, Any]]) -> Iterator[tuple[str, str]]:
    """Every field that differs, with its change; of the design every knob, of the directions each."""
    for name, (before, after) in fields.items():
        if name == "design" and before is not None and after is not None:
            for knob in dict.fromkeys([*before, *after]):
                if before.get(knob) != after.get(knob):
                    yield f"design, {knob}", _change(before.get(knob), after.get(knob))
        elif name == "directions":
            for number, ways in enumerate(zip_longest(before, after)):
                for index, what in enumerate(("name", "placement", "microbatches")):
                    old, new = (None if way is None else way[index] for way in ways)
                    if old != new:
                        yield f"direction {number}, {what}", _change(old, new)
        else:
            yield name, _change(before, after)


def _change(before: Any, after: Any) -> str:
    """Both values; of long ones, what comes after all that they begin with alike, and no more than fits."""
    old, new = _worded(before), _worded(after)
    if max(len(old), len(new)) > LONGEST:
        differ = (index for index, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1])
        # From a comma on, so that no number is cut.
        alike = old.rfind(",", 0, next(differ, min(len(old), len(new)))) + 1
        old, new = (f"{'...' if alike else ''}{text[alike:]}" for text in (old, new))
    return f"{_shortened(old)} -> {_shortened(new)}"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: text.rfind(',', 0, LONGEST) + 1 or LONGEST]}..."


def _worded(value: Any) -> str:
    """A field as the command line would have it, where it could."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_worded(entry)}" for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ("; " if value and isinstance(value[0], (list, tuple)) else ",").join(
            map(_worded, value)
        ) or "none"
    return str(value)


def figures(shown: Sequence[Preview]) -> dict[str, Any]:
    """What both schedules come to on the clock that they share, as JSON."""
    return {
        "clock": shown[0].timeline.prices.clock,
        "costs": shown[0].costs.name,
        "makespans": [preview.makespan for preview in shown],
        "bubbles": [preview.bubble for preview in shown],
        "peak_activations": [preview.peak for preview in shown],
        "peak_bytes": [preview.peak_bytes for preview in shown],
    }


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
