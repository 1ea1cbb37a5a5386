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
from contraflow.engine.verify import Case, Comparison, Trial, verify, verify_member

FAMILIES = (
    ModelShape("llama", 4, 8, 2, 1, 12, 13),
    ModelShape("llama", 4, 8, 2, 2, 12, 13, tied=True),
    ModelShape("gpt", 4, 8, 2, 2, 12, 13, positions=32),
    ModelShape("gpt", 4, 8, 2, 2, 12, 13, tied=True, positions=32),
)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    shape=st.sampled_from(FAMILIES),
    accumulate=st.integers(1, 2),
    packed=st.booleans(),
)
def test_any_valid_program_is_exact(seed: int, shape: ModelShape, accumulate: int, packed: bool) -> None:
    schedule = random_schedule(Random(seed))
    assert check(schedule) == []
    shape = replace(shape, layers=default_layers(schedule.layout))
    comparison = verify(schedule, Trial(shape, accumulate=accumulate, packed=packed))
    assert comparison.ok, comparison


@pytest.mark.processes
def test_random_programs_over_real_processes_are_exact() -> None:
    rng = Random(1)
    cases = []
    while len(cases) < 8:
        schedule = random_schedule(rng, max_devices=3)
        if schedule.layout.num_devices == 3:
            shape = replace(FAMILIES[len(cases) % 4], layers=default_layers(schedule.layout))
            cases.append(Case(schedule, Trial(shape)))
    heard: list[Comparison] = []
    launch.run(verify_member, {"cases": cases}, 3, heard.append, timeout=60)
    assert [comparison.ok for comparison in heard] == [True] * 8, heard
