"""What one pass over a schedule's program trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -100
"""A target that does not count."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Token ids and targets, int64 [batch, tokens] of every microbatch; a target of -100 does not count."""

    ids: Sequence[Tensor]
    targets: Sequence[Tensor]

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return Batch([ids.to(device) for ids in self.ids], [targets.to(device) for targets in self.targets])

    @property
    def num_targets(self) -> int:
        """Targets that count."""
        return sum(int((target != IGNORED).sum()) for target in self.targets)
