"""The shape of a model: the one description that costs and engine share."""

from __future__ import annotations

from dataclasses import dataclass, fields

FAMILIES = ("llama", "gpt")


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

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family: {self.family!r} is not one of {', '.join(FAMILIES)}")
        for field in fields(self):
            if field.name in ("family", "tied", "positions"):
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
