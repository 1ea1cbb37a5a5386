"""How a model is trained, beside its schedule: what turns its shape into FLOPs and bytes on a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of one element. `optimizer` is all that AdamW keeps of a weight: two moments, and a master copy if any."""

    activation: int
    weight: int
    gradient: int
    optimizer: int


PRECISIONS = {
    "bfloat16": Precision(2, 2, 4, 12),
    "float32": Precision(4, 4, 4, 8),
    "float64": Precision(8, 8, 8, 16),
}
"""bfloat16 with float32 gradients and master weights, as long runs need it."""


@dataclass(frozen=True, slots=True)
class Training:
    """Raises ValueError, naming the field, for what no run can have."""

    batch_size: int = 1
    """Sequences in a microbatch."""
    precision: str = "bfloat16"
    tensor_parallel: int = 1
    """GPUs that play one device: each holds that part of its weights and, with sequence parallelism, activations."""
    replicas: int = 1
    """Data-parallel copies of the whole pipeline, over which the optimizer state is sharded (ZeRO-1)."""
    checkpointing: bool = False
    """Keep of each layer its input alone, and run its forward again before its backward."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision: {self.precision!r} is none of {', '.join(PRECISIONS)}")
        for name in ("batch_size", "tensor_parallel", "replicas"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1")

    def worded(self, replicas: str) -> str:
        """All that is not at rest; `replicas` says of their number, as {}, what it does."""
        settings = [
            self.precision,
            f"{self.batch_size} sequence{'s' * (self.batch_size > 1)} a microbatch",
            *([f"tensor parallel {self.tensor_parallel}"] if self.tensor_parallel > 1 else []),
            *([replicas.format(self.replicas)] if self.replicas > 1 else []),
            *(["activation checkpointing"] if self.checkpointing else []),
        ]
        return ", ".join(settings)

    @property
    def bytes(self) -> Precision:
        """Bytes of one element of each kind."""
        return PRECISIONS[self.precision]
