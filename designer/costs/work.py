"""Work: the unit clock with F in proportion to a model's causal FLOPs instead of tokens."""

from __future__ import annotations

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout

from .prices import CostModel, Prices, share, slot_borders


def matrix_work(shape: ModelShape, start: int, stop: int) -> float:
    """FLOPs of one layer's matrix products, forward, for the tokens [start, stop) of one sequence."""
    return 2.0 * shape.layer_matrix_weights * (stop - start)


def attention_work(shape: ModelShape, start: int, stop: int) -> float:
    """FLOPs of one layer's causal attention, forward: each token of [start, stop) with its whole prefix."""
    return 4.0 * shape.hidden * (stop * (stop + 1) - start * (start + 1)) / 2


def layer_work(shape: ModelShape, start: int, stop: int) -> float:
    """FLOPs of one layer, forward, for the tokens [start, stop) of one sequence (Seq1F1B, 2406.03488, section 3.4)."""
    return matrix_work(shape, start, stop) + attention_work(shape, start, stop)


def work(shape: ModelShape, name: str) -> CostModel:
    """F in proportion to the layers' causal work, B twice that, normalised like the unit clock; messages free."""

    def price(layout: Layout) -> Prices:
        whole = layer_work(shape, 0, layout.longest)
        each = [layer_work(shape, *border) / whole for border in slot_borders(layout)]
        shares = [share(layout)] * layout.num_stages
        if layout.layers is not None:
            total = max(sum(layout.layers), 1)
            shares = [count * layout.num_devices / total for count in layout.layers]
        forward = [part * cost for part in shares for cost in each]
        return Prices(
            clock="unit",
            costs=f"work:{name}",
            caption=(
                f"work of {name}'s layers, causal: F of a whole microbatch through a device's share = 1, B = 2F, "
                "I = W = F; embedding, head and messages free"
            ),
            forward=forward,
            backward=[2 * cost for cost in forward],
            backward_input=forward,
            backward_weight=forward,
            transfer=[0.0] * layout.num_slots,
            reduction=[0.0] * layout.num_stages,
        )

    return CostModel(f"work:{name}", price, shape)
