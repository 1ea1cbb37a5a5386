"""What actions and messages of one layout cost: the tables that the simulator and list scheduling read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout

from .footprint import Footprint
from .training import Training

Clock = Literal["unit", "seconds"]


class Link(NamedTuple):
    """What joins two devices: a transfer takes `slowness` times its price, and arrives `latency` later."""

    latency: float
    slowness: float


FREE = Link(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Network:
    """The links between devices: `near` within a node, `far` between two.

    `nodes` holds the node of each device; () where all are near one another. `lanes` holds the links that are known
    one by one, by the devices (source, target): each instead of near or far.
    """

    near: Link = FREE
    far: Link = FREE
    nodes: tuple[int, ...] = ()
    lanes: Mapping[tuple[int, int], Link] = field(default_factory=dict)

    def crosses(self, source: int, target: int) -> bool:
        """Whether a message between these devices leaves its node."""
        return bool(self.nodes) and self.nodes[source] != self.nodes[target]

    def link(self, source: int, target: int) -> Link:
        """What joins two devices."""
        lane = (source, target)
        if lane in self.lanes:
            return self.lanes[lane]
        return self.far if self.crosses(source, target) else self.near

    @property
    def links(self) -> set[Link]:
        """Every link that there may be between two devices."""
        return {self.near, self.far, *self.lanes.values()}


NEAR = Network()
"""All devices in one node, and nothing takes longer than its price."""


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
    transfer: Sequence[float]
    """How long a slot's activation, or the gradient of it, occupies a lane within a node."""
    reduction: Sequence[float]
    """By stage: how long its weight gradients occupy a lane within a node on their way to the owner."""
    network: Network = NEAR
    after_step: float = 0.0
    """From the last gradient to the end of a training step; not part of a makespan."""

    def durations(self) -> dict[str, Sequence[float]]:
        """Tables by kind of action; REDUCE_GRAD occupies no compute."""
        return {"F": self.forward, "B": self.backward, "I": self.backward_input, "W": self.backward_weight}

    @property
    def free_messages(self) -> bool:
        """Whether what is made is at once where it is needed."""
        return not (any(self.transfer) or any([link.latency for link in self.network.links]))


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices layouts; called with one, it gives its `Prices`. Raises CostError where it cannot.

    `shape` is the model behind the costs, `footprint` what it occupies: None where the costs know of none.
    """

    name: str
    prices: Callable[[Layout], Prices]
    shape: ModelShape | None = None
    footprint: Callable[[Layout], Footprint] | None = None
    memory: float | None = None
    """Bytes that one GPU has."""
    training: Training | None = None

    def __call__(self, layout: Layout) -> Prices:
        return self.prices(layout)


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
