"""The small kernels in Triton, for CUDA: each with the signature of its neighbour one folder up, which chooses.

Sums are taken in float32, or in float64 for float64 tensors. Import a module of this folder only where `absence()` is
None. With TRITON_INTERPRET=1 they run, slowly, on the CPU: so they are tested.
"""

from __future__ import annotations

from importlib.util import find_spec


def absence() -> str | None:
    """Why these kernels cannot be used on this machine; None where they can."""
    if find_spec("triton") is None:
        return "the package triton is not installed"
    return None
