"""How many parameters stages and devices hold, as the engine lays them out, and what they occupy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout

from .error import CostError
from .training import Training

ALIGNMENT = 64
"""Elements: each parameter begins at a multiple of this many in its stage's flat tensors."""


def layer_counts(shape: ModelShape, layout: Layout, name: str = "") -> list[int]:
    """Layers of each stage. Raises CostError, naming the costs, where the layout's are not as many as the model's."""
    try:
        return [len(layers) for layers in layout.layer_ranges(shape.layers)]
    except ValueError as error:
        costs = f" ({name})" if name else ""
        raise CostError(f"{error}{costs}; choose a model with as many layers, or the unit clock") from None


@dataclass(frozen=True, slots=True)
class Parameters:
    """Elements on one GPU."""

    shape: ModelShape
    training: Training
    layout: Layout
    stages: Sequence[int]
    """By stage, aligned, without an embedding that first and last stage share."""
    stepped: Sequence[float]
    """By stage, what the optimizer keeps its state of."""
    rotations: Sequence[int]
    """By stage, bytes: its own table of rotary positions, where it has layers."""
    shared: int
    """Of that embedding, aligned; 0 where they share none."""

    @classmethod
    def of(cls, shape: ModelShape, training: Training, layout: Layout, counts: Sequence[int]) -> Parameters:
        """`counts` are the layers of each stage."""
        parts, last = training.tensor_parallel, layout.num_stages - 1
        table = shape.vocabulary * shape.hidden / parts
        norm = [shape.hidden] * (1 if shape.family == "llama" else 2)
        layer = _layer(shape, parts)
        aligned, exact = [], []
        for stage, count in enumerate(counts):
            sizes = layer * count
            if stage == 0:
                sizes = (
                    sizes
                    + [table] * (not shape.tied)
                    + [shape.positions * shape.hidden] * (shape.family == "gpt")
                )
            if stage == last:
                sizes = sizes + norm + [table] * (not shape.tied)
            aligned.append(sum(map(_aligned, sizes)))
            exact.append(sum(sizes))
        rotation = _rotation(shape, training, layout)
        rotations = [rotation if count else 0 for count in counts]
        return cls(shape, training, layout, aligned, exact, rotations, _aligned(table) if shape.tied else 0)

    def weights(self) -> list[float]:
        """Bytes by device, with each stage's own table of rotary positions."""
        size = self.training.bytes.weight
        held = self._by_device(
            [size * count + table for count, table in zip(self.stages, self.rotations, strict=True)]
        )
        return [most + size * self.shared * (device in self._sharing) for device, most in enumerate(held)]

    def gradients(self) -> list[float]:
        """Bytes by device."""
        size = self.training.bytes.gradient
        held = self._by_device([size * count for count in self.stages])
        return [most + size * self.shared * (device in self._sharing) for device, most in enumerate(held)]

    def optimizer(self) -> list[float]:
        """Bytes by device: of what it owns, a part for each replica; stage 0's owner has a shared embedding."""
        size = self.training.bytes.optimizer / self.training.replicas
        owned = [0.0] * self.layout.num_devices
        for owner, count in zip(self.layout.owners, self.stepped, strict=True):
            owned[owner] += size * count
        if self.shared:
            owned[self.layout.owners[0]] += (
                size * self.shape.vocabulary * self.shape.hidden / self.training.tensor_parallel
            )
        return owned

    @property
    def _sharing(self) -> set[int]:
        return {*self.layout.copies[0], *self.layout.copies[-1]}

    def _by_device(self, by_stage: Sequence[float]) -> list[float]:
        held = [0.0] * self.layout.num_devices
        for copies, size in zip(self.layout.copies, by_stage, strict=True):
            for device in copies:
                held[device] += size
        return held


def _rotation(shape: ModelShape, training: Training, layout: Layout) -> int:
    """Tables grow as tokens come, at least to twice their length; they hold complex numbers of at least 8 bytes."""
    if shape.family != "llama":
        return 0
    length = 0
    for microbatch in range(layout.num_microbatches):
        for _, stop in layout.borders(microbatch):
            if stop > length:
                length = max(stop, 2 * length)
    return max(training.bytes.activation, 4) * shape.head_dim * length


def _layer(shape: ModelShape, parts: int) -> list[float]:
    """The parameters of one layer. Tensor parallelism divides matrices, and the biases of what it divides by rows."""
    hidden, keys, ffn = shape.hidden, shape.kv_hidden / parts, shape.ffn / parts
    attention = [hidden * hidden / parts, hidden * keys, hidden * keys, hidden * hidden / parts]
    if shape.family == "llama":
        return [hidden, *attention, hidden, *[hidden * ffn] * 3]
    biases = [hidden / parts, keys, hidden, ffn, hidden]
    return [hidden, hidden, *attention, hidden, hidden, *[hidden * ffn] * 2, *biases]


def _aligned(size: float) -> int:
    return ceil(size / ALIGNMENT) * ALIGNMENT
