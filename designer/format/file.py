"""JSON <-> Schedule, format 1. Reading collects every fault with its `$.path`; writing is canonical."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .document import Reader, read
from .fault import Fault, NotAScheduleError
from .schedule import UNREADABLE, Action, Direction, Layout, Schedule, parse_token

FORMAT = "contraflow.schedule/1"
MAX_BYTES = 64 * 2**20
ACTIONS_PER_LINE = 16

_REQUIRED = (
    "format", "name", "devices", "microbatches", "sequence", "splits", "directions", "program",
)  # fmt: skip
_OPTIONAL = ("layers", "ranks", "design")
_DIRECTION = ("name", "placement", "microbatches")


def read_bytes(path: str | Path) -> bytes:
    """The file's bytes. Raises NotAScheduleError, in one line, for what cannot be read or is too large."""
    path = Path(path)
    if "\0" in str(path):
        raise NotAScheduleError(f"{str(path)!r} names no file")
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise NotAScheduleError(f"{path} is a directory, not a schedule file")
        if not path.is_file() and not path.is_fifo():
            raise NotAScheduleError(f"{path} is neither a file nor a pipe")
        with path.open("rb") as file:
            # Nothing of a file that is too large is read; a pipe tells its size only by being read.
            text = b"" if size > MAX_BYTES else file.read(MAX_BYTES + 1)
        if size > MAX_BYTES or len(text) > MAX_BYTES:
            raise NotAScheduleError(
                f"{path} is larger than the {MAX_BYTES >> 20} MiB that a schedule file may have"
            )
        return text
    except OSError as error:
        raise NotAScheduleError(f"{path} cannot be read: {error.strerror}") from None


def parse(text: bytes | str, name: str = "the file") -> tuple[Schedule | None, list[Fault]]:
    """The schedule that `text` holds, as far as it holds one, and all faults of shape and type.

    The schedule is None where faults in its header leave nothing to build on. What is returned here is not
    checked yet: `check.py` holds the rules. Raises NotAScheduleError for text that is no schedule at all.
    """
    document, reader = read(text, name)
    reader.fields("$", document, _REQUIRED, _OPTIONAL)
    if "format" in document and document["format"] != FORMAT:
        reader.fault(
            "version",
            "$.format",
            f"{json.dumps(document['format'])[:60]} is not {FORMAT}, the one this version reads",
        )
    program = _program(reader, document.get("program", []))
    layout = _layout(reader, document, sum(map(len, program)))
    schedule_name = reader.string("$.name", document.get("name", ""))
    design = document.get("design")
    if "design" in document and not isinstance(design, dict):
        reader.wrong_type("$.design", design, "an object")
    if layout is None:
        return None, reader.faults
    return Schedule(
        schedule_name, layout, program, design if isinstance(design, dict) else None
    ), reader.faults


def _layout(reader: Reader, document: Mapping[str, Any], num_actions: int) -> Layout | None:
    devices = reader.integer("$.devices", document["devices"], 1) if "devices" in document else None
    count = (
        reader.integer("$.microbatches", document["microbatches"], 1) if "microbatches" in document else None
    )
    layers = reader.integers("$.layers", document["layers"], 0) if "layers" in document else None
    ranks = reader.integers("$.ranks", document["ranks"], 0) if "ranks" in document else None
    directions = _directions(reader, document["directions"]) if "directions" in document else None
    # Spares tables for a header that promises far more than the program holds.
    if count is not None and count > max(num_actions, 1000):
        reader.fault(
            "range", "$.microbatches", f"is {count}, more than the program's {num_actions} actions can serve"
        )
        count = None
    lengths = _lengths(reader, document, count)
    if devices is None or count is None or not directions or lengths is None:
        return None
    if len({len(direction.placement) for direction in directions}) > 1:
        counts = ", ".join(str(len(direction.placement)) for direction in directions)
        reader.fault(
            "placement", "$.directions", f"place {counts} stages; all directions have the same number"
        )
        return None
    return Layout(devices, *lengths, directions, layers, ranks)


