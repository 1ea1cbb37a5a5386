"""What is wrong with a schedule file, in the words and the notation of its author."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the rule it breaks, where (a JSON path, or device and position), the token if there is one, why."""

    rule: str
    where: str
    message: str
    action: str | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


MAX_FAULTS_PER_RULE = 100


def not_listed(rule: str) -> Fault:
    """Stands for all faults of a rule beyond the first MAX_FAULTS_PER_RULE."""
    return Fault(rule, "$", f"more faults of this kind ({rule}) are not listed")


class NotAScheduleError(ValueError):
    """The text is no schedule at all: not JSON, empty, not an object, too large. One line says which."""


def counted(faults: Sequence[Fault]) -> str:
    """`1 fault`, `2 faults`."""
    return f"{len(faults)} fault{'' if len(faults) == 1 else 's'}"


class InvalidScheduleError(ValueError):
    """A schedule with faults; `faults` holds every one."""

    def __init__(self, name: str, faults: Sequence[Fault]):
        self.faults = tuple(faults)
        super().__init__("\n".join([f"{name}: {counted(faults)}", *map(str, faults)]))
