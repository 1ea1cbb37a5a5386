"""The shape of a model: the one description that costs and engine share."""

from __future__ import annotations

from dataclasses import dataclass, fields

FAMILIES = ("llama", "gpt")
ROPE_BASE = 10_000.0
NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only transformer.

    `llama`: RMSNorm, rotary positions, SwiGLU, grouped-query attention, no biases.
    `gpt`: LayerNorm, learned positions (`positions` of them), GELU, biases.

    Raises ValueError, naming the field, for sizes that no model can have.
    """

    family: str = "llama"
    layers: int = 4
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 4
    ffn: int = 352
    vocabulary: int = 256
    tied: bool = False
    positions: int = 0
    norm_eps: float = NORM_EPS
    """Under the root of every norm."""
    rope_base: float = ROPE_BASE
    """Of a llama's rotary positions."""
    rope_scaling: tuple[float, ...] = ()
    """As Llama 3.1 stretches them: factor, low and high frequency factor, positions before; () where it does not."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family: {self.family!r} is not one of {', '.join(FAMILIES)}")
        for field in fields(self):
            if field.type != "int" or field.name == "positions":
                continue
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field.name}: {value!r} is not a whole number of at least 1")
        if self.hidden % self.heads:
            raise ValueError(f"heads: {self.heads} heads do not divide a hidden size of {self.hidden}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads: {self.kv_heads} do not divide {self.heads} heads")
        if self.family == "llama" and (self.hidden // self.heads) % 2:
            raise ValueError(
                f"heads: rotary positions need an even head size, not {self.hidden // self.heads}"
            )
        for name in ("norm_eps", "rope_base"):
            if not 0 < getattr(self, name) < 1e30:
                raise ValueError(f"{name}: {getattr(self, name)} is not a number above 0")
        if len(self.rope_scaling) not in (0, 4) or not all(0 < value < 1e30 for value in self.rope_scaling):
            raise ValueError("rope_scaling: four numbers above 0 belong there, or none")
        if self.family == "gpt" and self.positions < 1:
            raise ValueError("positions: a gpt model needs the number of its learned positions")

    @property
    def head_dim(self) -> int:
        """Size of one attention head."""
        return self.hidden // self.heads

    @property
    def kv_hidden(self) -> int:
        """Size of all key (or value) heads together."""
        return self.kv_heads * self.head_dim

    @property
    def layer_matrix_weights(self) -> int:
        """Weights of one layer that take part in a matrix product, each costing 2 FLOPs a token."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_hidden
        num_ffn_matrices = 3 if self.family == "llama" else 2
        return attention + num_ffn_matrices * self.hidden * self.ffn
