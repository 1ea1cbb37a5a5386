"""A beside B on one clock: figures, ghosts, and who starts earlier."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer import costs
from contraflow.designer.comparison import Delta, compare
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, make, preview
from contraflow.designer.format.graph import NONE
from contraflow.designer.format.random_program import shuffled
from contraflow.designer.format.schedule import Schedule

SCHEDULES = st.from_type(Schedule)


@given(SCHEDULES)
def test_a_schedule_beside_itself_is_the_same(schedule: Schedule) -> None:
    shown = preview(schedule, unit)
    found = compare(shown, shown)
    assert {delta.change for delta in found.figures} <= {0, None}
    for row in found.devices:
        assert (row.busy.change, row.idle.change, row.peak.change, row.memory.change) == (0, 0, 0, None)
    assert set(found.shift) <= {0, None}
    assert found.warnings == ()
    assert found.difference.same_program


@given(SCHEDULES, st.integers(0, 2**32))
def test_ghosts_are_where_a_ran_and_shifts_lead_from_there_to_b(schedule: Schedule, seed: int) -> None:
    a, b = preview(schedule, unit), preview(shuffled(schedule, Random(seed)), unit)
    found = compare(a, b)
    assert [[ghost.action for ghost in row] for row in found.ghosts] == [
        [action for action in program if action.kind != "REDUCE_GRAD"] for program in schedule.program
    ]
    for row in found.ghosts:
        for ghost in row:
            if ghost.node == NONE:
                assert ghost.action not in b.timeline.graph.actions
            else:
                assert b.timeline.graph.actions[ghost.node] == ghost.action
                assert found.shift[ghost.node] == b.timeline.start[ghost.node] - ghost.start
    both = {ghost.node for row in found.ghosts for ghost in row}
    for node, shift in enumerate(found.shift):
        assert (shift is None) == (node not in both)


def test_figures_by_hand() -> None:
    # Idle 3 (P - 1) and 3 (P - 1) / k; peaks P and (P - 1 + k) / k.
    a = preview(make(Design("1f1b", microbatches=4)), unit)
    b = preview(make(Design("seq1f1b", microbatches=4, subsequences=2)), unit)
    found = compare(a, b)
    by_name = {delta.name: delta for delta in found.figures}
    assert (by_name["makespan"].a, by_name["makespan"].b, by_name["makespan"].change) == (21, 16.5, -4.5)
    assert by_name["peak"].change == -1.5
    assert by_name["makespan"].ratio == pytest.approx(16.5 / 21)
    assert by_name["memory"] == Delta("memory", None, None)
    assert by_name["memory"].ratio is None
    assert [row.idle.change for row in found.devices] == [-4.5] * 4
    # No action of a whole microbatch has the name of one of a half.
    assert set(found.shift) == {None}


def test_a_is_priced_anew_on_the_costs_of_b() -> None:
    modelled = costs.named("llama3-1b-h100")
    schedule = make(Design("seq1f1b", sequence=4096))
    a = preview(schedule, unit)
    moved = replace(schedule, layout=replace(schedule.layout, ranks=(1, 0, 2, 3)))
    found = compare(a, preview(moved, modelled))
    assert found.a.timeline.prices.clock == "seconds"
    assert found.a.schedule is schedule
    by_name = {delta.name: delta for delta in found.figures}
    assert by_name["tokens per s"].a is not None
    assert by_name["between nodes"].change == 0
    assert found.difference.fields.keys() == {"ranks"}
    assert all(row.memory.change == pytest.approx(0) for row in found.devices)


def test_devices_that_only_one_has_and_what_cannot_be_compared() -> None:
    found = compare(*(preview(make(Design("1f1b", devices=devices)), unit) for devices in (4, 2)))
    assert [row.busy.b is None for row in found.devices] == [False, False, True, True]
    assert found.devices[3].busy.change is None
    [warning] = found.warnings
    assert "different numbers of devices (4, 2)" in warning
    assert len(found.ghosts) == 4
