"""SwiGLU's product: silu of one projection times another."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from contraflow.kernels import gpu


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, all of one shape."""
    if gate.is_cuda and gpu.absence() is None:
        from contraflow.kernels.gpu.swiglu import swiglu as fused

        return fused(gate, up)
    return F.silu(gate) * up
