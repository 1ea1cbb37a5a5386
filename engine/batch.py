"""What one pass over a schedule's program trains on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from contraflow.designer.format.schedule import Layout

IGNORED = -100
"""A target that does not count."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Token ids and targets, int64 [batch, tokens] of every microbatch; a target of -100 does not count.

    Where sequences are packed, `starts` [batch, tokens] tells of each token where its document begins in the sequence:
    tokens attend to their own document alone. () where every sequence is one document.
    """

    ids: Sequence[Tensor]
    targets: Sequence[Tensor]
    starts: Sequence[Tensor] = ()

    @classmethod
    def of(
        cls,
        layout: Layout,
        tokens: Tensor | Sequence[Tensor],
        targets: Tensor | Sequence[Tensor] | None = None,
        documents: Sequence[Sequence[int]] | None = None,
    ) -> Batch:
        """A batch for a schedule's layout: a tensor [sequences, n], dealt to the microbatches in turn, or one for each.

        Without `targets` each token's target is the one behind it, and `tokens` are one longer than the schedule's
        sequences. `documents` are the lengths of the documents in each sequence, in the order of all sequences; the
        last token of one is no reason for the first of the next, so without `targets` it has none.
        Raises ValueError where the batch does not fit the layout.
        """
        ids = _dealt(tokens, layout.num_microbatches)
        if targets is not None:
            wanted = _dealt(targets, layout.num_microbatches)
        else:
            ids, wanted = [part[:, :-1] for part in ids], [part[:, 1:] for part in ids]
        if documents is None:
            batch = cls(ids, wanted)
            batch.check(layout)
            return batch
        num_sequences = sum(len(part) for part in ids)
        if len(documents) != num_sequences:
            raise ValueError(
                f"documents of {len(documents)} sequences are given; the batch has {num_sequences}"
            )
        rows, starts = iter(documents), []
        for number, part in enumerate(ids):
            lengths = [next(rows) for _ in part]
            for row, parts in enumerate(lengths):
                if sum(parts) != part.shape[1] or min(parts) < 1:
                    raise ValueError(
                        f"microbatch {number}, sequence {row}: documents of {list(parts)} tokens "
                        f"do not fill its {part.shape[1]}"
                    )
            starts.append(document_starts(lengths).to(part.device))
        if targets is None:
            wanted = [_within(part, begins) for part, begins in zip(wanted, starts, strict=True)]
        batch = cls(ids, wanted, starts)
        batch.check(layout)
        return batch

    def check(self, layout: Layout, batch_size: int | None = None) -> None:
        """Raise ValueError unless there is what the layout asks for, in `batch_size` sequences to a microbatch."""
        parts = {"token ids": self.ids, "targets": self.targets} | (
            {"starts": self.starts} if self.starts else {}
        )
        for what, tensors in parts.items():
            if len(tensors) != layout.num_microbatches:
                raise ValueError(
                    f"the batch has {what} of {len(tensors)} microbatches; the schedule has {layout.num_microbatches}"
                )
        rows = len(self.ids[0]) if batch_size is None else batch_size
        for number, length in enumerate(layout.sequences):
            for what, tensors in parts.items():
                tensor = tensors[number]
                if tensor.dtype != torch.int64:
                    raise ValueError(
                        f"microbatch {number}: {what} are {tensor.dtype}; they must be torch.int64"
                    )
                if tensor.shape != (rows, length):
                    raise ValueError(
                        f"microbatch {number}: {what} are {list(tensor.shape)}; the schedule's microbatch is "
                        f"[{rows}, {length}]: {rows} sequence{'' if rows == 1 else 's'} of {length} tokens"
                    )

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        ids, targets, starts = (
            [part.to(device) for part in parts] for parts in (self.ids, self.targets, self.starts)
        )
        return Batch(ids, targets, starts)

    @property
    def num_targets(self) -> int:
        """Targets that count."""
        return sum(int((target != IGNORED).sum()) for target in self.targets)


def document_starts(lengths: Iterable[Sequence[int]]) -> Tensor:
    """`Batch.starts` of one microbatch, from the lengths of the documents in each of its sequences."""
    rows = []
    for documents in lengths:
        sizes = torch.tensor(list(documents))
        rows.append((sizes.cumsum(0) - sizes).repeat_interleave(sizes))
    return torch.stack(rows)


def _dealt(given: Tensor | Sequence[Tensor], num_microbatches: int) -> list[Tensor]:
    if not isinstance(given, Tensor):
        return list(given)
    if len(given) % num_microbatches:
        raise ValueError(
            f"a batch of {len(given)} sequences cannot be dealt evenly to {num_microbatches} microbatches; "
            f"give a multiple of {num_microbatches}, or a tensor for each microbatch"
        )
    return list(given.chunk(num_microbatches))


def _within(targets: Tensor, starts: Tensor) -> Tensor:
    """The targets without those that lie behind the end of their token's document."""
    ends = torch.zeros_like(starts, dtype=torch.bool)
    ends[:, :-1] = starts[:, 1:] != starts[:, :-1]
    return targets.masked_fill(ends, IGNORED)
