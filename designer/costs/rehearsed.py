"""Prices of a rehearsal: stand-ins take the time of other costs, messages what was measured of the lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from contraflow.designer.format.schedule import Layout

from .prices import CostModel, Link, Network, Prices


def rehearsed(costs: CostModel, scale: float, lanes: Mapping[tuple[int, int], Link]) -> CostModel:
    """Actions of `scale` seconds for 1 on the clock of `costs`, whose own messages do not count.

    A link's latency is in seconds, its slowness in seconds for each token of a message.
    """

    def price(layout: Layout) -> Prices:
        prices = costs(layout)
        seconds = {kind: [scale * cost for cost in table] for kind, table in prices.durations().items()}
        return replace(
            prices,
            clock="seconds",
            costs=f"rehearsal of {costs.name}",
            caption="seconds of stand-ins, and of messages as they were measured lane by lane before the rehearsal",
            forward=seconds["F"],
            backward=seconds["B"],
            backward_input=seconds["I"],
            backward_weight=seconds["W"],
            transfer=[float(length) for split in layout.splits for length in split] * layout.num_stages,
            reduction=[float(reduced(layout))] * layout.num_stages,
            network=Network(lanes=lanes),
            after_step=0.0,
        )

    return CostModel(f"rehearsal of {costs.name}", price)


def reduced(layout: Layout) -> int:
    """Tokens that the weight gradients of a stage stand for on their way: those of the longest microbatch."""
    return layout.longest
