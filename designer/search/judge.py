"""What a program is worth: checked, simulated and measured with the designer's own rules, never with the search's."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from contraflow.designer.costs import CostError, CostModel
from contraflow.designer.design import Preview, preview
from contraflow.designer.format.lowering import with_reductions
from contraflow.designer.format.schedule import Action, Schedule

SLACK = 1e-9
"""By how much a sum of fractions may differ from what it is on paper."""


class Cap(NamedTuple):
    """What a device may hold: bytes on each GPU, or whole microbatches of activation through its share."""

    amount: float
    in_bytes: bool = False

    @staticmethod
    def named(text: str) -> Cap:
        """A bare number of whole microbatches, or bytes such as 70GiB or 80GB. Raises ValueError for anything else."""
        sized = re.fullmatch(r"(\d+\.?\d*|\.\d+) ?(?:([KMGT])(i?))?B", text, re.IGNORECASE)
        number, prefix, binary = sized.groups() if sized else (text, None, None)
        try:
            amount = float(number)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not math.isfinite(amount):
            raise ValueError(f"{text} is not a finite number")
        if amount < 0:
            raise ValueError(f"{text} is less than 0")
        power = "KMGT".index(prefix.upper()) + 1 if prefix else 0
        return Cap(amount * (1024 if binary else 1000) ** power, in_bytes=sized is not None)

    def keeps(self, held: float) -> bool:
        """Whether so much is no more than the cap."""
        return held <= self.amount * (1 + SLACK)


@dataclass(frozen=True)
class Judge:
    """Tells what programs of one layout are worth in a cost model under a cap."""

    given: Schedule
    costs: CostModel
    cap: Cap

    def schedule(self, program: Sequence[Sequence[Action]]) -> Schedule:
        """The given schedule with another program; it names reductions if the given one names any."""
        found = replace(self.given, program=tuple(map(tuple, program)))
        return with_reductions(found) if self._names_reductions else found

    @property
    def _names_reductions(self) -> bool:
        return any(action.kind == "REDUCE_GRAD" for program in self.given.program for action in program)

    def shown(self, program: Sequence[Sequence[Action]]) -> Preview:
        """The preview of a program. Raises InvalidScheduleError should a search have made what no device can run."""
        return preview(self.schedule(program), self.costs)

    def held(self, shown: Preview) -> list[float]:
        """By device, on the cap's scale. Raises CostError for bytes where the costs know of no model."""
        if not self.cap.in_bytes:
            return [curve.peak for curve in shown.curves]
        if shown.memory is None:
            raise CostError(
                f"{shown.costs.name} knows of no bytes: a cap in bytes needs --costs with a model, such as a preset"
            )
        return [curve.peak for curve in shown.memory]

    def keeps(self, shown: Preview) -> bool:
        """Whether no device holds more than the cap."""
        return all(self.cap.keeps(held) for held in self.held(shown))
