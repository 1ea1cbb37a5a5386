"""Named models and machines. Figures are the makers' published ones; efficiencies are ours, and rough."""

from __future__ import annotations

from dataclasses import dataclass, fields

from contraflow.designer.format.model import ModelShape

MODELS = {
    "llama3-1b": ModelShape("llama", 16, 2048, 32, 8, 8192, 128256, tied=True),
    "llama3-3b": ModelShape("llama", 28, 3072, 24, 8, 8192, 128256, tied=True),
    "llama3-8b": ModelShape("llama", 32, 4096, 32, 8, 14336, 128256),
    "llama3-70b": ModelShape("llama", 80, 8192, 64, 8, 28672, 128256),
    "llama3-405b": ModelShape("llama", 126, 16384, 128, 8, 53248, 128256),
    "gpt-1.3b": ModelShape("gpt", 24, 2048, 16, 16, 8192, 50304, True, 131072),
    "gpt-2.7b": ModelShape("gpt", 32, 2560, 32, 32, 10240, 50304, True, 131072),
    "gpt-7b": ModelShape("gpt", 32, 4096, 32, 32, 16384, 50304, True, 131072),
    "gpt-13b": ModelShape("gpt", 40, 5120, 40, 40, 20480, 50304, True, 131072),
    "gpt-30b": ModelShape("gpt", 64, 6144, 64, 64, 24576, 50304, True, 131072),
    "gpt-175b": ModelShape("gpt", 96, 12288, 96, 96, 49152, 50304, True, 131072),
}


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of GPU and what joins two of them. Rates are per second and GPU, times in seconds, sizes in bytes."""

    peak_flops: float
    """Dense bfloat16 FLOP/s."""
    efficiency: float = 0.6
    """Fraction of the peak that the matrix products of long subsequences reach."""
    attention_efficiency: float = 0.5
    """The same for attention."""
    half_efficiency_tokens: int = 512
    """Tokens of an action that reach half of these fractions."""
    memory: float = 80e9
    memory_bandwidth: float = 2e12
    gpus_per_node: int = 8
    bandwidth: float = 200e9
    """Between two GPUs of a node, one way."""
    latency: float = 8e-6
    """Of one message within a node."""
    bandwidth_between_nodes: float = 25e9
    latency_between_nodes: float = 20e-6
    overhead: float = 30e-6
    """Of one action, whatever it computes."""

    def __post_init__(self) -> None:
        for field in fields(self):
            least = (
                0 if "latency" in field.name or field.name in ("half_efficiency_tokens", "overhead") else None
            )
            value = getattr(self, field.name)
            if least is None and not value > 0:
                raise ValueError(f"{field.name}: must be more than 0")
            if least == 0 and not value >= 0:
                raise ValueError(f"{field.name}: must not be less than 0")


# NVLink one way at some 80 % of its rate within a node; between nodes 200 Gb/s of InfiniBand for each A100, else 400.
HARDWARE = {
    "a100": Hardware(312e12, 0.65, memory=80e9, memory_bandwidth=2.0e12, bandwidth=240e9),
    "h100": Hardware(
        989e12,
        memory=80e9,
        memory_bandwidth=3.35e12,
        bandwidth=360e9,
        bandwidth_between_nodes=50e9,
    ),
    "h200": Hardware(
        989e12, memory=141e9, memory_bandwidth=4.8e12, bandwidth=360e9, bandwidth_between_nodes=50e9
    ),
    "b200": Hardware(
        2250e12,
        0.55,
        0.45,
        memory=180e9,
        memory_bandwidth=8.0e12,
        bandwidth=720e9,
        bandwidth_between_nodes=50e9,
    ),
}

DEFAULT = "llama3-8b-h100"
"""What `new --split compute|time` is priced by where nothing is named."""
