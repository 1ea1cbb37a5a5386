"""How a command ends: its exit code, and what it says where it could not do what was asked."""

from __future__ import annotations

import sys
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    FINE = 0
    FINDINGS = 1
    """An invalid file, over the memory cap, a failed verification."""
    USAGE = 2
    """A slip on the command line or in a configuration, or a file that cannot be read."""
    MISSING = 3
    """Something is not on this machine: a GPU, a package."""
    FAILED = 4
    """A run failed."""
    BROKEN_PIPE = 141
    """The reader of stdout has gone: what a shell reports of it."""


class Complaint(Exception):
    """Ends a command with a line on stderr and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.USAGE):
        self.code = code
        super().__init__(message)


def complaint(error: Exception) -> Complaint | None:
    """What to say of an error that a person could have caused; None where it is a fault of ours."""
    if isinstance(error, Complaint):
        return error
    if isinstance(error, ModuleNotFoundError) and not f"{error.name}".startswith("contraflow"):
        return Complaint(
            f"needs the Python package {error.name!r}, which is not installed here", Exit.MISSING
        )
    # Only on the way out: the commands that know these have loaded them already.
    from contraflow.designer.costs import CostError
    from contraflow.designer.design import DesignError
    from contraflow.designer.format.fault import InvalidScheduleError, NotAScheduleError
    from contraflow.designer.format.tables import ConfigError

    if isinstance(error, InvalidScheduleError):
        return Complaint(str(error), Exit.FINDINGS)
    if isinstance(error, (NotAScheduleError, DesignError, CostError, ConfigError)):
        return Complaint(str(error))
    # Whoever raises what is the engine's has loaded it; for all others torch would be too slow.
    if "contraflow.engine.member" in sys.modules:
        from contraflow.engine.member import Refused, RunError

        if isinstance(error, Refused):
            return Complaint(str(error))
        if isinstance(error, (RunError, FloatingPointError)):
            return Complaint(str(error), Exit.FAILED)
    return None
