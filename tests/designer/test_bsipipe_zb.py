"""BSIPipe with I and W: its table, the budget that holds until W, and that it is never slower than bsipipe."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.costs.prices import CostModel, Link, Network, Prices
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Preview, preview
from contraflow.designer.format.schedule import Layout
from contraflow.designer.generators import GENERATORS, Refusal, Request

TABLE = {
    (4, 4, 4): ((12.625, 2.0), (12.125, 2.25), (12.125, 2.5)),
    (8, 2, 8): ((6.5625, 2.0), (6.5625, 2.25), (6.5625, 2.5)),
    (8, 4, 4): ((13.875, 2.0), (12.875, 2.5), (12.375, 3.0)),
    (8, 4, 8): ((12.9375, 2.0), (12.4375, 2.25), (12.1875, 2.5)),
    (8, 8, 8): ((25.6875, 2.0), (24.4375, 2.25), (24.1875, 2.5)),
    (8, 16, 8): ((51.1875, 2.0), (48.4375, 2.25), (48.1875, 2.5)),
}
EFFORT = 2**11
"""Of laws that hold for any, on drawn shapes."""
CELLS = [(shape, budget, makespan) for shape, row in TABLE.items() for makespan, budget in row]


def request(
    devices: int, microbatches: int, split: tuple[int, ...], budget: float | None = None, **knobs: Any
) -> Request:
    return Request(devices, (sum(split),) * microbatches, (split,) * microbatches, 2, budget=budget, **knobs)


def shown(name: str, asked: Request) -> Preview:
    return preview(GENERATORS[name].make(asked), asked.costs)


def kinds(figures: Preview) -> set[str]:
    return {action.kind for actions in figures.schedule.program for action in actions}


@pytest.mark.parametrize(("shape", "budget", "makespan"), CELLS)
def test_the_table_is_reached_within_the_same_budget_without_effort(
    shape: tuple[int, int, int], budget: float, makespan: float
) -> None:
    devices, microbatches, subsequences = shape
    figures = shown("bsipipe-zb", request(devices, microbatches, (8,) * subsequences, budget, effort=0))
    assert figures.makespan <= makespan
    assert figures.peak <= budget


@pytest.mark.parametrize(
    ("shape", "budget", "makespan"),
    [
        ((4, 4, 4), 2, 12.375),
        ((8, 2, 8), 2, 6.4375),
        ((8, 4, 4), 2, 13.5),
        ((8, 4, 4), 2.5, 12.625),
        ((8, 4, 8), 2, 12.4375),
        ((8, 8, 8), 2, 24.5625),
        ((8, 16, 8), 2, 48.5625),
        ((16, 16, 8), 2, 50.375),
    ],
)
def test_several_rules_together_do_better_than_the_one_of_the_table(
    shape: tuple[int, int, int], budget: float, makespan: float
) -> None:
    devices, microbatches, subsequences = shape
    figures = shown("bsipipe-zb", request(devices, microbatches, (8,) * subsequences, budget))
    assert figures.makespan <= makespan
    assert figures.peak <= budget
    assert kinds(figures) == {"F", "I", "W"}


@pytest.mark.parametrize(("shape", "budget"), [((4, 4, 4), 2.25), ((8, 4, 8), 2.25), ((8, 8, 8), 2.5)])
def test_with_some_memory_to_spare_nothing_is_faster(shape: tuple[int, int, int], budget: float) -> None:
    devices, microbatches, subsequences = shape
    figures = shown("bsipipe-zb", request(devices, microbatches, (8,) * subsequences, budget))
    # The innermost devices wait for P/2 - 1 forwards at first; at last there is a W to do.
    assert figures.makespan == 3 * microbatches + (devices - 2) / (4 * subsequences)


def priced(part: float, message: float) -> CostModel:
    """The unit clock with this part of a backward as its W, and messages."""

    def prices(layout: Layout) -> Prices:
        plain = unit(layout)
        return replace(
            plain,
            backward_input=[(1 - part) * cost for cost in plain.backward],
            backward_weight=[part * cost for cost in plain.backward],
            transfer=[message * cost for cost in plain.forward],
            network=Network(near=Link(message / 10, 1.0)),
        )

    return CostModel("priced", prices)


@given(
    devices=st.integers(1, 4).map(lambda half: 2 * half),
    microbatches=st.integers(1, 6),
    split=st.lists(st.integers(1, 30), min_size=1, max_size=6).map(tuple),
    unit_microbatches=st.integers(1, 2),
    spare=st.floats(0, 3),
    part=st.floats(0, 1),
    message=st.sampled_from((0, 0.04, 0.3)),
)
def test_it_keeps_to_the_budget_and_never_loses_to_whole_backwards(
    devices: int,
    microbatches: int,
    split: tuple[int, ...],
    unit_microbatches: int,
    spare: float,
    part: float,
    message: float,
) -> None:
    budget = 2 * unit_microbatches + spare
    asked = request(
        devices,
        microbatches,
        split,
        budget,
        unit_microbatches=unit_microbatches,
        costs=priced(part, message),
        effort=EFFORT,
    )
    figures = shown("bsipipe-zb", asked)
    assert figures.peak <= budget + 1e-6
    assert figures.makespan <= shown("bsipipe", asked).makespan * (1 + 1e-6)


@given(
    splits=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=6).map(tuple), min_size=1, max_size=6),
    spare=st.floats(0, 1),
)
def test_activation_is_held_until_w_however_the_microbatches_differ(
    splits: list[tuple[int, ...]], spare: float
) -> None:
    asked = Request(4, tuple(map(sum, splits)), tuple(splits), 2, budget=2 + spare, effort=EFFORT)
    assert shown("bsipipe-zb", asked).peak <= 2 + spare + 1e-6


def test_an_order_for_the_unit_clock_can_lose_and_one_for_the_prices_does_not() -> None:
    """Where four fifths of a backward are I, what the unit clock suggests is slower than whole backwards."""
    costs = priced(0.2, 0)
    asked = request(8, 4, (8,) * 8, 2.25)
    whole = preview(GENERATORS["bsipipe"].make(asked), costs).makespan
    assert preview(GENERATORS["bsipipe-zb"].make(asked), costs).makespan > whole
    assert shown("bsipipe-zb", replace(asked, costs=costs)).makespan <= whole


def test_backwards_stay_whole_where_that_is_faster() -> None:
    asked = request(4, 8, (8,) * 4, 2.5, costs=priced(0.1, 0))
    figures = shown("bsipipe-zb", asked)
    assert kinds(figures) == {"F", "B"}
    assert figures.makespan == shown("bsipipe", asked).makespan


def test_the_name_tells_the_shape() -> None:
    assert GENERATORS["bsipipe-zb"].make(request(4, 3, (4, 4))).name == "bsipipe-zb p4 v2 m3 k2 u1 budget 2.5"


def test_a_refusal_names_the_nearest_shape_and_that_one_is_made() -> None:
    split = (8, 8)
    for asked, hint in (
        (request(5, 4, split), "use 4 or 6, or seq1f1b-zb"),
        (request(1, 4, split), "use 2, or seq1f1b-zb"),
        (replace(request(4, 4, split), stages_per_device=1), "use --stages-per-device 2"),
        (request(4, 4, split, 1.5), "the least is 2"),
    ):
        with pytest.raises(Refusal, match=re.escape(f"{hint}")):
            GENERATORS["bsipipe-zb"].make(asked)
    for devices in (2, 4, 6):
        shown("bsipipe-zb", request(devices, 4, split, 2))
    for devices in (1, 5):
        shown("seq1f1b-zb", replace(request(devices, 4, split), stages_per_device=1))
