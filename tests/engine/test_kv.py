"""Keys, values and their gradients across subsequences, against a form that concatenates detached leaves."""

import dataclasses
import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contraflow.engine.kv import KeyValues
from contraflow.kernels import reference
from contraflow.kernels.attention import Gradients, choose

REFERENCE = choose("cpu", torch.float64, "reference")


def drawn(splits, heads=4, kv_heads=2, dtype=torch.float64):
    """q, k, v and the gradient of the output, each [2, tokens, heads, 6] and cut into the subsequences."""
    generator = torch.Generator().manual_seed(sum(splits))
    counts = (heads, kv_heads, kv_heads, heads)
    whole = [
        torch.randn(2, sum(splits), count, 6, generator=generator, dtype=torch.float64) for count in counts
    ]
    return [tensor.to(dtype).split(splits, dim=1) for tensor in whole]


def concatenating(splits, q, k, v, grad):
    """Outputs and gradients: each subsequence has its own graph over detached leaves of all keys and values so far."""
    forwards = []
    for index in range(len(splits)):
        leaves = [part.detach().requires_grad_() for part in (q[index], *k[: index + 1], *v[: index + 1])]
        keys, values = leaves[1 : index + 2], leaves[index + 2 :]
        out = attention(leaves[0], torch.cat(keys, dim=1), torch.cat(values, dim=1))
        forwards.append((out, leaves[0], keys, values))
    grads = [[], [torch.zeros_like(part) for part in k], [torch.zeros_like(part) for part in v]]
    for (out, query, keys, values), gradient in zip(forwards, grad, strict=True):
        out.backward(gradient)
        grads[0].append(query.grad)
        for total, leaves in zip(grads[1:], (keys, values), strict=True):
            for index, leaf in enumerate(leaves):
                total[index] += leaf.grad
    return [forward[0].detach() for forward in forwards], grads


def attention(q, k, v):
    n, total, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    k, v = (tensor.repeat_interleave(group, dim=2) for tensor in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    hidden = torch.ones(n, total, dtype=torch.bool).triu(total - n + 1)
    return torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(hidden, -torch.inf).softmax(dim=-1), v)


def through_key_values(splits, q, k, v, grad, backend=REFERENCE):
    """Outputs and gradients as the engine makes them: forward in order, backward in reverse."""
    key_values = KeyValues(0, splits, backend)
    leaves = [[part.clone().requires_grad_() for part in parts] for parts in (q, k, v)]
    outs = [key_values.attend(5, index, *parts) for index, parts in enumerate(zip(*leaves, strict=True))]
    for out, gradient in reversed(list(zip(outs, grad, strict=True))):
        out.backward(gradient)
    return [out.detach() for out in outs], [[leaf.grad for leaf in parts] for parts in leaves]


@given(splits=st.lists(st.integers(1, 9), min_size=1, max_size=6), kv_heads=st.sampled_from([1, 2, 4]))
def test_as_if_keys_and_values_were_concatenated(splits, kv_heads):
    given_tensors = drawn(splits, kv_heads=kv_heads)
    outs, grads = through_key_values(splits, *given_tensors)
    wanted_outs, wanted_grads = concatenating(splits, *given_tensors)
    for parts, wanted in zip((outs, *grads), (wanted_outs, *wanted_grads), strict=True):
        assert (torch.cat(parts, dim=1) - torch.cat(wanted, dim=1)).abs().max() < 1e-12


def test_gradients_in_half_precision_add_up_in_float32():
    def backward(grad, q, k, v, out, lse, starts):
        """Nothing for the own key; for the past 1 from the last subsequence, a quarter of a step from others."""
        past = torch.full_like(k[:, 1:], 1.0 if k.shape[1] == 6 else 2.0**-9)
        return Gradients(
            grad, torch.zeros_like(q), torch.zeros_like(q), (past, past.clone()) if past.numel() else None
        )

    backend = dataclasses.replace(REFERENCE, backward=backward)
    _, (_, keys, values) = through_key_values(
        [1] * 6, *drawn([1] * 6, kv_heads=4, dtype=torch.bfloat16), backend
    )
    for first in keys[0], values[0]:
        assert first.dtype == torch.bfloat16
        assert (first == 1 + 4 * 2.0**-9).all()


