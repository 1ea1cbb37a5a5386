"""The unit clock: compares orders without a model or a machine."""

from __future__ import annotations

from contraflow.designer.format.schedule import Layout

from .prices import CostModel, Prices, activation

CAPTION = "unit clock: F of a whole microbatch through a device's share = 1, B = 2, I = W = 1, messages free"
UNEVEN = "; it counts tokens, not work, and subsequences differ in length here: compare them by work:MODEL"


def _price(layout: Layout) -> Prices:
    once = activation(layout)
    free = [0.0] * layout.num_slots
    return Prices(
        clock="unit",
        costs="unit",
        caption=CAPTION + ("" if layout.even else UNEVEN),
        forward=once,
        backward=[2 * cost for cost in once],
        backward_input=once,
        backward_weight=once,
        transfer=free,
        reduction=[0.0] * layout.num_stages,
    )


unit = CostModel("unit", _price)
"""F in proportion to tokens, B twice that, I and W once each; communication and reductions cost nothing."""
