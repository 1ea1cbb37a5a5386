"""A model on a machine: seconds from FLOPs, bytes and overheads."""

from __future__ import annotations

from dataclasses import dataclass

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout

from .error import CostError
from .footprint import Footprint, footprint
from .parameters import layer_counts
from .presets import Hardware
from .prices import CostModel, Link, Network, Prices, slot_borders
from .training import Training
from .work import attention_work, matrix_work

ATTENTION_BACKWARD = 2.5
"""Times the FLOPs of its forward: the scores are made again. None of it is W."""
LOGIT_PASSES = 3
"""Times that the logits are read or written in float32, forward and again backward."""
UPDATE_PASSES = 2
"""Times that AdamW moves all that it keeps of a weight."""


def model_on_hardware(shape: ModelShape, hardware: Hardware, training: Training, name: str) -> CostModel:
    """Seconds of every action from its matrix products, causal attention, bytes moved and overhead.

    The embedding is on the first stage, head and loss on the last. Raises CostError, when called, where the layout's
    `layers` do not add up to the model's, or where the model cannot be divided by the tensor parallelism.
    """
    parts = training.tensor_parallel
    if shape.kv_heads % parts:
        raise CostError(
            f"{name}: tensor_parallel {parts} does not divide the {shape.kv_heads} key and value heads of the model"
        )
    if hardware.gpus_per_node % parts:
        raise CostError(
            f"{name}: tensor_parallel {parts} does not divide the {hardware.gpus_per_node} GPUs of a node; "
            "its group belongs within one"
        )
    occupied = footprint(shape, training)

    def price(layout: Layout) -> Prices:
        counts = layer_counts(shape, layout, name)
        borders = slot_borders(layout)
        pieces = [_Piece(shape, hardware, training, start, stop) for start, stop in borders]
        last = layout.num_stages - 1
        tables: dict[str, list[float]] = {"F": [], "B": [], "I": [], "W": []}
        for stage, count in enumerate(counts):
            for piece in pieces:
                times = piece.times(count, stage == 0, stage == last)
                for kind, seconds in zip(tables, times, strict=True):
                    tables[kind].append(seconds)
        bytes_of = occupied(layout)
        return Prices(
            clock="seconds",
            costs=name,
            caption=f"seconds modelled for {name}: {training.worded('{} replicas')}, causal attention, "
            "messages and reductions included",
            forward=tables["F"],
            backward=tables["B"],
            backward_input=tables["I"],
            backward_weight=tables["W"],
            transfer=[size / hardware.bandwidth for size in bytes_of.message],
            reduction=[size / hardware.bandwidth for size in bytes_of.reduction],
            network=network(hardware, training, layout),
            after_step=_after_step(hardware, training, layout, bytes_of),
        )

    return CostModel(name, price, shape, occupied, hardware.memory, training)


def network(hardware: Hardware, training: Training, layout: Layout) -> Network:
    """Which devices share a node where `ranks` puts them, and what joins those that do not."""
    per_node = hardware.gpus_per_node // training.tensor_parallel
    ranks = layout.ranks or range(layout.num_devices)
    return Network(
        Link(hardware.latency, 1.0),
        Link(hardware.latency_between_nodes, hardware.bandwidth / hardware.bandwidth_between_nodes),
        tuple(rank // per_node for rank in ranks),
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """A subsequence, the tokens [start, stop) of every sequence of a microbatch, on one GPU of a device."""

    shape: ModelShape
    hardware: Hardware
    training: Training
    start: int
    stop: int

    def times(self, num_layers: int, first: bool, last: bool) -> tuple[float, float, float, float]:
        """Seconds of F, B, I and W in a stage of so many layers."""
        shape, hardware, training = self.shape, self.hardware, self.training
        share = training.batch_size / training.tensor_parallel
        tokens = (self.stop - self.start) * share
        matrices = num_layers * self._seconds(matrix_work(shape, self.start, self.stop) * share)
        attention = num_layers * self._seconds(
            attention_work(shape, self.start, self.stop) * share, hardware.attention_efficiency
        )
        moved = num_layers * self._moved(_elementwise(shape) * training.bytes.activation * tokens)
        moved += num_layers * self._collectives()
        layers = matrices + attention + moved
        if last:
            matrices += self._seconds(2.0 * shape.hidden * shape.vocabulary * tokens)
            moved += self._moved(4.0 * LOGIT_PASSES * shape.vocabulary * tokens)
        if first:
            moved += self._moved(2.0 * training.bytes.activation * shape.hidden * tokens)
        overhead = hardware.overhead
        again = layers if training.checkpointing else 0.0
        # Norms and activations read twice as much backward: what came in, and the gradient.
        inputs = matrices + ATTENTION_BACKWARD * attention + 2 * moved + again
        return (
            matrices + attention + moved + overhead,
            inputs + matrices + overhead,
            inputs + overhead,
            matrices + overhead,
        )

    def _seconds(self, flops: float, efficiency: float | None = None) -> float:
        hardware, tokens = self.hardware, (self.stop - self.start) * self.training.batch_size
        reached = (efficiency or hardware.efficiency) * tokens / (tokens + hardware.half_efficiency_tokens)
        return flops / (hardware.peak_flops * reached)

    def _moved(self, size: float) -> float:
        return size / self.hardware.memory_bandwidth

    def _collectives(self) -> float:
        """Of one layer under tensor and sequence parallelism: two all-gathers and two reduce-scatters."""
        parts, training = self.training.tensor_parallel, self.training
        if parts == 1:
            return 0.0
        size = training.bytes.activation * self.shape.hidden * (self.stop - self.start) * training.batch_size
        return 4 * (size * (parts - 1) / parts / self.hardware.bandwidth + self.hardware.latency)


def _elementwise(shape: ModelShape) -> int:
    """Elements that the norms, rotations, additions and activations of a layer read or write for each token.

    Two norms and two additions: 2 and 3 times `hidden` each. Rotation: queries and keys, in and out. SwiGLU: silu,
    and a product of two.
    """
    passes = 10 * shape.hidden
    if shape.family == "llama":
        return passes + 2 * (shape.hidden + shape.kv_hidden) + 5 * shape.ffn
    return passes + 2 * shape.ffn


def _after_step(hardware: Hardware, training: Training, layout: Layout, bytes_of: Footprint) -> float:
    """The update where it takes longest; before it gradients over the replicas, behind it weights to the copies."""
    update = UPDATE_PASSES * max(bytes_of.optimizer) / hardware.memory_bandwidth
    if training.replicas > 1:
        others = (training.replicas - 1) / training.replicas
        both = max(map(sum, zip(bytes_of.weights, bytes_of.gradients, strict=True)))
        update += others * both / hardware.bandwidth_between_nodes + 2 * hardware.latency_between_nodes
    joined = network(hardware, training, layout)
    back: dict[tuple[int, int], float] = {}
    for copies, owner, size in zip(layout.copies, layout.owners, bytes_of.returned, strict=True):
        for device in copies:
            if device != owner:
                lane = (owner, device)
                link = joined.link(*lane)
                back[lane] = back.get(lane, link.latency) + link.slowness * size / hardware.bandwidth
    return update + max(back.values(), default=0.0)
