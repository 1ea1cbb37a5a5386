"""Keys and values of earlier subsequences, and in backward the gradients that later subsequences owe to them.

Forward of subsequence q writes its slice of one buffer per layer, and attends to everything up to its own end.
Backward runs q = k-1 .. 0. What the last subsequence returns for the tokens before it *is* the accumulator; the
others add into it, and each own part, with what later subsequences added, goes on to autograd. Where a microbatch
has one subsequence there is neither buffer nor accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from contraflow.kernels.attention import Backend, Gradients


class KeyValues:
    """The keys and values of one microbatch in one stage: made at its first forward, dropped at its last backward.

    `splits` are the lengths of the consecutive subsequences, in tokens.
    """

    def __init__(self, microbatch: int, splits: Sequence[int], backend: Backend) -> None:
        self.microbatch = microbatch
        self.stops = tuple(accumulate(splits))
        self._backend = backend
        self._layers: dict[int, _Layer] = {}

    def span(self, index: int) -> tuple[int, int]:
        """First token of subsequence `index`, and the one after its last."""
        return _span(self.stops, index)

    @property
    def num_bytes(self) -> int:
        """Of the buffers and of the gradients in them; what one subsequence alone keeps is autograd's."""
        return sum(layer.num_bytes for layer in self._layers.values())

    def attend(
        self, layer: int, index: int, q: Tensor, k: Tensor, v: Tensor, starts: Tensor | None = None
    ) -> Tensor:
        """Attention of subsequence `index` to all tokens up to its own end.

        q [batch, n, heads, head_dim] and k, v [batch, n, kv_heads, head_dim] hold the subsequence's n tokens alone;
        `starts` int64 [batch, n], where sequences are packed, the first token that each of them sees.
        Returns [batch, n, heads, head_dim]. `layer` is any number that tells the layers of a stage apart.
        Raises RuntimeError where subsequences come out of order: forward 0 .. k-1, backward k-1 .. 0.
        """
        if layer not in self._layers:
            name = f"layer {layer}, microbatch {self.microbatch}"
            self._layers[layer] = _Layer(name, self.stops, self._backend)
        out: Tensor = _Attend.apply(q, k, v, self._layers[layer], index, starts)  # type: ignore[no-untyped-call]
        return out


class _Layer:
    """One layer's buffers [batch, tokens, kv_heads, head_dim], and their gradients while backward is under way."""

    def __init__(self, name: str, stops: tuple[int, ...], backend: Backend) -> None:
        self.backend = backend
        self._name, self._stops = name, stops
        self._next_forward, self._next_backward = 0, len(stops) - 1
        self._buffers: tuple[Tensor, Tensor] | None = None
        self._grads: tuple[Tensor, Tensor] | None = None

    @property
    def num_bytes(self) -> int:
        """Of the buffers, and of the gradients while backward is under way."""
        if self._buffers is None or len(self._stops) == 1:
            return 0
        return sum(tensor.nbytes for tensor in (*self._buffers, *(self._grads or ())))

    def append(self, index: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the subsequence's keys and values; return those of the whole prefix, which ends with them."""
        self._require("forward", index, self._next_forward)
        self._next_forward += 1
        start, stop = _span(self._stops, index)
        if k.shape[1] != stop - start:
            raise RuntimeError(
                f"{self._name}, subsequence {index} has {stop - start} tokens, not {k.shape[1]}"
            )
        if len(self._stops) == 1:
            self._buffers = k.detach(), v.detach()
        else:
            if self._buffers is None:
                self._buffers = self._buffer_like(k), self._buffer_like(v)
            for buffer, own in zip(self._buffers, (k, v), strict=True):
                buffer[:, start:stop] = own
        return self.prefix(index)

    def prefix(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of everything up to the end of subsequence `index`."""
        assert self._buffers is not None
        stop = self._stops[index]
        keys, values = self._buffers
        return keys[:, :stop], values[:, :stop]

    def require_backward(self, index: int) -> None:
        """Raise RuntimeError unless all that later subsequences owe to `index` has been collected."""
        self._require("backward", index, self._next_backward)

    def collect(self, index: int, grads: Gradients) -> tuple[Tensor, Tensor]:
        """Add what the subsequence owes to the past; return its own gradients with what later ones added."""
        start, stop = _span(self._stops, index)
        own = grads.key, grads.value
        if self._grads is not None:
            for grad, owed in zip(own, self._grads, strict=True):
                grad.add_(owed[:, start:stop])
        if grads.past is not None:
            if self._grads is None:
                keys, values = grads.past
                precision = torch.promote_types(
                    keys.dtype, torch.float32
                )  # bfloat16 would lose with each addition
                self._grads = keys.to(precision), values.to(precision)
            else:
                for owed, grad in zip(self._grads, grads.past, strict=True):
                    owed[:, :start].add_(grad)
        self._next_backward -= 1
        if index == 0:
            self._buffers = self._grads = None
        return own

    def _buffer_like(self, own: Tensor) -> Tensor:
        batch, _, *head = own.shape
        return own.new_empty(batch, self._stops[-1], *head)

    def _require(self, direction: str, index: int, due: int) -> None:
        if index != due:
            raise RuntimeError(
                f"{self._name}: {direction} of subsequence {index} came where that of subsequence {due} is due; "
                "forward runs through them in order, backward in reverse"
            )


def _span(stops: tuple[int, ...], index: int) -> tuple[int, int]:
    return stops[index - 1] if index else 0, stops[index]


class _Attend(torch.autograd.Function):
    """Attention whose other subsequences' keys, values and gradients live beside autograd, in `layer`."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, layer: _Layer, index: int, starts: Tensor | None
    ) -> Tensor:
        out, lse = layer.backend.forward(q, *layer.append(index, k, v), starts)
        ctx.save_for_backward(q, out, lse, starts)
        ctx.layer, ctx.index = layer, index
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        layer, index = ctx.layer, ctx.index
        layer.require_backward(index)
        q, out, lse, starts = ctx.saved_tensors
        grads = layer.backend.backward(grad, q, *layer.prefix(index), out, lse, starts)
        return grads.query, *layer.collect(index, grads), None, None, None
