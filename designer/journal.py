"""The journal of an editing session: every state is noted as it comes, so that a crash loses nothing.

A journal is a file of JSON lines that its process keeps locked: one that nobody holds is of a session that ended
without closing it. Each line is whole in itself, so a torn one costs no other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any

from .design import Design, DesignError, from_knobs, knobs, make
from .format.check import examine
from .format.fault import NotAScheduleError
from .format.file import dumps
from .format.schedule import Schedule

try:
    import fcntl
except ModuleNotFoundError:  # no locks on this system: a session at work is then listed too
    fcntl = None  # type: ignore[assignment]

Work = Design | Schedule
"""What is being worked on: knobs, or a program that has parted from them."""

ENDING = ".journal"

SAVED, STATES = b'{"saved"', (b'{"knobs"', b'{"schedule"')
"""How the lines begin."""

SYNC_EVERY = 1.0
"""Seconds: a state outlives its process at once, and the machine at most so much later."""

LONGEST = 2**26
"""Bytes of a journal, after which it begins anew with the last state; more of one is not read."""


def folder() -> Path:
    """Where the journals of this user lie."""
    from platformdirs import user_state_path

    return user_state_path("contraflow", appauthor=False) / "journals"


class Journal:
    """Of one session. There is no file before the first note; what cannot be written is said, never raised."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._path: Path | None = None
        self._handle = -1
        self._size = 0
        self._synced = 0.0

    def note(self, work: Work, file: Path | None = None) -> str | None:
        """Append what is now worked on, and the file that it is to be saved in. A line says where that failed."""
        kind, value = ("knobs", knobs(work)) if isinstance(work, Design) else ("schedule", dumps(work))
        entry = {kind: value, "file": None if file is None else str(file.absolute())}
        if self._size <= LONGEST and not self._unlinked:
            return self._append(entry)
        fresh = Journal(self.folder)
        failure = fresh._append(entry)
        if failure is not None:
            fresh.close()
            return failure
        self.close()
        self._path, self._handle, self._size = fresh._path, fresh._handle, fresh._size
        return None

    def saved(self) -> str | None:
        """Nothing is unsaved now. A line says where that could not be noted."""
        return None if self._path is None else self._append({"saved": True})

    def close(self) -> None:
        """The session has ended as it should: nothing is left behind."""
        _remove(self._path, self._handle)
        self._path, self._handle = None, -1

    @property
    def _unlinked(self) -> bool:
        """Whether somebody has removed the file."""
        return self._path is not None and os.fstat(self._handle).st_nlink == 0

    def _append(self, entry: dict[str, Any]) -> str | None:
        try:
            if self._path is None:
                self._path, self._handle = _created(self.folder)
                self._size = os.fstat(self._handle).st_size
            self._write(json.dumps(entry).encode() + b"\n")
        except OSError as error:
            return f"unsaved work cannot be noted in {self.folder}: {error.strerror}"
        return None

    def _write(self, line: bytes) -> None:
        try:
            rest = line
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except OSError:
            # What went in before the disk was full would spoil the next line.
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise
        self._size += len(line)
        if time.monotonic() - self._synced > SYNC_EVERY:
            os.fsync(self._handle)
            self._synced = time.monotonic()


def _created(folder: Path) -> tuple[Path, int]:
    """A new journal, locked before it gets the name under which others would find it. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    number = 0
    while True:
        path = folder / f"{stem}-{number}{ENDING}"
        hidden = path.with_name(f".{path.name}")
        try:
            handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        except FileExistsError:
            number += 1
            continue
        if path.exists():
            _remove(hidden, handle)
            number += 1
            continue
        _locked(handle)
        os.rename(hidden, path)
        return path, handle


def _locked(handle: int) -> bool:
    """Whether nobody else holds this file; then we do."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _remove(path: Path | None, handle: int) -> None:
    if path is None:
        return
    # Where somebody removed it already, the name may be another's by now.
    if os.fstat(handle).st_nlink:
        with suppress(OSError):
            path.unlink()
    os.close(handle)


# After a crash.


@dataclass(frozen=True, slots=True)
class Lost:
    """Unsaved work of a session that is no more."""

    path: Path
    """The journal."""
    file: Path | None
    """Where it was to be saved; None where it had no file yet."""
    when: datetime
    """Of the last state."""
    count: int
    """How many states there were since the last that was saved."""
    work: Work
    """The last state that can be read."""

    @property
    def name(self) -> str:
        """What it is, for people."""
        return self.work.name if isinstance(self.work, Schedule) else self.work.generator

    def schedule(self) -> Schedule:
        """The last state. Raises DesignError for knobs that make none any more."""
        return self.work if isinstance(self.work, Schedule) else make(self.work)


def lost(folder: Path) -> tuple[Lost, ...]:
    """All unsaved work that sessions left behind, the newest first. What cannot be read is passed over, and stays.

    Journals of sessions that had saved everything are removed.
    """
    found = []
    for path in sorted(folder.glob(f"[!.]*{ENDING}")):
        with _taken(path) as handle:
            if handle is None:
                continue
            lines = _lines(handle)
            if lines and lines[-1].startswith(SAVED):
                path.unlink(missing_ok=True)
                continue
            left = _left(path, lines, os.fstat(handle).st_mtime)
            if left is not None:
                found.append(left)
    return tuple(sorted(found, key=lambda left: left.when, reverse=True))


def discard(left: Lost) -> bool:
    """Remove a journal; False where a session holds it again, or it cannot be removed."""
    with _taken(left.path) as handle:
        if handle is None:
            return not left.path.exists()
        try:
            left.path.unlink()
        except OSError:
            return False
        return True


@contextmanager
def _taken(path: Path) -> Iterator[int | None]:
    """A journal that nobody holds, held meanwhile; None for one that is in use, is no file or cannot be read."""
    try:
        # What is no file, such as a pipe, could keep us waiting.
        handle = os.open(path, os.O_RDWR | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        yield None
        return
    try:
        yield handle if S_ISREG(os.fstat(handle).st_mode) and _locked(handle) else None
    finally:
        os.close(handle)


def _lines(handle: int) -> list[bytes]:
    """The whole lines of a journal, of a very long one the last."""
    start = max(os.fstat(handle).st_size - 2 * LONGEST, 0)
    os.lseek(handle, start, os.SEEK_SET)
    with os.fdopen(os.dup(handle), "rb") as file:
        lines = file.read(2 * LONGEST).split(b"\n")
    return lines[1 if start else 0 : -1]


def _left(path: Path, lines: list[bytes], when: float) -> Lost | None:
    """The last state that can be read since the last that was saved; None where there is none."""
    count, newest = 0, None
    for line in reversed(lines):
        if line.startswith(SAVED):
            break
        state = _read(line) if newest is None else None
        count += state is not None or (newest is not None and line.startswith(STATES))
        newest = newest or state
    if newest is None:
        return None
    work, file = newest
    return Lost(path, file, datetime.fromtimestamp(when), count, work)


def _read(line: bytes) -> tuple[Work, Path | None] | None:
    """A state and its file; None for what is none, whoever wrote it."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    file = entry.get("file")
    place = Path(file) if isinstance(file, str) else None
    if isinstance(entry.get("knobs"), dict):
        try:
            design = from_knobs(entry["knobs"])
            return (design, place) if design.kind else None
        except DesignError:
            return None
    if isinstance(entry.get("schedule"), str):
        try:
            schedule, faults = examine(entry["schedule"])
        except NotAScheduleError:
            return None
        if schedule is not None and not faults:
            return schedule, place
    return None
