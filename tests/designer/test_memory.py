"""Memory over time: what has gone forward and not yet back, by its tokens; and all that a device holds, in bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contraflow.designer.costs.footprint import Footprint, footprint
from contraflow.designer.costs.prices import Link, Network
from contraflow.designer.costs.training import Training
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, make, preview
from contraflow.designer.format.graph import NONE, build
from contraflow.designer.format.lowering import TIED, Lowered, lower, with_reductions
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Direction, Layout, Schedule, parse_token
from contraflow.designer.memory import ByteCurve, Curve, activation_curves, byte_curves
from contraflow.designer.simulate import Timeline, simulate


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


LLAMA = ModelShape("llama", layers=4, hidden=32, heads=4, kv_heads=2, ffn=48, vocabulary=100)


@given(
    schedule=st.from_type(Schedule),
    latency=st.sampled_from([0.0, 0.25, 3.0]),
    family=st.sampled_from(["llama", "gpt"]),
    tied=st.booleans(),
)
def test_bytes_are_the_sum_of_what_is_open_after_each_action(
    schedule: Schedule, latency: float, family: str, tied: bool
) -> None:
    layout = schedule.layout
    num_layers = LLAMA.layers if layout.layers is None else sum(layout.layers)
    assume(num_layers)
    shape = replace(LLAMA, family=family, layers=num_layers, tied=tied, positions=1000)
    prices = replace(unit(layout), network=Network(Link(latency, 1.0)))
    timeline = simulate(build(with_reductions(schedule, tied)), prices)
    occupied = footprint(shape, Training(precision="float32"))(layout)
    lowered = lower(schedule, tied)
    for device, curve in enumerate(byte_curves(timeline, occupied)):
        assert list(curve.kept) == pytest.approx(kept(timeline, occupied, lowered, device))
        assert all(high >= level for high, level in zip(curve.highest, curve.kept, strict=True))
        assert curve.peak == pytest.approx(max(*curve.highest, *curve.kept, curve.levels[-1]))
        assert min(getattr(curve.most, name) for name in curve.most.__slots__) >= -1e-6
        assert list(curve.times) == sorted(set(curve.times))
        assert all(level <= curve.peak * (1 + 1e-12) for level in curve.levels)


def kept(timeline: Timeline, occupied: Footprint, lowered: Lowered, device: int) -> list[float]:
    """The levels after each action, each made anew from all that is open then."""
    graph, layout = timeline.graph, timeline.graph.layout
    static = (
        occupied.weights[device] + occupied.gradients[device] + occupied.optimizer[device] + occupied.batch
    )
    node_of = {action: node for node, action in enumerate(graph.actions) if graph.slot[node] != NONE}
    here = range(graph.first[device], graph.first[device + 1])
    levels = []
    for now in here:
        done = set(range(here.start, now + 1))
        # A reduction runs beside what follows.
        moment = timeline.start[now] if graph.slot[now] == NONE else timeline.end[now]
        level = static
        for where in range(layout.num_slots):
            f, b, w = graph.forward[where], graph.backward[where], graph.weight[where]
            if f in done and b not in done:
                level += occupied.activations[where] + occupied.logits[where]
            if b in done and w != NONE and w not in done:
                level += occupied.deferred[where]
        for stage in range(layout.num_stages):
            for microbatch, split in enumerate(layout.splits):
                first, last = (layout.slot(stage, microbatch, q) for q in (0, len(split) - 1))
                if graph.backward[first] not in done:
                    level += occupied.key_values[first] * (graph.forward[first] in done)
                    level += occupied.owed[last] * (graph.backward[last] in done)
        for node in done:
            target = graph.consumer[node]
            if target != NONE and graph.device[target] == device and target not in done:
                level += occupied.message[graph.slot[node]]
        for number, lane in enumerate(lowered.lanes):
            if lane.purpose != "data":
                continue
            sent = [node_of[message.action] for message in lane.messages]
            takers = [node_of[step.action] for step in lowered.programs[lane.target] if step.takes == number]
            if lane.target == device:
                num_taken = sum(node in done for node in takers)
                for node in sent[: num_taken + lane.credit]:
                    level += occupied.message[graph.slot[node]] * (graph.consumer[node] not in done)
            if lane.source == device:
                for place, node in enumerate(sent):
                    gone = timeline.arrival[node]
                    if place >= lane.credit:
                        gone = max(gone, timeline.start[takers[place - lane.credit]])
                    if node in done and gone > moment:
                        level += occupied.message[graph.slot[node]]
        reduced = {graph.actions[node].stage for node in done if graph.slot[node] == NONE}
        ends = {stage for stage in (0, layout.num_stages - 1) if device in layout.copies[stage]}
        for step in lowered.programs[device]:
            if step.action.kind == "REDUCE_GRAD" and step.takes != NONE:
                if step.action.stage in reduced:
                    level += occupied.reduction[step.action.stage]
                elif step.action.stage == TIED and ends <= reduced:
                    level += occupied.shared[0]
        levels.append(level)
    return levels


def shown(schedule: Schedule, **training: Any) -> tuple[ByteCurve, ...]:
    timeline = simulate(build(schedule), unit(schedule.layout))
    return byte_curves(timeline, footprint(LLAMA, Training(**training))(schedule.layout))


def test_a_breakdown_tells_what_the_highest_point_is_made_of() -> None:
    first, last = shown(make(Design("1f1b", 2, 3, sequence=64)), precision="float32")
    # While the last stage's logits are made, and before the first stage's first backward has freed anything.
    assert str(last.action) == "1F0"
    assert last.most.logits == 64 * (4 * 100 + 9)
    assert last.most.transients == 64 * 4 * 100
    assert str(first.action) == "0B0"
    assert first.most.logits == first.most.deferred == first.most.owed == 0
    assert first.most.total == first.peak == max(first.highest)


def test_a_deferred_w_and_owed_gradients_have_their_own_share() -> None:
    deferred = shown(make(Design("zb-h1", 4, 6, sequence=64)))[3]
    assert deferred.most.deferred > 0
    (cut, *_) = shown(make(Design("seq1f1b", 2, 3, 2, sequence=64)))
    assert cut.most.owed > 0
    assert cut.most.key_values > 0


def test_what_is_sent_stays_until_it_has_arrived() -> None:
    schedule = make(Design("gpipe", 2, 3, sequence=64))
    occupied = footprint(LLAMA, Training(precision="float32"))(schedule.layout)
    at_once, late = (
        byte_curves(
            simulate(build(schedule), replace(unit(schedule.layout), network=Network(Link(latency, 1.0)))),
            occupied,
        )[0]
        for latency in (0.0, 1.5)
    )
    # Each forward takes 1: the first activation is on its way until the third forward begins.
    held = [more - less for more, less in zip(late.kept, at_once.kept, strict=True)][:3]
    message = 64 * 4 * LLAMA.hidden
    assert held == [message, 2 * message, 2 * message]


def test_the_end_of_a_step_holds_new_weights_beside_the_old_ones() -> None:
    curves_of = shown(make(Design("bsipipe", 2, 2, 2, sequence=64)))
    for curve in curves_of:
        assert curve.levels[-1] > curve.most.weights + curve.most.gradients + curve.most.optimizer