def _lengths(
    reader: Reader, document: Mapping[str, Any], count: int | None
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    if "sequence" not in document or "splits" not in document:
        return None
    sequence, splits = document["sequence"], document["splits"]
    if not isinstance(sequence, list):
        length = reader.integer("$.sequence", sequence, 1)
        split = _split(reader, "$.splits", splits)
        if length is None or split is None or count is None:
            return None
        return (length,) * count, (split,) * count
    lengths = reader.integers("$.sequence", sequence, 1)
    if not isinstance(splits, list):
        reader.wrong_type("$.splits", splits, "a list with one list per microbatch")
        return None
    each = [_split(reader, f"$.splits[{index}]", entry) for index, entry in enumerate(splits)]
    for key, entries in (("sequence", sequence), ("splits", splits)):
        if count is not None and len(entries) != count:
            reader.fault("count", f"$.{key}", f"has {len(entries)} entries for {count} microbatches")
    if lengths is None or None in each or count is None or not len(lengths) == len(each) == count:
        return None
    return lengths, tuple(entry for entry in each if entry is not None)


def _split(reader: Reader, where: str, value: Any) -> tuple[int, ...] | None:
    split = reader.integers(where, value, 1)
    if split == ():
        reader.fault("range", where, "is empty; a microbatch without subsequences is one of its full length")
    return split or None


def _directions(reader: Reader, value: Any) -> tuple[Direction, ...] | None:
    if not isinstance(value, list):
        reader.wrong_type("$.directions", value, "a list of directions")
        return None
    if not value:
        reader.fault("range", "$.directions", "is empty; a schedule has at least one direction")
    found = []
    for index, entry in enumerate(value):
        where = f"$.directions[{index}]"
        if not isinstance(entry, dict):
            reader.wrong_type(where, entry, "an object")
            continue
        reader.fields(where, entry, _DIRECTION)
        name = reader.string(f"{where}.name", entry.get("name", ""))
        placement = reader.integers(f"{where}.placement", entry.get("placement", []), 0)
        microbatches = reader.integers(f"{where}.microbatches", entry.get("microbatches", []), 0)
        if placement == () and "placement" in entry:
            reader.fault("placement", f"{where}.placement", "is empty; a direction has at least one stage")
        if placement and microbatches is not None:
            found.append(Direction(name, placement, microbatches))
    return tuple(found) if len(found) == len(value) else None


def _program(reader: Reader, value: Any) -> tuple[tuple[Action, ...], ...]:
    if not isinstance(value, list):
        reader.wrong_type("$.program", value, "a list with one entry per device")
        return ()
    program = []
    for device, lines in enumerate(value):
        where = f"$.program[{device}]"
        actions: list[Action] = []
        if not isinstance(lines, list):
            reader.wrong_type(where, lines, "a list of strings")
            lines = []
        for index, line in enumerate(lines):
            if not isinstance(line, str):
                reader.wrong_type(f"{where}[{index}]", line, "a string of actions")
                continue
            if not line:
                reader.fault("token", f"{where}[{index}]", "is an empty string; leave it out")
                continue
            for token in line.split(" "):
                action = parse_token(token)
                if action is None:
                    _token_fault(reader, device, len(actions), f"{where}[{index}]", token)
                actions.append(action or UNREADABLE)
        program.append(tuple(actions))
    return tuple(program)


def _token_fault(reader: Reader, device: int, position: int, where: str, token: str) -> None:
    shown = token if len(token) <= 40 else token[:37] + "..."
    if not token:
        reason = f"there is an empty token in {where}: actions are separated by single spaces"
    else:
        reason = f"{shown!r} is no action; one is written like 3F1, 3F1.0, 5I1.2, 5W1.2 or 3REDUCE_GRAD"
    reader.fault("token", f"device {device}, action {position}", reason, shown)


def dumps(schedule: Schedule) -> str:
    """The canonical text: equal schedules give equal text, and an edit touches one or two lines."""
    layout = schedule.layout
    alike = layout.alike
    entries = [
        f'"format": {_inline(FORMAT)}',
        f'"name": {_inline(schedule.name)}',
        f'"devices": {layout.num_devices}',
        f'"microbatches": {layout.num_microbatches}',
        f'"sequence": {layout.sequences[0] if alike else _inline(layout.sequences)}',
        f'"splits": {_inline(layout.splits[0] if alike else layout.splits)}',
    ]
    if layout.layers is not None:
        entries.append(f'"layers": {_inline(layout.layers)}')
    directions = [
        _inline({"name": entry.name, "placement": entry.placement, "microbatches": entry.microbatches})
        for entry in layout.directions
    ]
    entries.append('"directions": ' + _block(directions, "  "))
    devices = [_block([_inline(line) for line in _lines(actions)], "    ") for actions in schedule.program]
    entries.append('"program": ' + _block(devices, "  "))
    if layout.ranks is not None:
        entries.append(f'"ranks": {_inline(layout.ranks)}')
    if schedule.design is not None:
        entries.append(f'"design": {_inline(dict(schedule.design))}')
    return "{\n  " + ",\n  ".join(entries) + "\n}\n"


def _inline(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _block(entries: Sequence[str], indent: str) -> str:
    if not entries:
        return "[]"
    inner = f",\n{indent}  ".join(entries)
    return f"[\n{indent}  {inner}\n{indent}]"


def _lines(actions: Sequence[Action]) -> Iterator[str]:
    line: list[str] = []
    after_backward = False
    for action in actions:
        if action.kind == "F":
            opens = action.subsequence == 0 or (action.subsequence is None and after_backward)
        else:
            opens = False
        if line and (opens or len(line) == ACTIONS_PER_LINE):
            yield " ".join(line)
            line = []
        line.append(str(action))
        if action.kind != "REDUCE_GRAD":
            after_backward = action.kind != "F"
    if line:
        yield " ".join(line)


def write(schedule: Schedule, path: str | Path) -> None:
    """Save a schedule atomically: the file is the old one or the new one, whole, at any moment. Raises OSError."""
    write_text(dumps(schedule), path)


def write_text(text: str, path: str | Path) -> None:
    """Replace the file at `path` by `text`, atomically. Raises OSError; the old file then still stands.

    A link is followed. What is no regular file (a terminal, a pipe, /dev/null) is written to, never replaced.
    """
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; a schedule gets the rights that any new file would have.
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
