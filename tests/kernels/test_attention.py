"""Every backend that this machine has, against PyTorch's own attention with mask and repeated heads spelled out."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st

from contraflow.kernels.attention import BACKENDS, Backend, available, choose

EXACT = [backend for backend in BACKENDS if backend.refusal("cpu", torch.float64) is None]


def spelled_out(q, k, v):
    """[batch, n, heads, head_dim] of the last n tokens of the prefix, by a masked softmax."""
    n, total, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    seen = torch.ones(n, total, dtype=torch.bool, device=q.device).tril(total - n)
    k, v = (tensor.repeat_interleave(group, dim=2).transpose(1, 2) for tensor in (k, v))
    return F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=seen).transpose(1, 2)


def tensors(n, past, *, batch=2, kv_heads=2, group=2, head_dim=8, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(n * 10_007 + past)

    def normal(tokens, heads):
        drawn = torch.randn(batch, tokens, heads, head_dim, generator=generator, dtype=torch.float64)
        return drawn.to(device, dtype)

    heads = kv_heads * group
    return normal(n, heads), normal(past + n, kv_heads), normal(past + n, kv_heads), normal(n, heads)


def assert_as_spelled_out(backend: Backend, q, k, v, grad, tolerance):
    leaves = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    expected = spelled_out(*leaves)
    expected_grads = torch.autograd.grad(expected, leaves, grad.double())
    out, lse = backend.forward(q, k, v)
    grads = backend.backward(grad, q, k, v, out, lse)
    past = k.shape[1] - q.shape[1]
    assert (grads.past is None) == (past == 0)
    key, value = grads.key, grads.value
    if grads.past is not None:
        key, value = (torch.cat(pair, dim=1) for pair in zip(grads.past, (key, value), strict=True))
    found = (out, grads.query, key, value)
    for tensor, wanted, like in zip(found, (expected, *expected_grads), (q, q, k, v), strict=True):
        assert tensor.shape == like.shape
        assert tensor.dtype == like.dtype
        # A single key gives queries no gradient: what is left is rounding of what cancels, of size one.
        assert (tensor - wanted).abs().max() <= tolerance * max(wanted.abs().max(), 1)
    assert lse.shape == (q.shape[0], q.shape[2], q.shape[1])


@pytest.mark.parametrize("backend", EXACT, ids=lambda backend: backend.name)
@given(n=st.integers(1, 60), past=st.integers(0, 60), kv_heads=st.integers(1, 3), group=st.integers(1, 3))
@example(n=600, past=0, kv_heads=1, group=2)  # a diagonal that is halved more than once, unevenly
@example(n=513, past=700, kv_heads=1, group=1)
@example(n=1, past=300, kv_heads=1, group=1)
def test_out_and_gradients_are_those_of_a_masked_softmax(backend, n, past, kv_heads, group):
    assert_as_spelled_out(backend, *tensors(n, past, kv_heads=kv_heads, group=group), tolerance=1e-13)


@pytest.mark.parametrize("backend", EXACT, ids=lambda backend: backend.name)
@given(documents=st.lists(st.integers(1, 9), min_size=1, max_size=6), past=st.integers(0, 60))
@example(
    documents=[700, 3, 600], past=650
)  # keys by blocks of 512, some of which a query does not see at all
def test_packed_documents_are_as_if_each_were_alone(backend, documents, past):
    total = sum(documents)
    past %= total
    q, k, v, grad = tensors(total - past, past, batch=1)
    begins = torch.tensor(documents).cumsum(0) - torch.tensor(documents)
    starts = begins.repeat_interleave(torch.tensor(documents)).unsqueeze(0)[:, past:]
    out, lse = backend.forward(q, k, v, starts)
    grads = backend.backward(grad, q, k, v, out, lse, starts)
    key, value = grads.key, grads.value
    if grads.past is not None:
        key, value = (torch.cat(pair, dim=1) for pair in zip(grads.past, (key, value), strict=True))
    for begin, length in zip(begins.tolist(), documents, strict=True):
        queries = slice(max(begin - past, 0), max(begin + length - past, 0))
        keys = slice(begin, begin + length)
        leaves = [t.clone().requires_grad_() for t in (q[:, queries], k[:, keys], v[:, keys])]
        if not leaves[0].shape[1]:
            assert not key[:, keys].any()
            continue
        wanted = spelled_out(*leaves)
        found = (out[:, queries], grads.query[:, queries], key[:, keys], value[:, keys])
        for tensor, right in zip(
            found, (wanted, *torch.autograd.grad(wanted, leaves, grad[:, queries])), strict=True
        ):
            assert (tensor - right).abs().max() <= 1e-13 * max(right.abs().max(), 1)


@pytest.mark.parametrize("past", [0, 300])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_half_precision_is_within_its_rounding(device, past):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    backend = choose(device, torch.bfloat16)
    q, k, v, grad = tensors(600, past, dtype=torch.bfloat16, device=device)
    assert_as_spelled_out(backend, q, k, v, grad, tolerance=2e-2)


def test_views_into_larger_buffers_are_taken_as_they_are():
    q, k, v, grad = tensors(40, 25)
    larger = [torch.full((2, 100, *tensor.shape[2:]), torch.nan, dtype=tensor.dtype) for tensor in (k, v)]
    for buffer, tensor in zip(larger, (k, v), strict=True):
        buffer[:, :65] = tensor
    keys, values = (buffer[:, :65] for buffer in larger)
    packed = torch.cat((q, q), dim=-1)[..., :8]
    for backend in EXACT:
        assert_as_spelled_out(backend, packed, keys, values, grad, tolerance=1e-13)


def test_the_fastest_backend_that_can_serve_is_chosen():
    assert choose("cpu", torch.float32).name == "cpu_flash"
    assert choose("cpu", torch.float32, "reference").name == "reference"
    assert choose("cuda", torch.float32).name == "reference"


@pytest.mark.parametrize(
    ("override", "device", "dtype", "reason"),
    [
        ("cuda_flash", "cpu", torch.bfloat16, "runs on cuda, not on cpu"),
        ("cpu_flash", "cuda", torch.bfloat16, "runs on cpu, not on cuda"),
        ("cuda_flash", "cuda", torch.float32, "not torch.float32"),
        ("flash", "cpu", torch.float32, "not one of cpu_flash, cuda_flash, reference"),
    ],
)
def test_a_backend_that_cannot_serve_is_refused_with_the_reason(override, device, dtype, reason):
    with pytest.raises(ValueError, match=reason):
        choose(device, dtype, override)


def test_every_backend_is_listed_and_the_absent_ones_say_why():
    listed = available()
    assert list(listed) == [backend.name for backend in BACKENDS]
    assert listed["reference"] is None
    assert (listed["cuda_flash"] is None) == torch.cuda.is_available()