@pytest.mark.parametrize("order", [[0], [1], [2, 0], [2, 2]])
def test_backward_out_of_order_names_both_subsequences(order):
    splits = [2, 3, 1]
    q, k, v, grad = drawn(splits)
    key_values = KeyValues(7, splits, REFERENCE)
    outs = [
        key_values.attend(4, index, *(part.clone().requires_grad_() for part in parts))
        for index, parts in enumerate(zip(q, k, v, strict=True))
    ]
    due = 2 - len(order) + 1
    *fine, wrong = order
    for index in fine:
        outs[index].backward(grad[index], retain_graph=True)
    with pytest.raises(
        RuntimeError,
        match=rf"layer 4, microbatch 7: backward of subsequence {wrong} .* subsequence {due} is due",
    ):
        outs[wrong].backward(grad[wrong])


@pytest.mark.parametrize(("fine", "wrong"), [([], 1), ([0], 0), ([0], 2)])
def test_forward_out_of_order_names_both_subsequences(fine, wrong):
    splits = [2, 2, 2]
    q, k, v, _ = drawn(splits)
    key_values = KeyValues(0, splits, REFERENCE)
    for index in fine:
        key_values.attend(0, index, q[index], k[index], v[index])
    with pytest.raises(
        RuntimeError, match=rf"forward of subsequence {wrong} .* subsequence {len(fine)} is due"
    ):
        key_values.attend(0, wrong, q[wrong], k[wrong], v[wrong])


def test_a_subsequence_of_another_length_than_the_split_is_refused():
    q, k, v, _ = drawn([3])
    with pytest.raises(RuntimeError, match="subsequence 0 has 2 tokens, not 3"):
        KeyValues(0, [2, 1], REFERENCE).attend(0, 0, q[0], k[0], v[0])


class Recorder:
    """A backend that remembers, without keeping them alive, the keys that it was given."""

    def __init__(self):
        self.storages, self.addresses = [], []

    def forward(self, q, k, v, starts):
        self.storages.append(weakref.ref(k.untyped_storage()))
        self.addresses.append(k.data_ptr())
        return reference.attention_forward(q, k, v)

    def backward(self, *given_tensors):
        return REFERENCE.backward(*given_tensors)


def test_one_subsequence_attends_to_the_keys_themselves():
    q, k, v, _ = drawn([6])
    recorder = Recorder()
    KeyValues(0, [6], recorder).attend(0, 0, q[0], k[0], v[0])
    assert recorder.addresses == [k[0].data_ptr()]


def test_several_subsequences_share_one_buffer_that_is_freed_after_the_last_backward():
    splits = [2, 3, 1]
    q, k, v, grad = drawn(splits)
    recorder = Recorder()
    key_values = KeyValues(0, splits, recorder)
    gc.collect()
    gc.disable()
    try:
        outs = [
            key_values.attend(0, index, *(part.clone().requires_grad_() for part in parts))
            for index, parts in enumerate(zip(q, k, v, strict=True))
        ]
        assert len(set(recorder.addresses)) == 1
        for index in (2, 1, 0):
            assert recorder.storages[0]() is not None
            outs[index].backward(grad[index])
        assert [storage() for storage in recorder.storages] == [None, None, None]
    finally:
        gc.enable()


def test_without_gradients_nothing_outlives_its_owner():
    splits = [2, 2]
    q, k, v, _ = drawn(splits)
    recorder = Recorder()
    key_values = KeyValues(0, splits, recorder)
    gc.collect()
    gc.disable()
    try:
        with torch.no_grad():
            for index in range(2):
                key_values.attend(0, index, q[index], k[index], v[index])
        del key_values
        assert [storage() for storage in recorder.storages] == [None, None]
    finally:
        gc.enable()
