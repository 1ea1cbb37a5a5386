"""The Triton kernels against their plain twins: in Triton's interpreter on the CPU, or as they are on a GPU.

The interpreter has to be asked for before Triton is imported, so these tests ask for it in a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from contraflow.kernels import gpu, reference

pytestmark = pytest.mark.skipif(gpu.absence() is not None, reason=str(gpu.absence()))
HERE = os.environ.get("TRITON_INTERPRET") == "1" or torch.cuda.is_available()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
inside = pytest.mark.skipif(not HERE, reason="runs in the process of test_in_the_interpreter")


@pytest.mark.skipif(HERE, reason="this is where it led")
def test_in_the_interpreter() -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        __file__,
    ]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    assert "1 skipped" in done.stdout


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory holds NaN: whatever a kernel does not write shows."""

    def nan(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args, **kwargs: make(*args, **kwargs).fill_(float("nan"))

    monkeypatch.setattr(torch, "empty", nan(torch.empty))
    monkeypatch.setattr(torch, "empty_like", nan(torch.empty_like))


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)


TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def assert_twins(
    kernel: Callable[..., Tensor], twin: Callable[..., Tensor], *leaves: Tensor, dtype: torch.dtype
) -> None:
    """The same result and gradients as the twin gives in float64, for tensors rounded to `dtype`."""
    rounded = [leaf.to(dtype) for leaf in leaves]
    results = []
    for function, kind in ((kernel, dtype), (twin, torch.float64)):
        copies = [leaf.clone().to(kind).requires_grad_() for leaf in rounded]
        out = function(*copies)
        weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64, device=DEVICE).view(out.shape)
        (out * weights.to(out.dtype)).sum().backward()
        results.append([out.detach(), *(copy.grad for copy in copies)])
    for found, wanted in zip(*results, strict=True):
        assert found is not None
        assert wanted is not None
        assert found.shape == wanted.shape
        error = (found.double() - wanted).abs().max() if found.numel() else torch.zeros(())
        assert error <= TOLERANCES[dtype] * max(float(wanted.abs().max()), 1.0)


DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)


@inside
@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 64), (300, 33), (4, 1000)])
def test_rms_norm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    from contraflow.kernels.gpu.rms_norm import rms_norm

    weight = normal(shape[-1])
    assert_twins(
        lambda x, w: rms_norm(x, w, 1e-5),
        lambda x, w: reference.rms_norm(x, w, 1e-5),
        normal(*shape),
        weight,
        dtype=dtype,
    )


@inside
@DTYPES
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 7, 3, 6), (1, 130, 5, 10)])
def test_rope(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    from contraflow.kernels.gpu.rope import rotate
    from contraflow.kernels.rope import frequencies, rotation

    def turns(kind: torch.dtype) -> Tensor:
        return rotation(shape[1] + 3, frequencies(shape[3], 100.0).to(DEVICE), kind)[3:]

    assert_twins(
        lambda x: rotate(x, turns(dtype)),
        lambda x: reference.rotate(x, turns(torch.float64)),
        normal(*shape),
        dtype=dtype,
    )


@inside
@DTYPES
@pytest.mark.parametrize("shape", [(1,), (3, 5, 7), (3, 1025)])
def test_swiglu(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    from contraflow.kernels.gpu.swiglu import swiglu

    assert_twins(swiglu, reference.swiglu, normal(*shape), 3 * normal(*shape).flip(0), dtype=dtype)


@inside
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 1), (5, 3), (9, 257), (3, 9001)])
def test_cross_entropy(rows: int, vocabulary: int, dtype: torch.dtype) -> None:
    from contraflow.kernels.gpu.cross_entropy import loss_and_gradient

    logits = (10 * normal(rows, vocabulary)).to(dtype)
    targets = torch.arange(rows, device=DEVICE) * 7 % vocabulary
    targets[rows // 2] = -100
    expected = logits.clone().double().requires_grad_()
    reference.cross_entropy(expected, targets, 4).backward()
    losses = loss_and_gradient(logits, targets, 0.25)
    tolerance = TOLERANCES[dtype]
    assert losses[rows // 2] == 0
    with torch.no_grad():
        wanted = reference.cross_entropy(expected, targets, 4)
        assert (losses.sum() - wanted).abs() <= tolerance * max(float(wanted.abs()), 1.0)
    assert expected.grad is not None
    assert (logits - expected.grad).abs().max() <= tolerance


@inside
def test_what_is_laid_out_otherwise() -> None:
    """Transposed tensors, as products and splits hand them on."""
    from contraflow.kernels.gpu.rms_norm import rms_norm
    from contraflow.kernels.gpu.rope import rotate
    from contraflow.kernels.gpu.swiglu import swiglu
    from contraflow.kernels.rope import frequencies, rotation

    x = normal(6, 4).t()
    assert torch.allclose(rms_norm(x, normal(6), 1e-5), reference.rms_norm(x, normal(6), 1e-5))
    assert torch.allclose(swiglu(x, x), reference.swiglu(x, x))
    heads = normal(1, 3, 5, 4).transpose(1, 2)
    turns = rotation(5, frequencies(4, 100.0).to(DEVICE), torch.float64)
    assert torch.allclose(rotate(heads, turns), reference.rotate(heads, turns))
