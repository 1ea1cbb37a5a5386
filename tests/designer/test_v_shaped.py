"""One V of whole microbatches: zb-v, v-half, v-min and dualpipe-v show their published figures for every shape."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Preview, preview
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.generators import GENERATORS, Refusal, Request


def request(devices: int, microbatches: int, subsequences: int = 1, stages_per_device: int = 2) -> Request:
    split = (8,) * subsequences
    return Request(devices, (sum(split),) * microbatches, (split,) * microbatches, stages_per_device)


def made(name: str, *shape: int) -> Schedule:
    return GENERATORS[name].make(request(*shape))


def shown(name: str, *shape: int) -> Preview:
    return preview(made(name, *shape), unit)


def lines(schedule: Schedule) -> list[str]:
    return [" ".join(map(str, actions)) for actions in schedule.program]


def v_half_idles(p: int, m: int) -> float:
    # With two devices the block's turns are longer than its legs.
    return 1 if p == 2 and m > 1 else 2 * p - 1.5 - min(m, (p + 2) // 2)


Figure = Callable[[int, int], float]
IDLE: dict[str, Figure] = {
    "zb-v": lambda p, m: max((p - 1) / 2, 2 * p - 1 - m),
    "v-half": v_half_idles,
    "v-min": lambda p, m: 2 * (p - 1) - 0.5,
    "dualpipe-v": lambda p, m: (p - 1) / 2,
}
PEAK: dict[str, Figure] = {
    "zb-v": lambda p, m: min(p, m),
    "v-half": lambda p, m: min((p + 2) // 2, m),
    "v-min": lambda p, m: min((p + 4) // 3, m),
    "dualpipe-v": lambda p, m: p + 0.5,
}
SHAPES = [
    (name, p, m)
    for name in IDLE
    for p in (2, 3, 4, 8, 16)
    for m in sorted({1, 2, 3, p - 1, p, 2 * p - 2, 2 * p - 1, 2 * p, 2 * p + 1, 32})
    if m >= 2 * p or name != "dualpipe-v"
] + [(name, p, 2 * p) for name in IDLE for p in (5, 6, 7, 9, 10, 11, 12)]


@pytest.mark.parametrize(("name", "devices", "microbatches"), SHAPES)
def test_idle_time_and_peak_are_the_published_ones(name: str, devices: int, microbatches: int) -> None:
    figures = shown(name, devices, microbatches)
    for use in figures.timeline.devices:
        assert use.busy == 3 * microbatches
        assert use.idle == IDLE[name](devices, microbatches)
    assert figures.peak == PEAK[name](devices, microbatches)


@pytest.mark.parametrize("devices", [2, 3, 4, 5, 8, 16])
def test_v_half_and_v_min_take_about_that_part_of_1f1b(devices: int) -> None:
    one = shown("1f1b", devices, 32, 1, 1)
    idle, peak = one.timeline.devices[0].idle, one.peak
    for name, of_idle, of_peak in (("v-half", 1 / 2, 1 / 2), ("v-min", 2 / 3, 1 / 3)):
        figures = shown(name, devices, 32)
        assert of_idle * idle - 1 <= figures.timeline.devices[0].idle <= of_idle * idle
        assert of_peak * peak < figures.peak <= of_peak * peak + 4 / 3


@pytest.mark.parametrize("devices", [2, 3, 4, 8, 16])
def test_zb_v_idles_only_before_and_after_each_devices_actions(devices: int) -> None:
    for microbatches in (2 * devices - 1, 2 * devices, 32):
        figures = shown("zb-v", devices, microbatches)
        assert all(use.last - use.first == use.busy for use in figures.timeline.devices)


@pytest.mark.parametrize(("name", "peak"), [("zb-v", 8), ("v-half", 5), ("dualpipe-v", 8.5)])
def test_every_device_holds_the_same(name: str, peak: float) -> None:
    assert {curve.peak for curve in shown(name, 8, 16).curves} == {peak}


@pytest.mark.parametrize("name", IDLE)
def test_one_device_idles_at_no_time(name: str) -> None:
    assert all(shown(name, 1, microbatches).bubble == 0 for microbatches in (2, 5))


BY_HAND = {
    ("zb-v", 2, 3): [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2",
        "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2",
    ],
    ("dualpipe-v", 2, 4): [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3",
        "1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3",
    ],
    ("v-half", 3, 2): [
        "0F0 0F1 5F0 5I0 5W0 5F1 5I1 0I0 5W1 0W0 0I1 0W1",
        "1F0 4F0 1F1 4I0 4F1 4W0 1I0 4I1 1W0 4W1 1I1 1W1",
        "2F0 3F0 2F1 3F1 3I0 2I0 3W0 2W0 3I1 2I1 3W1 2W1",
    ],
    ("v-min", 2, 2): [
        "0F0 3F0 3I0 0F1 3W0 0I0 0W0 3F1 3I1 3W1 0I1 0W1",
        "1F0 2F0 2I0 1I0 1F1 2F1 2W0 1W0 2I1 1I1 2W1 1W1",
    ],
}


@pytest.mark.parametrize("shape", BY_HAND, ids=lambda shape: "-".join(map(str, shape)))
def test_orders_by_hand(shape: tuple[str, int, int]) -> None:
    assert lines(made(*shape)) == BY_HAND[shape]


def test_dualpipe_v_is_written_f_then_b() -> None:
    """In its main phase: a forward of one leg, then a backward of the other."""
    for device, actions in enumerate(made("dualpipe-v", 4, 12).program):
        main = " ".join(f"{a.kind}{int(a.stage >= 4)}" for a in actions)
        assert main.count("F0 B1 F1 B0") == 12 - 2 * 4 + device + 1


Nearest = list[tuple[str, tuple[int, ...]]]
REFUSED: dict[str, tuple[str, tuple[int, ...], str, Nearest]] = {
    **{
        f"{name} cuts nothing": (
            name, (4, 8, 3), "use --subsequences 1, or seq1f1b-zb with --stages-per-device 1",
            [(name, (4, 8)), ("seq1f1b-zb", (4, 8, 3, 1))],
        )
        for name in IDLE
    },
    **{
        f"{name} turns once": (
            name, (4, 8, 1, 1), "use --stages-per-device 2, or zb-h1", [(name, (4, 8)), ("zb-h1", (4, 8, 1, 1))],
        )
        for name in ("zb-v", "v-half", "v-min")
    },
    "dualpipe-v turns once": (
        "dualpipe-v", (4, 8, 1, 3), "use --stages-per-device 2, or zb-v with --stages-per-device 2",
        [("dualpipe-v", (4, 8)), ("zb-v", (4, 8))],
    ),
    **{
        f"dualpipe-v fills {p} devices with more than {m}": (
            "dualpipe-v", (p, m), f"with at least {2 * p} microbatches, not {m}: use --microbatches {2 * p}, or zb-v",
            [("dualpipe-v", (p, 2 * p)), ("zb-v", (p, m))],
        )
        for p, m in ((1, 1), (2, 1), (2, 3), (3, 5), (8, 15), (16, 1))
    },
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_nearest_shape_and_that_one_is_made(case: str) -> None:
    name, asked, hint, nearest = REFUSED[case]
    with pytest.raises(Refusal, match=re.escape(hint)):
        made(name, *asked)
    for other, shape in nearest:
        shown(other, *shape)
