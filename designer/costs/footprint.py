"""What a layout keeps in memory, in bytes: the tables that memory.py adds up over a timeline.

Every term is what Contraflow's engine keeps alive, held against its allocations in tests/engine/test_memory.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Kind, Layout

from .parameters import Parameters, layer_counts
from .saved import Piece, Row, Saved
from .training import Training

ID = 8
"""Bytes of a token's id."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on one GPU: by device, by slot (see Layout.slot), or by stage."""

    caption: str
    """The assumptions behind every figure that comes of these."""
    weights: Sequence[float]
    """By device, each stage that it holds once, tables of rotary positions included."""
    gradients: Sequence[float]
    """By device."""
    optimizer: Sequence[float]
    """By device: of the stages that it owns."""
    batch: float
    """Token ids and targets of the whole pass, which every device has."""
    reduction: Sequence[float]
    """By stage: weight gradients on their way to the owner; without an embedding that two stages share."""
    returned: Sequence[float]
    """By stage: new weights on their way from the owner to a copy."""
    shared: tuple[float, float]
    """The same two of the embedding that first and last stage share; 0 where they share none."""
    message: Sequence[float]
    """By slot: an activation on its way to the next stage, or the gradient of it on its way back."""
    activations: Sequence[float]
    """By slot: what F leaves for B or I, its input included."""
    logits: Sequence[float]
    """By slot: what the loss leaves for B or I."""
    deferred: Sequence[float]
    """By slot: what I leaves for W, the gradient that it took included."""
    key_values: Sequence[float]
    """By slot: what F opens, and B or I closes, all of a microbatch's at its subsequence 0."""
    owed: Sequence[float]
    """By slot: what B or I adds to the gradients of keys and values; negative where it frees them."""
    extra: Mapping[Kind, Sequence[float]]
    """By slot: the most that an action has at any time beyond what was there when it began."""


def footprint(shape: ModelShape, training: Training) -> Callable[[Layout], Footprint]:
    """The footprint of a model trained so. Raises CostError where the layout's `layers` do not fit the model."""
    saved = Saved.of(shape, training)

    def occupied(layout: Layout) -> Footprint:
        counts = layer_counts(shape, layout)
        rows = _rows(saved, layout, counts)
        held, bytes_of = Parameters.of(shape, training, layout, counts), training.bytes
        gradients = [bytes_of.gradient * size for size in held.stages]
        weights = [bytes_of.weight * size for size in held.stages]
        return Footprint(
            caption=f"bytes modelled on one GPU: {training.worded('optimizer state over {} replicas')}, "
            "messages and what actions need for a while included",
            weights=held.weights(),
            gradients=held.gradients(),
            optimizer=held.optimizer(),
            batch=2.0 * ID * training.batch_size * sum(layout.sequences),
            reduction=gradients,
            returned=weights,
            shared=(bytes_of.gradient * held.shared, bytes_of.weight * held.shared),
            message=[row.message for row in rows],
            activations=[row.activations for row in rows],
            logits=[row.logits for row in rows],
            deferred=[row.deferred for row in rows],
            key_values=[row.key_values for row in rows],
            owed=[row.owed for row in rows],
            extra={
                "F": [row.forward for row in rows],
                "B": [row.backward for row in rows],
                "I": [row.backward_input for row in rows],
                # Products are added in place.
                "W": [0.0] * len(rows),
            },
        )

    return occupied


def _rows(saved: Saved, layout: Layout, counts: Sequence[int]) -> list[Row]:
    """By slot; alike slots share theirs."""
    pieces = [
        piece for microbatch in range(layout.num_microbatches) for piece in Piece.all_of(layout, microbatch)
    ]
    kinds = set(pieces)
    rows: list[Row] = []
    for stage, count in enumerate(counts):
        ends = stage == 0, stage == layout.num_stages - 1
        known = {piece: saved.row(piece, count, *ends) for piece in kinds}
        rows += [known[piece] for piece in pieces]
    return rows
