"""The published orders, and the figures that they must show (schedules.md); shapes they cannot make are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Preview, preview
from contraflow.designer.format.check import check
from contraflow.designer.format.lowering import lower
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.generators import GENERATORS, Refusal, Request

Knobs = dict[str, Any]


def request(
    devices: int, microbatches: int, subsequences: int = 1, stages_per_device: int = 1, **knobs: Any
) -> Request:
    split = (8,) * subsequences
    return Request(
        devices,
        (sum(split),) * microbatches,
        (split,) * microbatches,
        stages_per_device,
        **knobs,
    )


def shown(name: str, *shape: int) -> Preview:
    return preview(GENERATORS[name].make(request(*shape)), unit)


def lines(schedule: Schedule) -> list[str]:
    return [" ".join(map(str, actions)) for actions in schedule.program]


Figure = Callable[[int, int, int, int, int], Fraction | int]
"""Of devices, microbatches, subsequences, stages per device, and the device."""

IDLE: dict[str, Figure] = {
    "gpipe": lambda p, m, k, v, d: 3 * (p - 1),
    "1f1b": lambda p, m, k, v, d: 3 * (p - 1),
    "seq1f1b": lambda p, m, k, v, d: Fraction(3 * (p - 1), k),
    "interleaved-1f1b": lambda p, m, k, v, d: Fraction(3 * (p - 1), v),
}
PEAK: dict[str, Figure] = {
    "gpipe": lambda p, m, k, v, d: m,
    "1f1b": lambda p, m, k, v, d: min(p - d, m),
    "seq1f1b": lambda p, m, k, v, d: min(Fraction(p - 1 - d + k, k), m),
    # The table gives the largest, which is the first device's.
    "interleaved-1f1b": lambda p, m, k, v, d: min(Fraction((v - 1) * p + 2 * (p - 1 - d) + 1, v), m),
}

SHAPES = [
    *(("gpipe", p, m, 1, 1) for p in (1, 2, 3, 8, 16) for m in (1, 2, 7, 32)),
    *(("1f1b", p, m, 1, 1) for p in (1, 2, 3, 8, 16) for m in (1, 2, 7, 15, 16, 32)),
    *(("seq1f1b", p, m, k, 1) for p in (1, 2, 5, 16) for m in (1, 2, 3, 13) for k in (1, 2, 3, 8)),
    *(("seq1f1b", 8, 32, k, 1) for k in (4, 5, 7)),
    *(
        ("interleaved-1f1b", p, p * rounds, 1, v)
        for p in (1, 2, 3, 8)
        for rounds in (1, 2, 4)
        for v in (1, 2, 3, 4)
    ),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_idle_time_and_peak_are_those_of_the_table(shape: tuple[str, int, int, int, int]) -> None:
    name, devices, microbatches, subsequences, stages_per_device = shape
    figures = shown(*shape)
    for device, (use, curve) in enumerate(zip(figures.timeline.devices, figures.curves, strict=True)):
        numbers = (devices, microbatches, subsequences, stages_per_device, device)
        assert use.busy == pytest.approx(3 * microbatches)
        assert use.idle == pytest.approx(float(IDLE[name](*numbers)), abs=1e-6)
        assert curve.peak == pytest.approx(float(PEAK[name](*numbers)))


def test_seq1f1b_by_hand() -> None:
    schedule = GENERATORS["seq1f1b"].make(request(4, 4, 2))
    assert lines(schedule)[3] == (
        "3F0.0 3F0.1 3B0.1 3F1.0 3B0.0 3F1.1 3B1.1 3F2.0 3B1.0 3F2.1 3B2.1 3F3.0 3B2.0 3F3.1 3B3.1 3B3.0"
    )
    warm_ups = [
        next(i for i, action in enumerate(actions) if action.kind == "B") - 1 for actions in schedule.program
    ]
    assert warm_ups == [4, 3, 2, 1]
    assert preview(schedule, unit).makespan == 16.5
    assert shown("1f1b", 4, 4).makespan == 21


def test_gpipe_1f1b_and_interleaved_by_hand() -> None:
    assert lines(GENERATORS["gpipe"].make(request(2, 2))) == ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"]
    assert lines(GENERATORS["1f1b"].make(request(2, 3))) == [
        "0F0 0F1 0B0 0F2 0B1 0B2",
        "1F0 1B0 1F1 1B1 1F2 1B2",
    ]
    assert lines(GENERATORS["interleaved-1f1b"].make(request(2, 2, 1, 2))) == [
        "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1",
    ]


def test_a_generator_without_subsequences_is_its_sibling_with_one() -> None:
    for devices, microbatches in ((1, 1), (3, 2), (4, 9)):
        one = GENERATORS["1f1b"].make(request(devices, microbatches))
        assert GENERATORS["seq1f1b"].make(request(devices, microbatches)).program == one.program


lengths = st.lists(st.integers(1, 40), min_size=1, max_size=5).map(tuple)


# Most shapes that are drawn some generator refuses; that is no fault of the drawing.
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(
    name=st.sampled_from(sorted(GENERATORS)),
    devices=st.integers(1, 6),
    stages_per_device=st.integers(1, 3),
    splits=st.lists(lengths, min_size=1, max_size=6)
    | st.tuples(lengths, st.integers(1, 6)).map(lambda d: [d[0]] * d[1]),
    unit_microbatches=st.integers(1, 3),
    budget=st.none() | st.floats(2, 8),
)
def test_what_a_generator_does_not_refuse_is_valid(
    name: str,
    devices: int,
    stages_per_device: int,
    splits: list[tuple[int, ...]],
    unit_microbatches: int,
    budget: float | None,
) -> None:
    asked = Request(
        devices, tuple(map(sum, splits)), tuple(splits), stages_per_device, None, unit_microbatches, budget
    )
    try:
        schedule = GENERATORS[name].make(asked)
    except Refusal:
        reject()
    assert check(schedule) == []
    lower(schedule)
    assert schedule.layout.splits == tuple(splits)
    assert schedule.layout.num_stages == devices * stages_per_device


Shape = tuple[int, ...]
REFUSED: dict[str, tuple[str, Shape, str, list[tuple[str, Shape]]]] = {
    "gpipe cuts nothing": ("gpipe", (4, 4, 2), "use 1, or seq1f1b", [("gpipe", (4, 4)), ("seq1f1b", (4, 4, 2))]),
    "1f1b cuts nothing": ("1f1b", (4, 4, 3), "use 1, or seq1f1b", [("1f1b", (4, 4)), ("seq1f1b", (4, 4, 3))]),
    "interleaved cuts nothing": (
        "interleaved-1f1b", (4, 4, 2, 2), "use 1, or seq1f1b",
        [("interleaved-1f1b", (4, 4, 1, 2)), ("seq1f1b", (4, 4, 2))],
    ),
    "gpipe has one stage on a device": (
        "gpipe", (4, 4, 1, 2), "leave --stages-per-device at 1, or use interleaved-1f1b",
        [("gpipe", (4, 4)), ("interleaved-1f1b", (4, 4, 1, 2))],
    ),
    "1f1b has one stage on a device": (
        "1f1b", (4, 4, 1, 3), "leave --stages-per-device at 1, or use interleaved-1f1b",
        [("1f1b", (4, 4)), ("interleaved-1f1b", (4, 4, 1, 3))],
    ),
    "seq1f1b has one stage on a device": (
        "seq1f1b", (4, 4, 2, 2), "leave --stages-per-device at 1, or use interleaved-1f1b with --subsequences 1",
        [("seq1f1b", (4, 4, 2)), ("interleaved-1f1b", (4, 4, 1, 2))],
    ),
    "interleaved goes in groups": (
        "interleaved-1f1b", (4, 6, 1, 2), "use 4 or 8 microbatches, or 1f1b",
        [("interleaved-1f1b", (4, 4, 1, 2)), ("interleaved-1f1b", (4, 8, 1, 2)), ("1f1b", (4, 6))],
    ),
    "interleaved goes in groups of at least one": (
        "interleaved-1f1b", (4, 3, 1, 2), "use 4 microbatches, or 1f1b", [("interleaved-1f1b", (4, 4, 1, 2))],
    ),
    "bsipipe goes in pairs": (
        "bsipipe", (5, 4, 2, 2), "use 4 or 6, or seq1f1b",
        [("bsipipe", (4, 4, 2, 2)), ("bsipipe", (6, 4, 2, 2)), ("seq1f1b", (5, 4, 2))],
    ),
    "bsipipe goes in at least a pair": (
        "bsipipe", (1, 4, 2, 2), "use 2, or seq1f1b", [("bsipipe", (2, 4, 2, 2)), ("seq1f1b", (1, 4, 2))],
    ),
    "bsipipe turns once": ("bsipipe", (4, 4, 2, 1), "use --stages-per-device 2", [("bsipipe", (4, 4, 2, 2))]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_nearest_shape_and_that_one_is_made(case: str) -> None:
    name, asked, hint, nearest = REFUSED[case]
    with pytest.raises(Refusal, match=re.escape(hint)):
        GENERATORS[name].make(request(*asked))
    for other, shape in nearest:
        assert check(GENERATORS[other].make(request(*shape))) == []


@pytest.mark.parametrize(
    ("asked", "hint", "nearest"),
    [
        ({"unit_microbatches": 2, "budget": 3.5}, "the least is 4", {"unit_microbatches": 2, "budget": 4}),
        ({"budget": float("nan")}, "the least is 2", {"budget": 2}),
        ({"unit_microbatches": 0}, "at least 1 microbatch in each direction", {"unit_microbatches": 1}),
        ({"layers": (1,) * 4}, "lists 4 counts for 8 stages", {"layers": (1,) * 8}),
    ],
)
def test_knobs_that_bsipipe_cannot_use_are_refused(asked: Knobs, hint: str, nearest: Knobs) -> None:
    with pytest.raises(Refusal, match=hint):
        GENERATORS["bsipipe"].make(request(4, 4, 2, 2, **asked))
    assert check(GENERATORS["bsipipe"].make(request(4, 4, 2, 2, **nearest))) == []


def test_every_generator_is_registered_under_its_name() -> None:
    assert {name: generator.name for name, generator in GENERATORS.items()} == {
        name: name for name in GENERATORS
    }
    assert set(GENERATORS) >= {"gpipe", "1f1b", "interleaved-1f1b", "seq1f1b", "bsipipe"}
