"""Causal attention of a subsequence to everything up to its own end, by interchangeable backends.

Shapes, for every backend (the layout of flash-attn, so that no backend copies):

    q, out, grad      [batch, n, heads, head_dim]            the *last* n tokens of the prefix
    k, v              [batch, total, kv_heads, head_dim]     the whole prefix, total >= n; kv_heads divides heads
    lse               [batch, heads, n]                      log of the sum of the exponentiated scores
    starts            int64 [batch, n], or None              the first key that each query sees

Query i sees the keys 0 .. total - n + i (causal, bottom-right aligned), from its `starts` on where
sequences are packed with documents. Scores are scaled by head_dim ** -0.5.
Query head h reads key/value head h // (heads // kv_heads); the few heads are never repeated in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from contraflow.kernels import reference

FULL = frozenset({torch.float32, torch.float64})
HALF = frozenset({torch.float16, torch.bfloat16})


class Gradients(NamedTuple):
    """Gradients of one subsequence's attention: its own part apart from that of the tokens before it.

    `query` [batch, n, heads, head_dim]; `key`, `value` [batch, n, kv_heads, head_dim]; `past` those of the earlier
    keys and values, [batch, total - n, kv_heads, head_dim] each, or None where there are none.
    All belong to the caller, who may add into them.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    past: tuple[Tensor, Tensor] | None


