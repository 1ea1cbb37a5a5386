"""Prices fitted to a profile: a law that is known is found again, and prices layouts that nobody measured."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from contraflow.designer import costs
from contraflow.designer.costs import CostError
from contraflow.designer.costs.fitted import fit
from contraflow.designer.costs.measured import measured
from contraflow.designer.costs.traced import profile_of
from contraflow.designer.design import Design, make, preview
from contraflow.designer.format import profile
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.profile import ActionTime, PartTime, Profile
from contraflow.designer.format.schedule import Direction, Layout
from contraflow.designer.format.trace import Trace
from contraflow.designer.overlay import overlay, predicted

MODEL = ModelShape(layers=6)
SPLITS = ((64, 64), (32, 32, 32, 32), (16, 48, 16, 48), (128,))
FACTORS = {"F": 1.0, "B": 2.25, "I": 1.5, "W": 0.75}


def law(kind: str, layers: int, first: bool, last: bool, start: int, stop: int) -> float:
    """Milliseconds that could be: some for every layer, token, pair of tokens, end of the model, and action."""
    n = stop - start
    layer = 0.2 + 0.01 * n + 0.001 * start + 1e-4 * n * start + 5e-5 * n * n
    ends = first * (0.1 + 0.004 * n) + last * (0.3 + 0.02 * n)
    return 1e-3 * (FACTORS[kind] * (layers * layer + ends) + 0.05)


def parts() -> tuple[PartTime, ...]:
    """Of a layer, two, an embedding and a head, on pieces of several lengths."""
    return tuple(
        PartTime(*made, kind, start, stop, law(kind, *made, start, stop))
        for made in ((1, False, False), (2, False, False), (0, True, False), (0, False, True))
        for kind in FACTORS
        for split in SPLITS
        for start, stop in pairwise([sum(split[:index]) for index in range(len(split) + 1)])
    )


KNOWN = Profile("a bench", (), 0.25, 0.5, model=MODEL, batch_size=2, parts=parts())


def straight(layers: tuple[int, ...], split: tuple[int, ...]) -> Layout:
    placement = tuple(range(len(layers)))
    return Layout(len(layers), (sum(split),), (split,), (Direction("down", placement, (0,)),), layers)


@pytest.mark.parametrize("layers", [(6,), (1, 5), (2, 2, 2), (0, 6, 0)])
@pytest.mark.parametrize("split", [(128,), (100, 28), (256, 256), (5, 6, 7)])
def test_a_law_is_found_again_on_any_layout(layers: tuple[int, ...], split: tuple[int, ...]) -> None:
    prices = measured(KNOWN, "mine")(straight(layers, split))
    borders = list(pairwise([sum(split[:index]) for index in range(len(split) + 1)]))
    last = len(layers) - 1
    for kind, table in prices.durations().items():
        expected = [
            law(kind, count, stage == 0, stage == last, *border)
            for stage, count in enumerate(layers)
            for border in borders
        ]
        assert list(table) == pytest.approx(expected, rel=1e-5)
    assert "fitted to measurements on a bench" in prices.caption
    assert "off by 0.0 %" in prices.caption


def test_noise_is_told_and_no_part_is_negative() -> None:
    noisy = replace(
        KNOWN,
        parts=tuple(
            part._replace(seconds=part.seconds * (1.1 if index % 2 else 0.9))
            for index, part in enumerate(parts())
        ),
    )
    found = fit(noisy)
    assert found is not None
    assert 0.03 < found.error <= 0.1
    assert all(value >= 0 for coefficients in found.coefficients.values() for value in coefficients)
    prices = measured(noisy, "mine")(straight((2, 2, 2), (64, 64)))
    true = measured(KNOWN, "mine")(straight((2, 2, 2), (64, 64)))
    assert sum(prices.forward) == pytest.approx(sum(true.forward), rel=0.1)


def test_a_fit_without_a_point_to_tell_apart_still_meets_what_was_measured() -> None:
    actions = tuple(
        ActionTime(stage, stage, kind, *border, law(kind, 3, stage == 0, stage == 1, *border))
        for stage in range(2)
        for kind in FACTORS
        for border in ((0, 64), (64, 128))
    )
    found = fit(Profile("a bench", actions, model=MODEL, layers=(3, 3)))
    assert found is not None
    assert found.error < 1e-6


def test_what_was_measured_itself_goes_before_the_law() -> None:
    exact = tuple(ActionTime(stage, stage, kind, 0, 64, 7.0) for stage in range(2) for kind in FACTORS)
    both = replace(KNOWN, actions=exact, layers=(3, 3))
    same = measured(both, "mine")(straight((3, 3), (64,)))
    assert list(same.forward) == [7, 7]
    assert same.caption.startswith("seconds measured on")
    mixed = measured(both, "mine")(straight((3, 3), (64, 32)))
    assert [mixed.forward[slot] for slot in (0, 2)] == [7, 7]
    assert 0 < mixed.forward[1] < 1
    assert "for 2 of 4 subsequences of a stage fitted" in mixed.caption
    # Other stages are not those that were measured.
    assert max(measured(both, "mine")(straight((2, 4), (64,))).forward) < 1


def test_reductions_of_other_layouts_travel_at_the_speed_of_messages() -> None:
    both = Layout(
        2,
        (64, 64),
        ((64,), (64,)),
        (Direction("down", (0, 1), (0,)), Direction("up", (1, 0), (1,))),
    )
    found = measured(KNOWN, "mine")(both).reduction
    per_element = KNOWN.seconds_per_token / (KNOWN.batch_size * MODEL.hidden)
    layer = 4 * 128 * 128 + 3 * 128 * 352 + 2 * 128
    table = 256 * 128
    assert list(found) == pytest.approx(
        [per_element * (3 * layer + table), per_element * (3 * layer + table + 128)]
    )
    assert list(measured(KNOWN, "mine")(straight((3, 3), (64,))).reduction) == [0, 0]


def test_a_profile_without_its_model_prices_nothing_else() -> None:
    with pytest.raises(CostError, match="mine has no time for stage 0"):
        measured(replace(KNOWN, model=None), "mine")(straight((3, 3), (64,)))
    with pytest.raises(CostError, match="add up to 5, the model has 6"):
        measured(KNOWN, "mine")(straight((2, 3), (64,)))


def test_all_of_a_profile_is_read_back_and_older_ones_too() -> None:
    full = replace(KNOWN, actions=(ActionTime(0, 0, "F", 0, 4, 1.0),), layers=(6,))
    assert profile.loads(profile.dumps(full)) == full
    document = json.loads(profile.dumps(full))
    for key in ("model", "batch_size", "layers", "parts"):
        del document[key]
    older = profile.loads(json.dumps(document))
    assert older == Profile("a bench", full.actions, 0.25, 0.5)
    for spoiled in ('"parts": [[1, 2]]', '"parts": 3', '"model": {"layers": 0}', '"layers": [null]'):
        text = json.dumps(document)[:-1] + f", {spoiled}}}"
        with pytest.raises(ValueError, match="the profile is not a profile: ") as caught:
            profile.loads(text)
        assert "\n" not in str(caught.value)


def test_a_profile_from_a_trace_prices_the_step_as_it_was() -> None:
    machine = costs.named("llama3-1b-h100")
    schedule = make(Design("bsipipe-zb", devices=2, subsequences=2))
    shown = preview(schedule, machine)
    found = profile_of(Trace(schedule, 3, "a bench", predicted(shown.timeline), ()))
    again = preview(schedule, measured(found, "mine"))
    for kind, table in again.timeline.prices.durations().items():
        if kind in "FIW":
            assert list(table) == pytest.approx(list(shown.timeline.prices.durations()[kind]))
    laid = overlay(shown.timeline.graph, predicted(shown.timeline), predicted(again.timeline))
    assert laid.makespan.ratio == pytest.approx(1, rel=0.01)
    assert "in step 3 of a run" in again.caption
