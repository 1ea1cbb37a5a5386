"""The plain twin of each kernel: the same shapes and results in the fewest operations, as the oracle of its test."""

from __future__ import annotations

import torch
from torch import Tensor


def attention_forward(q: Tensor, k: Tensor, v: Tensor, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Causal attention by a plain softmax: (out, lse), in the shapes of `kernels.attention`."""
    grouped = _grouped(q, k)
    scores = _scores(grouped, k, starts)
    lse = scores.logsumexp(dim=-1)
    out = torch.einsum("bhgqk,bkhd->bqhgd", (scores - lse.unsqueeze(-1)).exp().to(v.dtype), v)
    return out.reshape(q.shape), lse.flatten(1, 2)


def attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v, each in the shape of its tensor, for `grad` = the gradient of `out`."""
    grouped, grouped_grad = _grouped(q, k), _grouped(grad, k)
    lse = lse.view_as(grouped[..., 0].permute(0, 2, 3, 1)).unsqueeze(-1)
    weights = (_scores(grouped, k, starts) - lse).exp()
    v_grad = torch.einsum("bhgqk,bqhgd->bkhd", weights.to(v.dtype), grouped_grad)
    weights_grad = torch.einsum("bqhgd,bkhd->bhgqk", grouped_grad, v)
    mean = (grouped_grad * _grouped(out, k)).sum(dim=-1).permute(0, 2, 3, 1).unsqueeze(-1)
    scores_grad = (weights * (weights_grad - mean) * q.shape[-1] ** -0.5).to(q.dtype)
    q_grad = torch.einsum("bhgqk,bkhd->bqhgd", scores_grad, k)
    k_grad = torch.einsum("bhgqk,bqhgd->bkhd", scores_grad, grouped)
    return q_grad.reshape(q.shape), k_grad, v_grad


def _grouped(q: Tensor, k: Tensor) -> Tensor:
    """[batch, n, heads, head_dim] -> [batch, n, kv_heads, heads of one key/value head, head_dim]."""
    batch, n, _, head_dim = q.shape
    return q.view(batch, n, k.shape[2], -1, head_dim)


def hidden_keys(n: int, total: int, starts: Tensor | None, device: torch.device) -> Tensor:
    """True where a query may not look: bool [n, total], or with `starts` [batch, n, total]."""
    causal = torch.ones(n, total, dtype=torch.bool, device=device).triu(total - n + 1)
    if starts is None:
        return causal
    return causal | (torch.arange(total, device=device) < starts.unsqueeze(-1))


def _scores(grouped: Tensor, k: Tensor, starts: Tensor | None) -> Tensor:
    """Scaled scores [batch, kv_heads, group, n, total], in at least float32, -inf where the query may not look."""
    n, total = grouped.shape[1], k.shape[1]
    scale: float = grouped.shape[-1] ** -0.5
    scores = torch.einsum("bqhgd,bkhd->bhgqk", grouped, k) * scale
    hidden = hidden_keys(n, total, starts, k.device)
    if starts is not None:
        hidden = hidden[:, None, None]
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores.masked_fill(hidden, float("-inf"))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., hidden] over the root of its mean square (plus `eps`), times `weight` [hidden]."""
    inverse = (x.square().mean(dim=-1, keepdim=True) + eps).rsqrt()
    out: Tensor = x * inverse * weight
    return out


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """The pairs (x[2i], x[2i+1]) of the last dimension, turned by the angles of `rotation`: see `kernels.rope`."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = rotation.real, rotation.imag
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def cross_entropy(logits: Tensor, targets: Tensor, num_targets: int) -> Tensor:
    """Sum over the targets that are not -100 of -log softmax(logits)[target], divided by `num_targets`: a scalar."""
    log_likelihood = logits.log_softmax(dim=-1).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -log_likelihood.masked_fill(targets == -100, 0.0).sum() / num_targets


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, num_targets: int) -> Tensor:
    """`cross_entropy` of all the logits at once."""
    return cross_entropy(hidden @ weight.t(), targets, num_targets)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return gate / (1 + (-gate).exp()) * up