class Forward(Protocol):
    """(out, lse)."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, starts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...


class Backward(Protocol):
    """`grad` is the gradient of `out`; `starts` are those of the forward."""

    def __call__(
        self,
        grad: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        starts: Tensor | None = None,
    ) -> Gradients: ...


@dataclass(frozen=True, slots=True)
class Backend:
    """One implementation. Those that are not for `documents` take no `starts`."""

    name: str
    operator: str | None
    device_types: frozenset[str] | None
    dtypes: frozenset[torch.dtype]
    forward: Forward
    backward: Backward
    documents: bool = True

    def absence(self) -> str | None:
        """Why this machine cannot run the backend at all; None where it can."""
        if self.operator is not None and not hasattr(torch.ops.aten, self.operator):
            return f"PyTorch {torch.__version__} has no aten.{self.operator}"
        if self.device_types == frozenset({"cuda"}) and not torch.cuda.is_available():
            return "PyTorch finds no CUDA device"
        return None

    def refusal(self, device_type: str, dtype: torch.dtype) -> str | None:
        """Why the backend cannot serve tensors of this kind here; None where it can."""
        if self.device_types is not None and device_type not in self.device_types:
            return f"runs on {' and '.join(sorted(self.device_types))}, not on {device_type}"
        if dtype not in self.dtypes:
            return f"takes {', '.join(sorted(map(str, self.dtypes)))}, not {dtype}"
        return self.absence()


def available() -> dict[str, str | None]:
    """Every backend by name, each with the reason why this machine cannot run it, or None where it can."""
    return {backend.name: backend.absence() for backend in BACKENDS}


def choose(device_type: str, dtype: torch.dtype, override: str | None = None) -> Backend:
    """The fastest backend for tensors of this kind, or the one named by `override`.

    Raises ValueError where `override` names no backend, or one that cannot serve, and says why.
    """
    if override is None:
        return next(backend for backend in BACKENDS if backend.refusal(device_type, dtype) is None)
    named = {backend.name: backend for backend in BACKENDS}
    if override not in named:
        raise ValueError(f"attention backend {override!r} is not one of {', '.join(named)}")
    refusal = named[override].refusal(device_type, dtype)
    if refusal is not None:
        raise ValueError(f"attention backend {override}: {refusal}")
    return named[override]


# The CPU operator aligns a causal mask top-left, and computes whole blocks of 512 keys on the diagonal. So the past
# is one call without a mask, merged through the log-sum-exps; and the diagonal is halved, down to this many tokens:
# 18-25 % less time for 512 tokens, 2-3 % for 4096.
_DIAGONAL = 256

# Its backward takes 8-15 % less time over fewer keys than its own blocks of 512, whose rows collide in the cache.
_BACKWARD_KEYS = 448


def _may_cut(q: Tensor) -> bool:
    """Whether merging and adding pieces is as exact as the operator itself: half precision would round each time."""
    return q.dtype in FULL


def _cpu_forward(q: Tensor, k: Tensor, v: Tensor, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    if starts is not None:
        return _cpu_block(q, k, v, causal=False, mask=_mask(q, k, starts))
    past = k.shape[1] - q.shape[1]
    out, lse = _cpu_causal(q, k[:, past:], v[:, past:])
    if past:
        _cpu_merge(out, lse, *_cpu_block(q, k[:, :past], v[:, :past], causal=False))
    return out, lse


def _cpu_causal(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if q.shape[1] <= _DIAGONAL or not _may_cut(q):
        return _cpu_block(q, k, v, causal=True)
    half = q.shape[1] // 2
    upper = _cpu_causal(q[:, :half], k[:, :half], v[:, :half])
    lower = _cpu_causal(q[:, half:], k[:, half:], v[:, half:])
    _cpu_merge(*lower, *_cpu_block(q[:, half:], k[:, :half], v[:, :half], causal=False))
    return torch.cat((upper[0], lower[0]), dim=1), torch.cat((upper[1], lower[1]), dim=2)


def _cpu_merge(out: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> None:
    """Turn attention to some keys, in place, into attention to those and others."""
    share = torch.sigmoid(other_lse - lse).transpose(1, 2).unsqueeze(-1)
    out.lerp_(other, share.to(out.dtype))
    torch.logaddexp(lse, other_lse, out=lse)


def _cpu_block(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, causal, attn_mask=mask
    )
    return out.transpose(1, 2), lse


def _mask(q: Tensor, k: Tensor, starts: Tensor) -> Tensor:
    """What is added to the scores, [batch, 1, n, total]: -inf where the query may not look."""
    hidden = reference.hidden_keys(q.shape[1], k.shape[1], starts, q.device).unsqueeze(1)
    return torch.zeros(hidden.shape, dtype=q.dtype, device=q.device).masked_fill_(hidden, float("-inf"))


class _Backward(NamedTuple):
    """What backward takes, in the shapes above."""

    grad: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor

    def part(self, queries: slice, keys: slice) -> _Backward:
        """The same for some of the queries and some of the keys: with the final lse, gradients of parts only add."""
        grad, q, k, v, out, lse = self
        return _Backward(
            grad[:, queries], q[:, queries], k[:, keys], v[:, keys], out[:, queries], lse[:, :, queries]
        )


def _cpu_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    starts: Tensor | None = None,
) -> Gradients:
    whole, past = _Backward(grad, q, k, v, out, lse), k.shape[1] - q.shape[1]
    if starts is not None:
        return _parted(*_cpu_block_backward(whole, causal=False, mask=_mask(q, k, starts)))
    every = slice(None)
    q_grad, k_grad, v_grad = _cpu_causal_backward(whole.part(every, slice(past, None)))
    if not past:
        return Gradients(q_grad, k_grad, v_grad, past=None)
    past_q, past_k, past_v = _cpu_past_backward(whole.part(every, slice(past)))
    return Gradients(q_grad.add_(past_q), k_grad, v_grad, (past_k, past_v))


def _cpu_causal_backward(given: _Backward) -> tuple[Tensor, Tensor, Tensor]:
    if not _halves(given):
        return _cpu_block_backward(given, causal=True)
    # Parts go where they belong as they are made: putting them together at the end would hold everything twice.
    grads = torch.empty_like(given.q), torch.empty_like(given.k), torch.empty_like(given.v)
    _fill_causal_backward(given, *grads)
    return grads


def _halves(given: _Backward) -> bool:
    return given.q.shape[1] > _DIAGONAL and _may_cut(given.q)


def _fill_causal_backward(given: _Backward, q_grad: Tensor, k_grad: Tensor, v_grad: Tensor) -> None:
    if not _halves(given):
        for grad, made in zip((q_grad, k_grad, v_grad), _cpu_block_backward(given, causal=True), strict=True):
            grad.copy_(made)
        return
    half = given.q.shape[1] // 2
    first, second = slice(half), slice(half, None)
    for part in first, second:
        _fill_causal_backward(given.part(part, part), q_grad[:, part], k_grad[:, part], v_grad[:, part])
    past_q, past_k, past_v = _cpu_past_backward(given.part(second, first))
    q_grad[:, second].add_(past_q)
    k_grad[:, first].add_(past_k)
    v_grad[:, first].add_(past_v)


def _cpu_past_backward(given: _Backward) -> tuple[Tensor, Tensor, Tensor]:
    total = given.k.shape[1]
    num_parts = -(-total // _BACKWARD_KEYS) if _may_cut(given.q) else 1
    if num_parts == 1:
        return _cpu_block_backward(given, causal=False)
    step = -(-total // num_parts)
    k_grad, v_grad = torch.empty_like(given.k), torch.empty_like(given.v)
    q_grad: Tensor | None = None
    for start in range(0, total, step):
        keys = slice(start, start + step)
        part, k_grad[:, keys], v_grad[:, keys] = _cpu_block_backward(
            given.part(slice(None), keys), causal=False
        )
        q_grad = part if q_grad is None else q_grad.add_(part)
        del part
    assert q_grad is not None
    return q_grad, k_grad, v_grad


def _cpu_block_backward(
    given: _Backward, causal: bool, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    *tensors, lse = given
    q_grad, k_grad, v_grad = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        *(tensor.transpose(1, 2) for tensor in tensors), lse, 0.0, causal, attn_mask=mask
    )
    return q_grad.transpose(1, 2), k_grad.transpose(1, 2), v_grad.transpose(1, 2)


def _cuda_forward(q: Tensor, k: Tensor, v: Tensor, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    assert starts is None
    # On CUDA a causal mask with fewer queries than keys is bottom-right aligned: one call does.
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, True
    )
    return out.transpose(1, 2), lse


def _cuda_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    starts: Tensor | None = None,
) -> Gradients:
    assert starts is None
    n, total = q.shape[1], k.shape[1]
    tensors = (tensor.transpose(1, 2) for tensor in (grad, q, k, v, out))
    # Tensors of one length have no cumulative lengths; the random state is read for dropout alone.
    seed = torch.empty(2, dtype=torch.uint64, device=q.device)
    offset = torch.empty((), dtype=torch.uint64, device=q.device)
    q_grad, k_grad, v_grad = torch.ops.aten._scaled_dot_product_flash_attention_backward(
        *tensors, lse, None, None, n, total, 0.0, True, seed, offset
    )
    return _parted(q_grad.transpose(1, 2), k_grad.transpose(1, 2), v_grad.transpose(1, 2))


def _reference_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    starts: Tensor | None = None,
) -> Gradients:
    return _parted(*reference.attention_backward(grad, q, k, v, out, lse, starts))


def _parted(q_grad: Tensor, k_grad: Tensor, v_grad: Tensor) -> Gradients:
    past = k_grad.shape[1] - q_grad.shape[1]
    if not past:
        return Gradients(q_grad, k_grad, v_grad, past=None)
    return Gradients(q_grad, k_grad[:, past:], v_grad[:, past:], (k_grad[:, :past], v_grad[:, :past]))


# In order of preference; the last one serves everything.
BACKENDS = (
    Backend(
        "cpu_flash",
        "_scaled_dot_product_flash_attention_for_cpu",
        frozenset({"cpu"}),
        FULL | HALF,
        _cpu_forward,
        _cpu_backward,
    ),
    Backend(
        "cuda_flash",
        "_scaled_dot_product_flash_attention",
        frozenset({"cuda"}),
        HALF,
        _cuda_forward,
        _cuda_backward,
        documents=False,
    ),
    Backend("reference", None, None, FULL | HALF, reference.attention_forward, _reference_backward),
)
