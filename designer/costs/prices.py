"""What actions and messages of one layout cost: the tables that the simulator and list scheduling read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from contraflow.designer.format.schedule import Layout

Clock = Literal["unit", "seconds"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Costs by slot (see Layout.slot) on one clock. `seconds` or units in which a whole forward is 1."""

    clock: Clock
    costs: str
    """The cost model's name, as on the command line."""
    caption: str
    """The assumptions behind every figure that comes of these prices."""
    forward: Sequence[float]
    backward: Sequence[float]
    backward_input: Sequence[float]
    backward_weight: Sequence[float]
    latency: float
    """Of every message between two devices, beside its transfer."""
    transfer: Sequence[float]
    """How long a slot's activation, or the gradient of it, occupies its lane."""
    reduction: Sequence[float]
    """By stage: its weight gradients on their way to the owner."""
    after_step: float = 0.0
    """From the last gradient to the end of a training step; not part of a makespan."""

    def durations(self) -> dict[str, Sequence[float]]:
        """Tables by kind of action; REDUCE_GRAD occupies no compute."""
        return {"F": self.forward, "B": self.backward, "I": self.backward_input, "W": self.backward_weight}


CostModel = Callable[[Layout], Prices]
"""Prices every slot of a layout. Raises CostError where it cannot."""


class CostError(ValueError):
    """A cost model that is not known, cannot be read, or does not fit the layout; the message says what to do."""


def share(layout: Layout) -> float:
    """What one stage is of a device's share of the model: P / S."""
    return layout.num_devices / layout.num_stages


def activation(layout: Layout) -> list[float]:
    """What each slot's F holds until its B or W ends, in whole microbatches (the longest) through a device's share."""
    weight = share(layout) / layout.longest
    return [weight * length for split in layout.splits for length in split] * layout.num_stages


def slot_borders(layout: Layout) -> list[tuple[int, int]]:
    """First token and the one behind the last, for the slots of one stage."""
    return [border for microbatch in range(layout.num_microbatches) for border in layout.borders(microbatch)]
