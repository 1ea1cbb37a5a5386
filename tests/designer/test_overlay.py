"""Measured against predicted: what was slower is named, and every wait is accounted for."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contraflow.designer import costs
from contraflow.designer.costs.prices import CostModel, Prices
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, make, preview
from contraflow.designer.format.graph import build
from contraflow.designer.format.schedule import Layout, Schedule
from contraflow.designer.format.trace import Times, Trace
from contraflow.designer.overlay import OverlayError, check, overlay, predicted

MACHINE = costs.named("llama3-1b-h100")
BSIPIPE = make(Design("bsipipe", devices=2, subsequences=2))


def slower(model: CostModel, kind: str, slot: int, times: float) -> CostModel:
    """The same costs, but for one action."""

    def price(layout: Layout) -> Prices:
        prices = model(layout)
        name = {"F": "forward", "B": "backward"}[kind]
        table = list(getattr(prices, name))
        table[slot] *= times
        return replace(prices, **{name: table})

    return CostModel("slower", price)


def told(schedule: Schedule, model: CostModel) -> Times:
    return predicted(preview(schedule, model).timeline)


def test_a_prediction_laid_over_itself_differs_in_nothing() -> None:
    times = told(BSIPIPE, MACHINE)
    found = overlay(build(BSIPIPE), times, times)
    shown = preview(BSIPIPE, MACHINE)
    assert found.makespan.ratio == 1
    assert found.bubble.measured == pytest.approx(
        1 - sum(use.busy for use in shown.timeline.devices) / 2 / times.makespan
    )
    assert all(compute.time.excess == 0 for compute in found.computes)
    assert found.longest(10) == []


@pytest.mark.parametrize("kind", ["F", "B"])
def test_the_action_that_took_three_times_as_long_is_named(kind: str) -> None:
    graph = build(BSIPIPE)
    for slot in (0, 7, graph.layout.num_slots - 1):
        node = (graph.forward if kind == "F" else graph.backward)[slot]
        found = overlay(graph, told(BSIPIPE, MACHINE), told(BSIPIPE, slower(MACHINE, kind, slot, 3)))
        worst = found.worst(2)
        assert (worst[0].device, worst[0].action) == (graph.device[node], graph.actions[node])
        assert worst[0].time.ratio == pytest.approx(3)
        assert worst[1].time.excess == pytest.approx(0, abs=1e-12)
        assert found.kinds[kind].measured > found.kinds[kind].predicted
        assert all(wait.own == pytest.approx(0, abs=1e-9) for wait in found.waits)


def test_who_waited_for_the_slow_action_is_named() -> None:
    schedule = make(Design("1f1b", devices=2, microbatches=2))
    graph = build(schedule)
    found = overlay(graph, told(schedule, unit), told(schedule, slower(unit, "F", 0, 3)))
    (wait, *_) = found.longest(10)
    assert (wait.device, str(wait.action), str(wait.source)) == (1, "1F0", "0F0")
    assert wait.late == pytest.approx(wait.time.excess)


def test_a_slow_way_is_told_from_a_late_input() -> None:
    schedule = make(Design("1f1b", devices=2, microbatches=2))
    times = told(schedule, MACHINE)

    def price(layout: Layout) -> Prices:
        prices = MACHINE(layout)
        return replace(prices, transfer=[100 * cost for cost in prices.transfer])

    found = overlay(build(schedule), times, told(schedule, CostModel("far", price)))
    wait = next(wait for wait in found.waits if str(wait.action) == "1F0")
    assert wait.way == pytest.approx(wait.time.excess)
    assert wait.late == pytest.approx(0, abs=1e-12)


@given(schedule=..., seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_waits_and_computes_fill_the_step(schedule: Schedule, seed: int) -> None:
    rng = Random(seed)

    def price(layout: Layout) -> Prices:
        prices = unit(layout)
        return replace(prices, forward=[cost * rng.uniform(0.5, 2) for cost in prices.forward])

    graph = build(schedule)
    expected, measured = told(schedule, unit), told(schedule, CostModel("other", price))
    found = overlay(graph, expected, measured)
    for wait in found.waits:
        assert wait.late + wait.way + wait.own == pytest.approx(wait.time.excess, abs=1e-9)
    for device, use in enumerate(found.devices):
        last = max((span.end for span in measured.spans if span.device == device), default=0.0)
        waited = sum(wait.time.measured for wait in found.waits if wait.device == device)
        assert use.busy.measured + waited == pytest.approx(last)
        assert use.busy.measured + use.idle.measured == pytest.approx(measured.makespan)


def traced(schedule: Schedule) -> Trace:
    return Trace(schedule, 1, "a bench", told(schedule, unit), ())


def test_a_trace_of_the_same_program_may_have_another_name() -> None:
    check(traced(BSIPIPE), replace(BSIPIPE, name="other", design=None))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (make(Design("bsipipe", devices=4, subsequences=2)), "its devices and directions differ"),
        (make(Design("bsipipe", devices=2, subsequences=2, sequence=64)), "its sequence and splits differ"),
        (
            replace(BSIPIPE, program=(BSIPIPE.program[0][::-1], BSIPIPE.program[1])),
            "action 0 of device 0 was",
        ),
        (replace(BSIPIPE, program=(BSIPIPE.program[0][:-1], BSIPIPE.program[1])), "in the file it is none"),
    ],
)
def test_a_trace_of_another_schedule_is_refused_with_the_reason(other: Schedule, reason: str) -> None:
    with pytest.raises(OverlayError) as caught:
        check(traced(BSIPIPE), other)
    assert reason in str(caught.value)
    assert BSIPIPE.name in str(caught.value)
