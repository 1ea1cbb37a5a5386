"""`contraflow check`: every fault of a file, at once, each with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arguments import File, Json
from .exit import Exit
from .output import narrate, put, put_json

if TYPE_CHECKING:
    from contraflow.designer.format.fault import Fault


def check(file: File, json: Json = False) -> Exit:
    """Every fault of a schedule file, at once, each with its place."""
    from contraflow.designer.design import carried, parted
    from contraflow.designer.format.check import examine
    from contraflow.designer.format.fault import counted
    from contraflow.designer.format.file import read_bytes

    schedule, faults = examine(read_bytes(file), str(file))
    if json:
        put_json({"valid": not faults, "faults": [entry(fault) for fault in faults]})
    elif faults:
        put("".join(f"{fault}\n" for fault in faults))
        narrate(f"{file}: {counted(faults)}")
    elif schedule is not None:
        put(f"{file} is valid: {schedule.name}, {schedule.num_actions} actions\n")
    if faults or schedule is None:
        return Exit.FINDINGS
    design = carried(schedule)
    if design is not None and parted(schedule, design):
        narrate(f"{file} is no longer what the knobs in its `design` make; its program is what counts")
    return Exit.FINE


def entry(fault: Fault) -> dict[str, Any]:
    """A fault as JSON."""
    return {"rule": fault.rule, "where": fault.where, "action": fault.action, "message": fault.message}
