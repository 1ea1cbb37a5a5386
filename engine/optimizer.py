"""AdamW on the owners' parameters, and clipping by the true global norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from contraflow.engine.config import OptimizerConfig
from contraflow.engine.flat import FlatParameters


def adamw(groups: Sequence[FlatParameters], config: OptimizerConfig) -> torch.optim.AdamW | None:
    """An AdamW over the parameters of `groups`, weight decay on matrices alone; None where there are no parameters."""
    parameters = [parameter for group in groups for parameter in group.parameters]
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    others = [parameter for parameter in parameters if parameter.dim() <= 1]
    kinds = [
        {"params": kind, "weight_decay": decay}
        for kind, decay in ((matrices, config.weight_decay), (others, 0.0))
        if kind
    ]
    if not kinds:
        return None
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(kinds, lr=config.learning_rate, betas=betas, eps=config.epsilon, fused=True)


def named_state(
    optimizer: torch.optim.AdamW | None, groups: Sequence[FlatParameters]
) -> list[tuple[str, Tensor]]:
    """What the optimizer keeps of the parameters of `groups`: `NAME.exp_avg` and `NAME.exp_avg_sq`."""
    if optimizer is None:
        return []
    return [
        (f"{name}.{key}", optimizer.state[parameter][key])
        for group in groups
        for name, parameter in zip(group.names, group.parameters, strict=True)
        for key in ("exp_avg", "exp_avg_sq")
    ]


def learning_rate(config: OptimizerConfig, step: int) -> float:
    """The rate of step `step`, counted from 1."""
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    return config.learning_rate


_PART = 1 << 20
"""Elements of a gradient that are looked at together."""


def squared_norm(groups: Sequence[FlatParameters]) -> Tensor:
    """Sum of the squares of the gradients, a float64 scalar on the CPU."""
    # Part by part: in one piece a group would stand there once more, in float64.
    parts = [part for group in groups for part in torch.split(group.grad, _PART)]
    squares = [torch.linalg.vector_norm(part, dtype=torch.float64).square() for part in parts]
    total: Tensor = torch.stack(squares).sum().cpu() if squares else torch.zeros((), dtype=torch.float64)
    return total


def clip(groups: Sequence[FlatParameters], norm: float, most: float) -> None:
    """Scale the gradients so that a global `norm` above `most` becomes `most`; 0 clips none."""
    if most and norm > most:
        for group in groups:
            group.grad.mul_(most / norm)
