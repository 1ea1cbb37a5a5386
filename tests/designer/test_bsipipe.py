"""BSIPipe: its table, and the promise that its activation stays within the budget however sequences are cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer import costs
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import preview
from contraflow.designer.generators import GENERATORS, Request
from contraflow.designer.generators.concatenation import units
from contraflow.designer.generators.v_shaped import opposing_vs

BUDGETS = (2, 2.25, 2.5, 2.75, 3)
TABLE = {
    (4, 4, 2): (14.25, 13.5, 13.0, 12.75, 12.75),
    (4, 4, 4): (13.125, 12.5, 12.375, 12.375, 12.375),
    (8, 2, 8): (7.125, 7.125, 7.125, 7.125, 7.125),
    (8, 4, 4): (15.625, 15.0, 14.25, 14.0, 13.25),
    (8, 4, 8): (13.8125, 13.125, 12.625, 12.5625, 12.5625),
    (8, 8, 4): (30.375, 29.0, 26.75, 25.625, 25.25),
    (8, 8, 8): (27.1875, 25.375, 24.625, 24.5625, 24.5625),
    (8, 16, 8): (53.9375, 49.75, 48.875, 48.5625, 48.5625),
    (16, 16, 8): (62.4375, 58.6875, 53.25, 52.1875, 50.875),
    (16, 32, 8): (123.9375, 116.1875, 104.5625, 101.9375, 99.8125),
}
CELLS = [
    (shape, budget, figure)
    for shape, row in TABLE.items()
    for budget, figure in zip(BUDGETS, row, strict=True)
]


def request(
    devices: int,
    microbatches: int,
    split: tuple[int, ...],
    budget: float | None = None,
    unit_microbatches: int = 1,
    **knobs: Any,
) -> Request:
    return Request(
        devices,
        (sum(split),) * microbatches,
        (split,) * microbatches,
        2,
        None,
        unit_microbatches,
        budget,
        **knobs,
    )


@pytest.mark.parametrize(("shape", "budget", "makespan"), CELLS)
def test_the_table_is_reached_within_the_same_budget_without_effort(
    shape: tuple[int, int, int], budget: float, makespan: float
) -> None:
    devices, microbatches, subsequences = shape
    asked = request(devices, microbatches, (8,) * subsequences, budget, effort=0)
    figures = preview(GENERATORS["bsipipe"].make(asked), unit)
    assert figures.makespan <= makespan
    assert figures.peak <= budget


@pytest.mark.parametrize(
    ("shape", "budget", "makespan"),
    [
        ((4, 4, 4), 2, 12.75),
        ((4, 4, 4), 2.25, 12.375),
        ((4, 2, 3), 2.5, 7.0),
        ((8, 4, 4), 2.75, 13.5),
        ((8, 4, 8), 2.5, 12.5625),
        ((8, 8, 4), 2, 29.625),
        ((8, 8, 4), 2.75, 25.5),
        ((8, 8, 8), 2, 25.375),
        ((8, 8, 8), 2.25, 24.875),
        ((8, 8, 8), 2.5, 24.5625),
        ((8, 16, 8), 2, 49.625),
        ((16, 16, 8), 2.75, 50.625),
        ((16, 32, 8), 2.75, 99.1875),
    ],
)
def test_several_rules_together_do_better_than_the_one_of_the_table(
    shape: tuple[int, int, int], budget: float, makespan: float
) -> None:
    devices, microbatches, subsequences = shape
    figures = preview(
        GENERATORS["bsipipe"].make(request(devices, microbatches, (8,) * subsequences, budget)), unit
    )
    assert figures.makespan <= makespan
    assert figures.peak <= budget


@pytest.mark.parametrize("shape", [(4, 4, 4), (8, 4, 8), (8, 8, 8)])
def test_a_budget_that_gains_nothing_is_not_used(shape: tuple[int, int, int]) -> None:
    devices, microbatches, subsequences = shape
    figures = preview(
        GENERATORS["bsipipe"].make(request(devices, microbatches, (8,) * subsequences, microbatches)), unit
    )
    # Nothing is faster: the innermost devices wait for P/2 - 1 forwards at first, and for as many backwards at last.
    assert figures.makespan == 3 * microbatches + 3 * (devices - 2) / (4 * subsequences)
    assert figures.peak < microbatches


@given(
    devices=st.integers(1, 4).map(lambda half: 2 * half),
    microbatches=st.integers(1, 7),
    splits=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=6).map(tuple), min_size=1, max_size=3),
    unit_microbatches=st.integers(1, 3),
    spare=st.floats(0, 3),
)
def test_the_peak_stays_within_the_budget(
    devices: int, microbatches: int, splits: list[tuple[int, ...]], unit_microbatches: int, spare: float
) -> None:
    each = [splits[microbatch % len(splits)] for microbatch in range(microbatches)]
    budget = 2 * unit_microbatches + spare
    asked = Request(
        devices, tuple(map(sum, each)), tuple(each), 2, None, unit_microbatches, budget, effort=2**11
    )
    figures = preview(GENERATORS["bsipipe"].make(asked), unit)
    assert figures.peak <= budget + 1e-6


def test_a_finer_cut_takes_no_more_memory() -> None:
    for subsequences in (1, 2, 4, 8, 16):
        figures = preview(
            GENERATORS["bsipipe"].make(request(4, 8, (16 // subsequences,) * subsequences, 2)), unit
        )
        assert figures.peak <= 2


def test_two_devices_idle_at_no_time() -> None:
    for microbatches in (2, 4, 6):
        figures = preview(GENERATORS["bsipipe"].make(request(2, microbatches, (8,) * 4)), unit)
        assert figures.bubble == pytest.approx(0)


def test_the_directions_are_opposing_vs_that_turn_on_one_device() -> None:
    down, up = opposing_vs(request(4, 5, (4,)))
    assert (down.placement, up.placement) == ((0, 1, 2, 3, 3, 2, 1, 0), (3, 2, 1, 0, 0, 1, 2, 3))
    assert (down.microbatches, up.microbatches) == ((0, 2, 4), (1, 3))


def test_a_unit_is_u_microbatches_of_each_direction_and_the_last_may_be_smaller() -> None:
    asked = request(2, 7, (4,), unit_microbatches=2)
    assert units(asked.layout(opposing_vs(asked)), 2) == [0, 0, 0, 0, 1, 1, 1]
    assert units(asked.layout(opposing_vs(asked)), 1) == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("name", ["work:llama3-8b", "llama3-8b-a100"])
def test_an_order_made_for_prices_is_better_on_them(name: str) -> None:
    split, model = (8192,) * 4, costs.named(name)
    for_tokens = preview(GENERATORS["bsipipe"].make(request(4, 8, split)), model)
    for_prices = preview(GENERATORS["bsipipe"].make(request(4, 8, split, costs=model)), model)
    assert for_prices.makespan < 0.985 * for_tokens.makespan


def test_the_name_tells_the_shape() -> None:
    assert GENERATORS["bsipipe"].make(request(4, 3, (4, 4))).name == "bsipipe p4 v2 m3 k2 u1 budget 2.5"
