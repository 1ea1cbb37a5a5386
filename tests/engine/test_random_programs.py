"""Any order that the checker accepts gives the same gradients, whatever its placement, its cuts, its I and W."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contraflow.designer.format.check import check
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.random_program import random_schedule
from contraflow.engine import launch
from contraflow.engine.config import default_layers
from contraflow.engine.verify import Comparison, Trial, verify, verify_member

FAMILIES = (
    ModelShape("llama", 4, 8, 2, 1, 12, 13),
    ModelShape("llama", 4, 8, 2, 2, 12, 13, tied=True),
    ModelShape("gpt", 4, 8, 2, 2, 12, 13, positions=32),
    ModelShape("gpt", 4, 8, 2, 2, 12, 13, tied=True, positions=32),
)


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32), shape=st.sampled_from(FAMILIES), accumulate=st.integers(1, 2))
def test_any_valid_program_is_exact(seed: int, shape: ModelShape, accumulate: int) -> None:
    schedule = random_schedule(Random(seed))
    assert check(schedule) == []
    shape = replace(shape, layers=default_layers(schedule.layout))
    comparison = verify(schedule, Trial(shape, accumulate=accumulate))
    assert comparison.max_relative_error <= 1e-12, comparison
    assert comparison.loss_error <= 1e-12, comparison


@pytest.mark.processes
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_programs_over_real_processes_are_exact(seed: int) -> None:
    rng = Random(seed)
    schedule = random_schedule(rng)
    while schedule.layout.num_devices < 2:
        schedule = random_schedule(rng)
    shape = replace(FAMILIES[1], layers=default_layers(schedule.layout))
    heard: list[Comparison] = []
    arguments = {"schedule": schedule, "trial": Trial(shape)}
    launch.run(verify_member, arguments, schedule.layout.num_devices, heard.append, timeout=30)
    assert heard[0].max_relative_error <= 1e-12, heard
