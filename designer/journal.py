"""The journal of an editing session: every state is noted as it comes, so that a crash loses nothing.

A journal is a file of JSON lines that its process keeps locked: one that nobody holds is of a session that ended
without closing it. Each line is whole in itself, so a torn one costs no other.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
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
        self._file: _File | None = None

    def note(self, work: Work, file: Path | None = None) -> str | None:
        """Append what is now worked on, and the file that it is to be saved in. A line says where that failed."""
        kind, value = ("knobs", knobs(work)) if isinstance(work, Design) else ("schedule", dumps(work))
        try:
            self._append({kind: value, "file": None if file is None else str(file.absolute())})
        except OSError as error:
            return self._failure(error)
        return None

    def saved(self) -> str | None:
        """Nothing is unsaved now. A line says where that could not be noted."""
        try:
            if self._file is not None:
                self._append({"saved": True})
        except OSError as error:
            return self._failure(error)
        return None

    def close(self) -> None:
        """The session has ended as it should: nothing is left behind."""
        if self._file is not None:
            self._file.remove()
        self._file = None

    def _append(self, entry: Mapping[str, Any]) -> None:
        """Raises OSError; then the journal is as it was before."""
        line, old = json.dumps(entry).encode() + b"\n", self._file
        if old is not None and old.size <= LONGEST and not old.removed:
            old.append(line)
            return
        fresh = _created(self.folder)
        try:
            fresh.append(line)
        except OSError:
            fresh.remove()
            raise
        self._file = fresh
        if old is not None:
            old.remove()

    def _failure(self, error: OSError) -> str:
        return f"unsaved work cannot be noted in {self.folder}: {error.strerror}"


@dataclass(slots=True)
class _File:
    """A journal's file, open and locked."""

    path: Path
    handle: int
    size: int = 0
    synced: float = 0.0

    def append(self, line: bytes) -> None:
        """All of a line or nothing of it. Raises OSError."""
        try:
            rest = line
            while rest:
                rest = rest[os.write(self.handle, rest) :]
        except OSError:
            # What went in before the disk was full would spoil the next line.
            with suppress(OSError):
                os.ftruncate(self.handle, self.size)
            raise
        self.size += len(line)
        if time.monotonic() - self.synced > SYNC_EVERY:
            os.fsync(self.handle)
            self.synced = time.monotonic()

    @property
    def removed(self) -> bool:
        """Whether somebody has removed the file, so that what is written to it is lost."""
        try:
            return os.fstat(self.handle).st_nlink == 0
        except OSError:
            return True

    def remove(self) -> None:
        """Where somebody removed it already, its name may be another's by now."""
        with suppress(OSError):
            if not self.removed:
                self.path.unlink()
        with suppress(OSError):
            os.close(self.handle)


def _created(folder: Path) -> _File:
    """A new file, locked before it gets the name under which others would find it. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = 0
    while True:
        path = folder / f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}-{number}{ENDING}"
        number += 1
        hidden = path.with_name(f".{path.name}")
        with suppress(FileExistsError):
            handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            if path.exists():
                _File(hidden, handle).remove()
                continue
            _locked(handle)
            os.rename(hidden, path)
            return _File(path, handle)


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
    left = filter(None, map(_examined, sorted(folder.glob(f"[!.]*{ENDING}"))))
    return tuple(sorted(left, key=lambda left: left.when, reverse=True))


def _examined(path: Path) -> Lost | None:
    with _taken(path) as handle, suppress(OSError):
        if handle is None:
            return None
        lines = _lines(handle)
        if not (lines and lines[-1].startswith(SAVED)):
            return _left(path, lines, os.fstat(handle).st_mtime)
        path.unlink()
    return None


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
    changes, newest = 0, None
    for line in reversed(lines):
        if line.startswith(SAVED):
            break
        state = _read(line) if newest is None else None
        changes += state is not None or (newest is not None and line.startswith(STATES))
        newest = newest or state
    if newest is None:
        return None
    work, file = newest
    return Lost(path, file, _date(when), changes, work)


def _date(when: float) -> datetime:
    try:
        return datetime.fromtimestamp(when)
    except (OverflowError, ValueError, OSError):
        # Of no calendar: somebody set the file's time.
        return datetime.fromtimestamp(0)


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
