"""Each small kernel against its plain twin: the result, and every gradient."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from contraflow.kernels import reference
from contraflow.kernels.cross_entropy import cross_entropy, linear_cross_entropy
from contraflow.kernels.rms_norm import rms_norm
from contraflow.kernels.rope import frequencies, rotate, rotation
from contraflow.kernels.swiglu import swiglu


def assert_twins(kernel, twin, *leaves, tolerance=1e-13):
    results = []
    for function in (kernel, twin):
        copies = [leaf.clone().requires_grad_() for leaf in leaves]
        out = function(*copies)
        weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view(out.shape).to(out.dtype)
        (out * weights).sum().backward()
        results.append([out.detach(), *(copy.grad for copy in copies)])
    for found, wanted in zip(*results, strict=True):
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_rms_norm(dtype, tolerance):
    x, weight = normal(2, 5, 24, dtype=dtype), 1 + normal(24, dtype=dtype)
    assert_twins(
        lambda x, weight: rms_norm(x, weight, 1e-5),
        lambda x, weight: reference.rms_norm(x, weight, 1e-5),
        x,
        weight,
        tolerance=tolerance,
    )


def test_rms_norm_of_zeros_is_zero_with_a_finite_gradient():
    x = torch.zeros(3, 8, dtype=torch.float64, requires_grad=True)
    out = rms_norm(x, torch.ones(8, dtype=torch.float64), 1e-5)
    out.sum().backward()
    assert not out.any()
    assert x.grad.isfinite().all()


def test_rms_norm_in_half_precision_keeps_its_scale():
    x = (1000 * normal(4, 64)).to(torch.bfloat16)
    out = rms_norm(x, torch.ones(64, dtype=torch.bfloat16), 1e-5)
    assert (out.double().square().mean(dim=-1) - 1).abs().max() < 1e-2


def test_rotate():
    turns = rotation(9, frequencies(6, 10_000.0), torch.float64)
    assert_twins(lambda x: rotate(x, turns[2:]), lambda x: reference.rotate(x, turns[2:]), normal(2, 7, 3, 6))


def test_rotated_products_depend_on_the_distance_alone():
    turns = rotation(50, frequencies(8, 100.0), torch.float64)
    q, k = normal(1, 1, 1, 8), normal(1, 1, 1, 8).flip(-1)

    def product(at, to):
        return (rotate(q, turns[at : at + 1]) * rotate(k, turns[to : to + 1])).sum()

    assert torch.allclose(product(7, 3), product(41, 37), rtol=1e-12)
    assert not torch.allclose(product(7, 3), product(7, 4), rtol=1e-3)


def test_cross_entropy_with_ignored_targets():
    targets = torch.tensor([[3, -100, 0], [10, 7, -100]])
    logits = normal(2, 3, 11)
    assert_twins(
        lambda logits: cross_entropy(logits, targets, 9),
        lambda logits: reference.cross_entropy(logits, targets, 9),
        logits,
    )


def test_cross_entropy_of_ignored_targets_alone_is_zero_with_zero_gradients():
    logits = normal(4, 11).requires_grad_()
    loss = cross_entropy(logits, torch.full((4,), -100), 1)
    loss.backward()
    assert loss == 0
    assert not logits.grad.any()


def test_cross_entropy_in_half_precision_is_computed_in_float32():
    logits, targets = normal(6, 300).to(torch.bfloat16), torch.arange(6)
    assert cross_entropy(logits, targets, 6).dtype == torch.float32
    assert torch.allclose(
        cross_entropy(logits, targets, 6), reference.cross_entropy(logits.float(), targets, 6), rtol=1e-6
    )


def test_swiglu():
    assert_twins(swiglu, reference.swiglu, normal(3, 5, 7), normal(3, 5, 7).flip(0))


@pytest.mark.parametrize("vocabulary", [3, 40, 700])
@pytest.mark.parametrize("shape", [(1,), (3, 41), (200,)])
def test_linear_cross_entropy(shape, vocabulary):
    hidden, weight = normal(*shape, 6), normal(vocabulary, 6)
    targets = (torch.arange(hidden[..., 0].numel()) * 7 % vocabulary).view(shape)
    targets.view(-1)[::3] = -100
    assert_twins(
        lambda hidden, weight: linear_cross_entropy(hidden, weight, targets, 9),
        lambda hidden, weight: reference.linear_cross_entropy(hidden, weight, targets, 9),
        hidden,
        weight,
        tolerance=1e-12,
    )


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
def test_linear_cross_entropy_adds_to_a_given_gradient(kind):
    hidden, weight, targets = normal(90, 6).requires_grad_(), normal(50, 6), torch.arange(90) % 50
    leaf = weight.clone().requires_grad_()
    reference.linear_cross_entropy(hidden, leaf, targets, 90).backward()
    collected = torch.ones(50, 6, dtype=kind)
    taken = weight.clone().requires_grad_()
    linear_cross_entropy(hidden, taken, targets, 90, collected).backward()
    assert taken.grad is None
    assert torch.allclose(collected, (leaf.grad + 1).to(kind), rtol=1e-6 if kind == torch.float32 else 1e-12)


def test_linear_cross_entropy_without_gradients_only_looks():
    hidden, weight, targets = normal(90, 6).requires_grad_(), normal(50, 6), torch.arange(90) % 50
    collected = torch.zeros(50, 6, dtype=torch.float64)
    expected = linear_cross_entropy(hidden, weight.clone().requires_grad_(), targets, 90)
    with torch.no_grad():
        found = linear_cross_entropy(hidden, weight.requires_grad_(), targets, 90, collected)
    assert torch.allclose(found, expected, rtol=1e-14)
    assert not collected.any()


def test_linear_cross_entropy_holds_few_logits():
    """Never a tensor as large as all logits, forward or backward."""
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            sizes.extend(
                t.numel() for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, torch.Tensor)
            )
            return out

    hidden, weight = normal(2000, 4).requires_grad_(), normal(500, 4).requires_grad_()
    with Sizes():
        linear_cross_entropy(hidden, weight, torch.arange(2000) % 500, 2000).backward()
    assert max(sizes) == 512 * 500
