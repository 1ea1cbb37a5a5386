"""A model on a machine: seconds from FLOPs, bytes and overheads."""

from __future__ import annotations

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout

from .presets import Hardware
from .prices import CostError, CostModel, Prices, slot_borders
from .work import attention_work, matrix_work

BYTES = 2
"""Of an activation, a weight or a gradient in bfloat16."""
UPDATE_BYTES = 30
"""Read and written per weight by AdamW with float32 master weights: 3 states in and out, gradient, bfloat16 weight."""


def model_on_hardware(shape: ModelShape, hardware: Hardware, name: str) -> CostModel:
    """Forward FLOPs of each stage over what a subsequence of that length reaches of the peak, and an overhead.

    Attention is causal; its backward takes 2.5 times its forward, of which nothing is W. The embedding is on the first
    stage, head and loss on the last. Raises CostError where the layout's `layers` do not add up to the model's.
    """

    def seconds(flops: float, tokens: int) -> float:
        reached = hardware.efficiency * tokens / (tokens + hardware.half_efficiency_tokens)
        return flops / (hardware.peak_flops * reached)

    def price(layout: Layout) -> Prices:
        try:
            counts = [len(layers) for layers in layout.layer_ranges(shape.layers)]
        except ValueError as error:
            raise CostError(
                f"{error} ({name}); choose a model with as many layers, or the unit clock"
            ) from None
        tables: dict[str, list[float]] = {"F": [], "B": [], "I": [], "W": []}
        borders = slot_borders(layout)
        for stage, count in enumerate(counts):
            for start, stop in borders:
                tokens = stop - start
                matrices = count * matrix_work(shape, start, stop)
                attention = count * attention_work(shape, start, stop)
                bytes_moved = 0.0
                if stage == layout.num_stages - 1:
                    matrices += 2.0 * shape.hidden * shape.vocabulary * tokens
                    bytes_moved += 4.0 * shape.vocabulary * tokens
                if stage == 0:
                    bytes_moved += BYTES * shape.hidden * tokens
                extra = hardware.overhead + bytes_moved / hardware.memory_bandwidth
                weight = seconds(matrices, tokens)
                tables["F"].append(seconds(matrices + attention, tokens) + extra)
                tables["I"].append(seconds(matrices + 2.5 * attention, tokens) + extra)
                tables["W"].append(weight + hardware.overhead)
                tables["B"].append(seconds(2 * matrices + 2.5 * attention, tokens) + extra)
        weights = [
            _stage_weights(shape, stage, count, layout.num_stages) for stage, count in enumerate(counts)
        ]
        owned = [0] * layout.num_devices
        for stage, owner in enumerate(layout.owners):
            owned[owner] += weights[stage]
        return Prices(
            clock="seconds",
            costs=name,
            caption=f"seconds modelled for {name}: causal attention, bfloat16, messages and reductions included",
            forward=tables["F"],
            backward=tables["B"],
            backward_input=tables["I"],
            backward_weight=tables["W"],
            latency=hardware.latency,
            transfer=[BYTES * shape.hidden * (stop - start) / hardware.bandwidth for start, stop in borders]
            * layout.num_stages,
            reduction=[BYTES * weight / hardware.bandwidth + hardware.latency for weight in weights],
            after_step=UPDATE_BYTES * max(owned) / hardware.memory_bandwidth,
        )

    return price


def _stage_weights(shape: ModelShape, stage: int, layers: int, num_stages: int) -> int:
    weights = layers * shape.layer_matrix_weights
    if stage in (0, num_stages - 1):
        weights += shape.vocabulary * shape.hidden
    return weights
