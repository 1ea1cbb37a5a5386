"""Learning rates against values worked out by hand."""

from __future__ import annotations

import pytest

from contraflow.engine.config import SCHEDULES, OptimizerConfig
from contraflow.engine.learning_rate import learning_rate


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 0.8875, 0.775, 0.6625, 0.55, 0.4375, 0.325, 0.2125, 0.1]),
        ("cosine", [0.5, 1, 0.965745, 0.868198, 0.722208, 0.55, 0.377792, 0.231802, 0.134255, 0.1]),
        ("wsd", [0.5, 1, 1, 1, 1, 1, 0.775, 0.55, 0.325, 0.1]),
    ],
)
def test_every_schedule(schedule: str, expected: list[float]) -> None:
    decay = 4 if schedule == "wsd" else None
    config = OptimizerConfig(1.0, schedule, warmup_steps=2, decay_steps=decay, final_learning_rate=0.1)
    assert [learning_rate(config, step, 10) for step in range(1, 11)] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (1, 1), (5, 3), (3, 3)])
def test_short_runs(schedule: str, warmup: int, steps: int) -> None:
    config = OptimizerConfig(1.0, schedule, warmup_steps=warmup)
    for step in range(1, steps + 3):
        assert 0 <= learning_rate(config, step, steps) <= 1


def test_by_default_wsd_goes_down_in_the_last_fifth() -> None:
    rates = [learning_rate(OptimizerConfig(1.0, "wsd"), step, 100) for step in (80, 90, 100)]
    assert rates == pytest.approx([1, 0.5, 0])


def test_what_no_schedule_is() -> None:
    with pytest.raises(ValueError, match="'cosin' is not one of constant, cosine"):
        OptimizerConfig(schedule="cosin")
    with pytest.raises(ValueError, match="decay_steps"):
        OptimizerConfig(schedule="cosine", decay_steps=5)
