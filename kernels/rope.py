"""Rotary positions: a complex product, so one pass over x, and its backward is the conjugate's product.

Pairs are neighbours, (x[2i], x[2i+1]), as in Meta's LLaMA checkpoints; those with pairs (x[i], x[i + head_dim/2])
need the rows of their query and key weights permuted.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotation(length: int, head_dim: int, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """exp(1j * position * base ** (-2i / head_dim)) for the positions below `length`.

    Returns [length, 1, head_dim / 2], complex of `dtype`'s precision, at least complex64; angles are taken in float64.
    """
    frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim)
    angles = torch.arange(length, dtype=torch.float64, device=device).outer(frequencies)
    turns = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
    return turns if dtype == torch.float64 else turns.to(torch.complex64)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """x [batch, n, heads, head_dim] with each pair turned by its position's angle; `rotation` [n, 1, head_dim / 2]."""
    pairs = x.to(rotation.real.dtype).view(*x.shape[:-1], -1, 2)
    return torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2).to(x.dtype)
