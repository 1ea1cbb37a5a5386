"""Random schedules: always valid, and of every kind that there is."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.format.check import check
from contraflow.designer.format.random_program import random_schedule, shuffled
from contraflow.designer.format.schedule import Schedule


@given(...)
def test_a_random_schedule_is_valid(schedule: Schedule) -> None:
    assert check(schedule) == []


@given(schedule=st.from_type(Schedule), seed=st.integers())
def test_another_order_of_the_same_layout_is_valid(schedule: Schedule, seed: int) -> None:
    other = shuffled(schedule, Random(seed))
    assert other.layout is schedule.layout
    assert check(other) == []


def test_a_seed_names_one_schedule() -> None:
    assert random_schedule(Random(3)) == random_schedule(Random(3)) != random_schedule(Random(4))


@given(
    st.integers(),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_sizes_stay_within_what_is_asked_for(
    seed: int, devices: int, stages: int, directions: int, microbatches: int, subsequences: int
) -> None:
    layout = random_schedule(
        Random(seed),
        max_devices=devices,
        max_stages=stages,
        max_directions=directions,
        max_microbatches=microbatches,
        max_subsequences=subsequences,
        max_tokens=5,
        num_layers=7,
    ).layout
    assert layout.num_devices <= devices
    assert layout.num_stages <= max(stages, layout.num_devices)
    assert len(layout.directions) <= directions
    assert layout.num_microbatches <= microbatches
    assert all(len(split) <= subsequences and max(split) <= 5 for split in layout.splits)
    assert layout.layers is None or sum(layout.layers) == 7


def test_every_kind_of_schedule_comes() -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        schedule = random_schedule(Random(seed))
        layout = schedule.layout
        kinds = {action.kind for actions in schedule.program for action in actions}
        held = Counter(device for direction in layout.directions for device in direction.placement)
        seen.update(
            [
                f"{layout.num_devices} devices",
                f"{len(layout.directions)} directions",
                f"{layout.num_stages} stages",
                f"{layout.num_microbatches} microbatches",
                *(f"{len(split)} subsequences" for split in layout.splits),
                "backwards " + "".join(sorted(kinds & set("BIW"))),
                "reductions" if "REDUCE_GRAD" in kinds else "no reductions",
                "one length" if layout.alike else "several lengths",
                "ranks" if layout.ranks else "no ranks",
                "layers" if layout.layers else "no layers",
                "a stage without layers" if layout.layers and 0 in layout.layers else "layers everywhere",
                "uneven stages" if len(set(held.values())) > 1 else "even stages",
                "an empty direction"
                if not all(d.microbatches for d in layout.directions)
                else "all travelled",
                "neighbours on a device"
                if any(here == there for d in layout.directions for here, there in pairwise(d.placement))
                else "no neighbours",
                "a copy beside its twin"
                if any(len(copies) < len(layout.directions) for copies in layout.copies)
                else "copies apart",
            ]
        )
    expected = {
        *(f"{n} devices" for n in range(1, 5)), *(f"{n} directions" for n in range(1, 4)),
        *(f"{n} stages" for n in range(1, 7)), *(f"{n} microbatches" for n in range(1, 5)),
        *(f"{n} subsequences" for n in range(1, 5)), "backwards B", "backwards BIW", "backwards IW",
        "reductions", "no reductions", "one length", "several lengths", "ranks", "no ranks", "layers", "no layers",
        "a stage without layers", "layers everywhere", "uneven stages", "even stages", "an empty direction",
        "all travelled", "neighbours on a device", "no neighbours", "a copy beside its twin", "copies apart",
    }  # fmt: skip
    assert set(seen) == expected
    assert min(seen.values()) > 20


def test_a_w_comes_at_any_later_point() -> None:
    gaps: Counter[int] = Counter()
    for seed in range(200):
        for actions in random_schedule(Random(seed)).program:
            places = {action: place for place, action in enumerate(actions)}
            for action, place in places.items():
                if action.kind == "I":
                    gaps[places[action._replace(kind="W")] - place] += 1
    assert min(gaps) == 1
    assert all(gaps[gap] for gap in range(1, 15))
