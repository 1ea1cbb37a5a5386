"""Nodes x devices: which rank plays which device, and what then crosses from node to node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from .costs.error import CostError
from .costs.footprint import Footprint
from .costs.prices import CostModel, Network, Prices
from .format.schedule import Layout

Ranks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one training step sends from node to node, by every GPU of a device together."""

    messages: float
    """Activations, and gradients of them."""
    reductions: float
    """Weight gradients to their owners, and new weights to the copies."""

    @property
    def total(self) -> float:
        return self.messages + self.reductions


def traffic(layout: Layout, network: Network, bytes_of: Footprint, num_gpus: int) -> Traffic:
    """What crosses between nodes, of all `num_gpus` that play a device."""
    messages = sum(
        bytes_of.message[slot]
        for slot, source, target in _messages(layout)
        if network.crosses(source, target)
    )
    reductions = sum(
        bytes_of.reduction[stage] + bytes_of.returned[stage]
        for stage, device, owner in _reductions(layout)
        if network.crosses(device, owner)
    )
    return Traffic(num_gpus * messages, num_gpus * reductions)


def _messages(layout: Layout) -> list[tuple[int, int, int]]:
    """(slot, source, target) of every activation, and of every gradient, which is as large as its activation."""
    found = []
    for microbatch, split in enumerate(layout.splits):
        placement = layout.directions[layout.direction_of[microbatch]].placement
        for stage in range(layout.num_stages - 1):
            source, target = placement[stage], placement[stage + 1]
            if source != target:
                for subsequence in range(len(split)):
                    slot = layout.slot(stage, microbatch, subsequence)
                    found += [(slot, source, target), (slot, target, source)]
    return found


def _reductions(layout: Layout) -> list[tuple[int, int, int]]:
    """(stage, device, owner) for every copy of a stage that is not its owner's."""
    return [
        (stage, device, owner)
        for stage, (copies, owner) in enumerate(zip(layout.copies, layout.owners, strict=True))
        for device in copies
        if device != owner
    ]


def linear(num_devices: int, per_node: int) -> Ranks:
    """Device d on rank d: pipeline neighbours share a node."""
    return tuple(range(num_devices))


def interleaved(num_devices: int, per_node: int) -> Ranks:
    """Mirrored devices on neighbouring ranks, 0 P-1 1 P-2 ...: reductions stay in a node (2410.19367, BitPipe)."""
    return _ranks(
        [device for d in range(num_devices // 2) for device in (d, num_devices - 1 - d)], num_devices
    )


def folded(num_devices: int, per_node: int) -> Ranks:
    """Each node a run of devices and its mirror image, {0, 1, P-2, P-1} first: reductions and most neighbours stay."""
    half, devices = max(per_node // 2, 1), []
    for start in range(0, num_devices // 2, half):
        run = range(start, min(start + half, num_devices // 2))
        devices += [*run, *(num_devices - 1 - device for device in reversed(run))]
    return _ranks(devices, num_devices)


def _ranks(devices: Sequence[int], num_devices: int) -> Ranks:
    """`devices` in the order of their ranks -> the rank of each; an odd one in the middle comes last."""
    order = [*devices, *sorted(set(range(num_devices)) - set(devices))]
    ranks = [0] * num_devices
    for rank, device in enumerate(order):
        ranks[device] = rank
    return tuple(ranks)


MAPPINGS: Mapping[str, Callable[[int, int], Ranks]] = {
    "linear": linear,
    "interleave": interleaved,
    "fold": folded,
}
"""(devices, devices of a node) -> the rank of each device."""

BEST = "best"
"""The word for the mapping that `best` finds."""


def mapped(word: str, layout: Layout, costs: CostModel) -> Ranks:
    """The ranks that a word means for a layout. Raises CostError for costs that know no nodes, and for other words."""
    if word == BEST:
        return best(layout, costs)
    if word not in MAPPINGS:
        raise CostError(
            f"no mapping {word!r}; there are {', '.join(MAPPINGS)}, {BEST}, and lists such as 0,3,1,2"
        )
    return MAPPINGS[word](layout.num_devices, _per_node(_in_order(layout, costs), costs))


def _in_order(layout: Layout, costs: CostModel) -> Prices:
    """With device d on rank d."""
    return costs(replace(layout, ranks=None))


def _per_node(prices: Prices, costs: CostModel) -> int:
    """How many devices share the first node. Raises CostError for costs that know no nodes."""
    nodes = prices.network.nodes
    if not nodes:
        raise CostError(f"{costs.name} knows no nodes: --ranks needs --costs MODEL-HARDWARE or a model.toml")
    return nodes.count(0)


def best(layout: Layout, costs: CostModel) -> Ranks:
    """The ranks for which messages spend least time between nodes: the best named mapping, improved by exchanges.

    The time counts every message and reduction by its link, each as if it were alone.
    """
    prices = _in_order(layout, costs)
    per_node = _per_node(prices, costs)
    excess = _excess(layout, prices)

    def crossing(ranks: Ranks) -> float:
        return sum(
            cost
            for (one, other), cost in excess.items()
            if ranks[one] // per_node != ranks[other] // per_node
        )

    ranks = min((make(layout.num_devices, per_node) for make in MAPPINGS.values()), key=crossing)
    while True:
        least, better = min((crossing(other), other) for other in _exchanges(ranks, per_node))
        if least >= crossing(ranks) * (1 - 1e-9):
            return ranks
        ranks = better


def _excess(layout: Layout, prices: Prices) -> dict[tuple[int, int], float]:
    """For each pair of devices, how much longer what they send one another takes between nodes than within one."""
    near, far = prices.network.near, prices.network.far
    latency, slowness = far.latency - near.latency, far.slowness - near.slowness
    found: dict[tuple[int, int], float] = defaultdict(float)
    for slot, source, target in _messages(layout):
        found[min(source, target), max(source, target)] += latency + slowness * prices.transfer[slot]
    for stage, device, owner in _reductions(layout):
        # There and, as new weights, back.
        found[min(device, owner), max(device, owner)] += 2 * (latency + slowness * prices.reduction[stage])
    return found


def _exchanges(ranks: Ranks, per_node: int) -> list[Ranks]:
    """`ranks`, and with each two devices of different nodes exchanged."""
    found = [ranks]
    for one, other in combinations(range(len(ranks)), 2):
        if ranks[one] // per_node != ranks[other] // per_node:
            exchanged = list(ranks)
            exchanged[one], exchanged[other] = ranks[other], ranks[one]
            found.append(tuple(exchanged))
    return found
