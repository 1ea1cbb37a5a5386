"""The search: valid at all times, within the cap, never worse, honest about what is proven, equal for equal seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contraflow.designer import costs
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, DesignError, Preview, carried, make, preview
from contraflow.designer.format.check import check
from contraflow.designer.format.graph import build
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.simulate import simulate

pytest.importorskip("ortools", reason="search is an optional extra")

from contraflow.designer.search import Cap, NoStart, Progress, jointly, search
from contraflow.designer.search.bound import lower_bound
from contraflow.designer.search.designs import designs
from contraflow.designer.search.judge import Judge
from contraflow.designer.search.pose import pose

MODEL = "work:llama3-8b"


def shape(generator: str, devices: int, microbatches: int, subsequences: int, **knobs: object) -> Schedule:
    return make(
        Design(generator, devices, microbatches, subsequences, sequence=128 * subsequences, **knobs)  # type: ignore[arg-type]
    )


def settled(found: Iterator[Progress], steps: int) -> list[Progress]:
    """The first so many reports; fewer where the search ends before."""
    return list(islice(found, steps))


@pytest.mark.parametrize(
    ("start", "cap", "least"),
    [
        # 1f1b's order is the best for so many microbatches within its own peak: 3(P-1) of idle time.
        (shape("gpipe", 2, 3, 1), 2.0, 12.0),
        # At two devices nothing need idle at all.
        (shape("bsipipe", 2, 4, 2), 2.5, 12.0),
    ],
)
def test_a_known_least_makespan_is_reached_and_proven(start: Schedule, cap: float, least: float) -> None:
    last = list(search(start, unit, Cap(cap), seconds=100))[-1]
    assert last.optimal
    assert last.shown.makespan == pytest.approx(least)
    assert last.bound == pytest.approx(least)
    assert last.shown.peak <= cap + 1e-9


@settings(max_examples=10)
@given(schedule=st.from_type(Schedule), priced=st.booleans(), seed=st.integers(0, 99))
def test_what_it_yields_is_valid_within_the_cap_and_better_and_better(
    schedule: Schedule, priced: bool, seed: int
) -> None:
    model = costs.named(MODEL if priced else "unit")
    given = preview(schedule, model)
    before = given.makespan
    for progress in settled(search(schedule, model, Cap(given.peak), seed=seed), 3):
        shown = progress.shown
        assert check(shown.schedule, build(shown.schedule)) == []
        assert shown.schedule.layout == schedule.layout
        assert shown.peak <= given.peak + 1e-9
        assert progress.bound <= shown.makespan + 1e-9
        assert shown.makespan <= before * (1 + 1e-9)
        before = shown.makespan


@given(schedule=st.from_type(Schedule))
def test_no_program_beats_the_lower_bound(schedule: Schedule) -> None:
    shown = preview(schedule, unit)
    problem, sequence = pose(Judge(schedule, unit, Cap(shown.peak)), shown)
    assert lower_bound(problem, sequence) * problem.tick <= shown.makespan + 1e-9


@given(schedule=st.from_type(Schedule))
def test_a_sequence_takes_what_the_simulator_says(schedule: Schedule) -> None:
    shown = preview(schedule, unit)
    problem, sequence = pose(Judge(schedule, unit, Cap(shown.peak)), shown)
    assert problem.starts(sequence)[1] * problem.tick == pytest.approx(shown.makespan)
    again = replace(schedule, program=problem.program(sequence))
    assert simulate(build(again), shown.timeline.prices).makespan == pytest.approx(shown.makespan)


def test_equal_seeds_find_equal_programs() -> None:
    start = shape("bsipipe", 4, 4, 4, budget=2)

    def found(seed: int) -> list[tuple[float, object]]:
        return [
            (progress.shown.makespan, progress.shown.schedule.program)
            for progress in settled(search(start, unit, Cap(2.25), seed=seed), 8)
        ]

    assert found(1) == found(1)


def test_a_poor_start_within_the_cap_becomes_better_than_the_generators_one() -> None:
    start = shape("terapipe", 4, 4, 4)
    known = preview(shape("seq1f1b", 4, 4, 4), unit)
    for progress in search(start, unit, Cap(known.peak), seconds=100):
        if progress.shown.makespan <= known.makespan:
            break
    assert progress.shown.makespan <= known.makespan
    assert progress.shown.peak <= known.peak + 1e-9


def test_a_start_beyond_the_cap_is_brought_within_it() -> None:
    start = shape("terapipe", 4, 4, 2)
    assert preview(start, unit).peak == 4
    first = next(search(start, unit, Cap(2.5)))
    assert first.shown.peak <= 2.5


def test_a_cap_that_nothing_keeps_to_is_refused_in_words() -> None:
    with pytest.raises(NoStart, match=r"within 0.5 whole microbatches: device \d"):
        next(search(shape("seq1f1b", 4, 4, 2), unit, Cap(0.5)))


def test_it_ends_when_it_is_told_to() -> None:
    steps = 0

    def stop() -> bool:
        return steps >= 3

    for _ in search(shape("bsipipe", 4, 8, 4, budget=2), unit, Cap(2), stop=stop):
        steps += 1
    assert steps <= 5


def last_design(schedule: Schedule, prices: str, free: list[str], cap: float, trials: int) -> Preview:
    best: Preview | None = None
    for found in islice(designs(schedule, prices, free, lambda shown: shown.peak <= cap, seed=1), trials):
        best = found or best
    assert best is not None
    return best


def test_borders_move_to_where_the_costs_want_them() -> None:
    even = make(Design("seq1f1b", 4, 4, 4, sequence=32768, costs=MODEL))
    best = last_design(even, MODEL, ["splits"], 9.0, 60)
    lengths = best.schedule.layout.splits[0]
    assert best.step < preview(even, costs.named(MODEL)).step
    assert sum(lengths) == 32768
    # Later subsequences attend to more: they must be shorter.
    assert lengths[0] > lengths[-1]


def test_borders_of_a_file_without_knobs_move_and_its_order_stays() -> None:
    even = replace(make(Design("seq1f1b", 4, 4, 4, sequence=32768)), design=None)
    best = last_design(even, MODEL, ["splits"], 9.0, 60)
    assert best.step < preview(even, costs.named(MODEL)).step
    assert best.schedule.program == even.program


def test_a_freed_budget_and_freed_directions_use_what_the_cap_leaves() -> None:
    start = make(Design("seq1f1b", 4, 4, 4, sequence=512))
    best = last_design(start, "unit", ["directions", "budget"], 2.25, 60)
    assert best.schedule.design is not None
    assert best.schedule.design["generator"] == "bsipipe-zb"
    assert best.makespan == 12.125
    assert best.peak <= 2.25


def test_knobs_that_are_none_and_files_without_knobs_are_refused() -> None:
    schedule = shape("seq1f1b", 4, 4, 2)
    with pytest.raises(DesignError, match="no knob 'split' to free; there are splits, "):
        next(jointly(schedule, "unit", Cap(3), ["split"]))
    with pytest.raises(DesignError, match="only --free splits"):
        next(jointly(replace(schedule, design=None), "unit", Cap(3), ["budget"]))


def test_directions_listed_by_hand_give_way_to_a_generator_that_has_one() -> None:
    start = make(Design("bsipipe", subsequences=4, directions="00110"))
    found = [
        shown
        for shown in designs(start, "unit", ("directions",), lambda shown: shown.peak <= 1.75, 0)
        if shown is not None
    ]
    design = carried(found[-1].schedule)
    assert design is not None
    assert (design.generator, design.directions, design.num_microbatches) == ("seq1f1b-zb", None, 5)
