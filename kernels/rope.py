"""Rotary positions: a complex product, so one pass over x, and its backward is the conjugate's product.

Pairs are neighbours, (x[2i], x[2i+1]), as in Meta's LLaMA checkpoints; those with pairs (x[i], x[i + head_dim/2])
need the rows of their query and key weights permuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi

import torch
from torch import Tensor

from contraflow.kernels import gpu


def frequencies(head_dim: int, base: float, scaling: Sequence[float] = ()) -> Tensor:
    """What each pair turns by from one position to the next: base ** (-2i / head_dim), float64 [head_dim / 2].

    `scaling` stretches the slow ones as Llama 3.1 does (2407.21783, section 3.4.2, as published with its weights):
    by `factor` those that turn less than `low` times in the `original` positions, not those of more than `high`
    turns, and those between in between.
    """
    found = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if not scaling:
        return found
    factor, low, high, original = scaling
    turns = found * original / (2 * pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return found * (kept + (1 - kept) / factor)


def rotation(length: int, frequencies: Tensor, dtype: torch.dtype) -> Tensor:
    """exp(1j * position * frequency) for the positions below `length`.

    Returns [length, 1, head_dim / 2], complex of `dtype`'s precision, at least complex64; angles are taken in float64.
    """
    angles = torch.arange(length, dtype=torch.float64, device=frequencies.device).outer(frequencies)
    turns = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
    return turns if dtype == torch.float64 else turns.to(torch.complex64)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """x [batch, n, heads, head_dim] with each pair turned by its position's angle; `rotation` [n, 1, head_dim / 2]."""
    if x.is_cuda and gpu.absence() is None:
        from contraflow.kernels.gpu.rope import rotate as fused

        return fused(x, rotation)
    pairs = x.to(rotation.real.dtype).view(*x.shape[:-1], -1, 2)
    return torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2).to(x.dtype)
