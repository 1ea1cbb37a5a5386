"""`contraflow recover`: unsaved work that a crash of the terminal UI left behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import Json, Output, at_least
from .exit import Complaint, Exit
from .output import narrate, put, put_json, save

if TYPE_CHECKING:
    from contraflow.designer.journal import Lost

Number = Annotated[
    int | None,
    typer.Argument(metavar="N", parser=at_least(1), help="which, as they are listed", show_default=False),
]
Listing = Annotated[
    bool, typer.Option("--list", help="name them all, the newest first (what it does without N)")
]
Discard = Annotated[bool, typer.Option("--discard", help="remove it instead; without N, all of them")]
Journals = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="where the journals lie (default: the user's folder for state)"),
]


def recover(
    number: Number = None,
    listing: Listing = False,
    output: Output = None,
    discard: Discard = False,
    journals: Journals = None,
    json: Json = False,
) -> Exit:
    """Unsaved work that a crash of the terminal UI left behind: list it, write it to a file, or discard it."""
    from contraflow.designer import journal
    from contraflow.designer.format.file import dumps

    found = journal.lost(journals or journal.folder())
    if discard and output is not None:
        raise Complaint("takes --discard or -o, not both")
    if number is not None and number > len(found):
        raise Complaint(f"there is no {number}: {len(found) or 'nothing'} was left behind")
    if output is not None and number is None:
        raise Complaint("name what to recover by its number, as contraflow recover lists it")
    if listing or (number is None and not discard):
        _list(found, json)
        return Exit.FINE
    chosen = found if number is None else found[number - 1 : number]
    if discard:
        return _discard(chosen, json)
    schedule = chosen[0].schedule()
    if output is None:
        put(dumps(schedule))
    else:
        save(schedule, output, json)
        # Only now is it safe elsewhere.
        journal.discard(chosen[0])
    return Exit.FINE


def _discard(chosen: Sequence[Lost], json: bool) -> Exit:
    from contraflow.designer import journal

    kept = [left for left in chosen if not journal.discard(left)]
    for left in kept:
        narrate(f"{left.path} cannot be removed, or is in use")
    count = len(chosen) - len(kept)
    if json:
        put_json({"discarded": count})
    else:
        narrate(f"discarded {count}")
    return Exit.FINDINGS if kept else Exit.FINE


def _list(found: Sequence[Lost], json: bool) -> None:
    if json:
        put_json([entry(left) for left in found])
    elif not found:
        narrate("nothing unsaved was left behind")
    else:
        put("".join(f"{number:>3}  {line(left)}\n" for number, left in enumerate(found, 1)))
        narrate("contraflow recover N -o FILE writes one to a file")


def line(left: Lost) -> str:
    """What was left behind, on one line."""
    states = "1 unsaved change" if left.count == 1 else f"{left.count} unsaved changes"
    where = "in no file yet" if left.file is None else f"of {left.file}"
    said = f"{left.when:%Y-%m-%d %H:%M:%S}  {left.name}, {states} {where}"
    # Whatever stands in a journal, no control characters reach the terminal.
    return "".join(sign if sign.isprintable() else "?" for sign in said)


def entry(left: Lost) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "name": left.name,
        "when": left.when.isoformat(timespec="seconds"),
        "changes": left.count,
        "file": None if left.file is None else str(left.file),
        "journal": str(left.path),
    }
