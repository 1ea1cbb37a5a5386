"""Activation over time: what has gone forward and not yet back, by its tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.costs.prices import Link, Network
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import preview
from contraflow.designer.format.graph import NONE, build
from contraflow.designer.format.schedule import Direction, Layout, Schedule, parse_token
from contraflow.designer.memory import Curve, activation_curves
from contraflow.designer.simulate import simulate


@given(schedule=st.from_type(Schedule), latency=st.sampled_from([0.0, 0.25, 3.0]))
def test_a_curve_is_the_sum_of_what_is_held_at_each_moment(schedule: Schedule, latency: float) -> None:
    graph, layout = build(schedule), schedule.layout
    shown = simulate(graph, replace(unit(layout), network=Network(Link(latency, 1.0))))
    share = layout.num_devices / layout.num_stages / max(layout.sequences)
    held = [share * length for split in layout.splits for length in split] * layout.num_stages
    for device, curve in enumerate(activation_curves(shown)):
        here = range(graph.first[device], graph.first[device + 1])
        opened = {graph.slot[n]: shown.start[n] for n in here if graph.actions[n].kind == "F"}
        closed = {graph.slot[n]: shown.end[n] for n in here if graph.actions[n].kind in "BW"}
        closed.pop(NONE, None)
        assert opened.keys() == closed.keys()
        moments = sorted({0.0, *opened.values(), *closed.values()})
        levels = [
            sum(held[slot] for slot in opened if opened[slot] <= moment < closed[slot]) for moment in moments
        ]
        assert [level_at(curve, moment) for moment in moments] == pytest.approx(levels, abs=1e-9)
        assert curve.peak == pytest.approx(max(levels), abs=1e-9)
        assert list(curve.times) == sorted(set(curve.times))
        assert min(curve.levels) >= 0
        assert curve.levels[-1] == 0


def level_at(curve: Curve, moment: float) -> float:
    return [level for time, level in zip(curve.times, curve.levels, strict=True) if time <= moment][-1]


def curves(*devices: str, microbatches: int) -> tuple[Curve, ...]:
    down = Direction("down", tuple(range(len(devices))), tuple(range(microbatches)))
    layout = Layout(len(devices), (4,) * microbatches, ((4,),) * microbatches, (down,))
    actions = tuple(tuple(filter(None, map(parse_token, device.split()))) for device in devices)
    return preview(Schedule("by hand", layout, actions), unit).curves


def test_a_b_releases_at_its_end_before_the_next_forward_holds() -> None:
    (curve,) = curves("0F0 0B0 0F1 0B1", microbatches=2)
    assert (curve.times, curve.levels) == ([0.0, 3.0, 6.0], [1.0, 1.0, 0.0])


def test_an_i_releases_nothing_and_its_w_does() -> None:
    (curve,) = curves("0F0 0I0 0F1 0W0 0I1 0W1", microbatches=2)
    assert (curve.times, curve.levels) == ([0.0, 2.0, 4.0, 6.0], [1.0, 2.0, 1.0, 0.0])
