"""What a device is doing, and for how long, for whoever must report that it does no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic


@dataclass(slots=True)
class Status:
    """One device's; whoever plays it says what it turns to with `now`."""

    device: int
    step: int = 0
    doing: str = "has not begun"
    since: float = field(default_factory=monotonic)

    def now(self, doing: str) -> None:
        """The device turns to something else."""
        self.doing, self.since = doing, monotonic()

    def __str__(self) -> str:
        text = f"device {self.device}, in step {self.step}, {self.doing}"
        seconds = monotonic() - self.since
        return f"{text}, for {seconds:.0f} s" if seconds >= 1 else text
