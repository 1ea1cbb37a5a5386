"""The learning rate of every step."""

from __future__ import annotations

from math import cos, pi

from contraflow.engine.config import OptimizerConfig


def learning_rate(config: OptimizerConfig, step: int, num_steps: int) -> float:
    """The rate of step `step`, from 1, of `num_steps`: rising in the warm-up, then as the schedule has it.

    Steps beyond the last keep its rate.
    """
    high, low = config.learning_rate, config.final_learning_rate
    if step <= config.warmup_steps:
        return high * step / config.warmup_steps
    if config.schedule == "constant":
        return high
    length = num_steps - config.warmup_steps
    if config.schedule == "wsd":
        length = min(length, config.decay_steps or max(1, round(num_steps / 5)))
    # 0 before the descent, 1 at the last step.
    done = 1 - min(max(num_steps - step, 0), length) / length if length > 0 else 1.0
    if config.schedule == "cosine":
        done = (1 - cos(pi * done)) / 2
    return high + (low - high) * done
