"""The published orders, and the figures that they must show (schedules.md); shapes they cannot make are refused."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Preview, preview
from contraflow.designer.format.check import check
from contraflow.designer.format.lowering import lower
from contraflow.designer.format.schedule import Action, Direction, Layout, Schedule
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
        **({"effort": 0} | knobs),
    )


def shown(name: str, *shape: int) -> Preview:
    return preview(GENERATORS[name].make(request(*shape)), unit)


def lines(schedule: Schedule) -> list[str]:
    return [" ".join(map(str, actions)) for actions in schedule.program]


def group(p: int, m: int, k: int) -> int:
    """Subsequences that seq1f1b-interleaved sends through a stage in a row; 0 where no group is whole."""
    if p % k == 0 and m * k % p == 0:
        return p
    return p * k if m % p == 0 else 0


def chimera_idles(p: int, m: int) -> int:
    return (p - 2) * (m // p + 1) if m >= p else 3 * p - 4 - m + 2 * (m % 2)


Condition = Callable[[int, int, int], bool]
"""Of devices, microbatches and subsequences. Generators that do not cut need one subsequence besides."""

CONDITIONS: dict[str, Condition] = {
    "gpipe": lambda p, m, k: True,
    "1f1b": lambda p, m, k: True,
    "interleaved-1f1b": lambda p, m, k: m % p == 0,
    "terapipe": lambda p, m, k: True,
    "seq1f1b": lambda p, m, k: True,
    "seq1f1b-interleaved": lambda p, m, k: group(p, m, k) > 0,
    "zb-h1": lambda p, m, k: True,
    "zb-h2": lambda p, m, k: m >= 2 * p - 1,
    "seq1f1b-zb": lambda p, m, k: True,
    "zb-v": lambda p, m, k: True,
    "v-half": lambda p, m, k: True,
    "v-min": lambda p, m, k: True,
    "dualpipe-v": lambda p, m, k: m >= 2 * p,
    "chimera": lambda p, m, k: m <= p or m % p == 0,
    "bitpipe": lambda p, m, k: m % p == 0,
    "dualpipe": lambda p, m, k: m >= 2 * p - 2 and m % 2 == 0,
    "bsipipe": lambda p, m, k: True,
    "bsipipe-zb": lambda p, m, k: True,
}

Figure = Callable[[int, int, int, int, int], Fraction | float]
"""Of devices, microbatches, subsequences, stages per device, and the device."""

IDLE: dict[str, Figure] = {
    "gpipe": lambda p, m, k, v, d: 3 * (p - 1),
    "1f1b": lambda p, m, k, v, d: 3 * (p - 1),
    "interleaved-1f1b": lambda p, m, k, v, d: Fraction(3 * (p - 1), v),
    "terapipe": lambda p, m, k, v, d: Fraction(3 * (p - 1), k),
    "seq1f1b": lambda p, m, k, v, d: Fraction(3 * (p - 1), k),
    "seq1f1b-interleaved": lambda p, m, k, v, d: Fraction(3 * (p - 1), v * k),
    "zb-h1": lambda p, m, k, v, d: p - 1 + max(0, p - m),
    "zb-h2": lambda p, m, k, v, d: p - 1,
    "seq1f1b-zb": lambda p, m, k, v, d: Fraction(p - 1 + max(0, p + k - 1 - m * k), k),
    "chimera": lambda p, m, k, v, d: chimera_idles(p, m),
    "bitpipe": lambda p, m, k, v, d: Fraction((p - 2) * (m // p + 1), 2),
    "dualpipe": lambda p, m, k, v, d: p // 2 - 1,
}
PEAK: dict[str, Figure] = {
    "gpipe": lambda p, m, k, v, d: m,
    "1f1b": lambda p, m, k, v, d: min(p - d, m),
    # For the interleaved orders the table gives the largest, which is the first device's.
    "interleaved-1f1b": lambda p, m, k, v, d: min(Fraction((v - 1) * p + 2 * (p - 1 - d) + 1, v), m),
    "terapipe": lambda p, m, k, v, d: m,
    "seq1f1b": lambda p, m, k, v, d: min(Fraction(p - 1 - d + k, k), m),
    "seq1f1b-interleaved": lambda p, m, k, v, d: min(
        Fraction((v - 1) * group(p, m, k) + 2 * (p - 1 - d) + k, v * k), m
    ),
    "zb-h1": lambda p, m, k, v, d: min(p, m),
    "zb-h2": lambda p, m, k, v, d: 2 * p - 1,
    "seq1f1b-zb": lambda p, m, k, v, d: min(Fraction(p + k - 1, k), m),
    "bitpipe": lambda p, m, k, v, d: Fraction(3 * p + 2, 4) + Fraction(min(d, p - 1 - d), 2),
    "bsipipe": lambda p, m, k, v, d: 2.5,
    "bsipipe-zb": lambda p, m, k, v, d: 2.5,
}
PEAK_OF_ALL: dict[str, Callable[[int, int], int]] = {
    "chimera": lambda p, m: min(p, m),
    "bitpipe": lambda p, m: p,
    "dualpipe": lambda p, m: min(p + 1, m),
}


def test_the_conditions_are_those_of_all_generators() -> None:
    assert CONDITIONS.keys() == GENERATORS.keys()


def holds_the_figures(name: str, asked: Request) -> None:
    """Valid, and with the figures of the table."""
    figures = preview(GENERATORS[name].make(asked), unit)
    shape = (asked.num_devices, asked.num_microbatches, len(asked.splits[0]), asked.stages_per_device)
    for device, (use, curve) in enumerate(zip(figures.timeline.devices, figures.curves, strict=True)):
        assert use.busy == pytest.approx(3 * asked.num_microbatches)
        if name in IDLE:
            assert use.idle == pytest.approx(float(IDLE[name](*shape, device)), abs=1e-6), (shape, device)
        if GENERATORS[name].budgeted:
            assert curve.peak <= PEAK[name](*shape, device) + 1e-9, (shape, device)
        elif name in PEAK:
            assert curve.peak == pytest.approx(float(PEAK[name](*shape, device))), (shape, device)
    if name in PEAK_OF_ALL:
        assert figures.peak == PEAK_OF_ALL[name](*shape[:2]), shape


def ways_out(message: str, name: str, asked: tuple[int, int, int, int]) -> Iterator[tuple[str, list[int]]]:
    """Every generator and shape that a refusal names; what it does not name stays as it was asked."""
    own, _, other = message.rsplit(": use ", 1)[1].partition(", or ")
    for generator, changes in (
        (name, own),
        *([tuple(f"{other} with ".split(" with ")[:2])] if other else []),
    ):
        flags = re.findall(r"--([a-z-]+) (\d+)(?: or (\d+))?", changes)
        places = ["devices", "microbatches", "subsequences", "stages-per-device"]
        for values in product(*([int(value) for value in flag[1:] if value] for flag in flags)):
            shape = list(asked)
            for (flag, *_), value in zip(flags, values, strict=True):
                shape[places.index(flag)] = value
            yield generator, shape


@pytest.mark.parametrize("devices", [2, 4, 8, 16])
@pytest.mark.parametrize("name", GENERATORS)
def test_every_shape_shows_its_figures_or_is_refused_with_a_nearest_that_is_made(
    name: str, devices: int
) -> None:
    kind = GENERATORS[name]
    refused = made = 0
    for microbatches, subsequences in product((1, 2, 4, 8, 32), (1, 2, 3, 4, 8)):
        shape = (devices, microbatches, subsequences, kind.stages_per_device)
        fits = CONDITIONS[name](devices, microbatches, subsequences) and (kind.cuts or subsequences == 1)
        if fits:
            made += 1
            holds_the_figures(name, request(*shape))
            continue
        refused += 1
        with pytest.raises(Refusal, match=f"^{name} ") as refusal:
            kind.make(request(*shape))
        ways = list(ways_out(str(refusal.value), name, shape))
        assert any(generator == name for generator, _ in ways)
        for generator, nearest in ways:
            assert nearest != list(shape) or generator != name
            GENERATORS[generator].make(request(*nearest))
    assert made
    assert refused or kind.cuts


@pytest.mark.parametrize("stages_per_device", [1, 2, 3, 4])
@pytest.mark.parametrize(("devices", "rounds"), list(product((1, 2, 3, 8), (1, 2, 4))))
def test_interleaved_orders_show_their_figures(devices: int, rounds: int, stages_per_device: int) -> None:
    holds_the_figures("interleaved-1f1b", request(devices, devices * rounds, 1, stages_per_device))
    for subsequences in (1, 2, 3, 4):
        shape = (devices, devices * rounds, subsequences, stages_per_device)
        holds_the_figures("seq1f1b-interleaved", request(*shape))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "terapipe", "seq1f1b", "zb-h1", "zb-h2", "seq1f1b-zb"])
def test_orders_in_one_direction_show_their_figures_on_any_number_of_devices(name: str) -> None:
    for devices, microbatches, subsequences in product((1, 3, 5, 7), (1, 3, 7, 13), (1, 5)):
        if CONDITIONS[name](devices, microbatches, 1) and (GENERATORS[name].cuts or subsequences == 1):
            holds_the_figures(name, request(devices, microbatches, subsequences))


@pytest.mark.parametrize("name", ["chimera", "bitpipe", "dualpipe"])
def test_orders_in_two_directions_show_their_figures_on_any_even_number_of_devices(name: str) -> None:
    for devices in (2, 4, 6, 10):
        for microbatches in (*range(1, devices), *(devices * units for units in (1, 2, 3, 5))):
            if CONDITIONS[name](devices, microbatches, 1):
                holds_the_figures(name, request(devices, microbatches, 1, GENERATORS[name].stages_per_device))


def test_zb_h2_idles_only_before_and_after_each_devices_actions() -> None:
    for devices in (1, 2, 4, 8):
        for use in shown("zb-h2", devices, 2 * devices - 1).timeline.devices:
            assert use.last - use.first == use.busy


def by_groups(p: int, m: int, k: int, v: int, size: int) -> Schedule:
    """Interleaved by its definition, in groups of any size: the table's sums, written out action by action."""
    placement = tuple(stage % p for stage in range(p * v))
    split = (8,) * k
    layout = Layout(p, (8 * k,) * m, (split,) * m, (Direction("down", placement, tuple(range(m))),))
    there = [(n, q) for n in range(m) for q in range(k)]
    back = [(n, q) for n in range(m) for q in reversed(range(k))]
    program = []
    for device in range(p):
        order = [(start, chunk) for start in range(0, m * k, size) for chunk in range(v)]
        forwards = [
            layout.action(chunk * p + device, "F", *cell)
            for start, chunk in order
            for cell in there[start : start + size]
        ]
        backwards = [
            layout.action((v - 1 - chunk) * p + device, "B", *cell)
            for start, chunk in order
            for cell in back[start : start + size]
        ]
        warm_up = min((v - 1) * size + 2 * (p - 1 - device) + k - 1, len(forwards))
        actions = forwards[:warm_up]
        while backwards:
            actions += forwards[warm_up : warm_up + 1]
            actions.append(backwards.pop(0))
            warm_up += 1
        program.append(tuple(actions))
    return Schedule("by groups", layout, tuple(program))


def test_seq1f1b_interleaved_takes_the_groups_that_hold_less() -> None:
    small, large = by_groups(4, 16, 4, 2, size=4), by_groups(4, 16, 4, 2, size=16)
    assert [preview(schedule, unit).peak for schedule in (small, large)] == [1.75, 3.25]
    assert GENERATORS["seq1f1b-interleaved"].make(request(4, 16, 4, 2)).program == small.program


@pytest.mark.parametrize(("devices", "subsequences"), [(4, 3), (2, 4)])
def test_seq1f1b_interleaved_leaves_groups_that_would_cut_a_microbatch(
    devices: int, subsequences: int
) -> None:
    shape = (devices, devices, subsequences, 2)
    assert {fault.rule for fault in check(by_groups(*shape, size=devices))} == {"cycle"}
    whole = by_groups(*shape, size=devices * subsequences)
    assert GENERATORS["seq1f1b-interleaved"].make(request(*shape)).program == whole.program


def fused_makespan(schedule: Schedule) -> int:
    """On the unit clock, each F and the B of the other direction right behind it starting and ending together."""
    price = {"F": 1, "B": 2, "I": 1, "W": 1}
    blocks: list[list[list[Action]]] = []
    for program in schedule.program:
        blocks.append([])
        for action in program:
            before = blocks[-1][-1][-1] if blocks[-1] else action
            assert action.microbatch is not None
            assert before.microbatch is not None
            pair = (before.kind, action.kind) == ("F", "B")
            if pair and (action.microbatch - before.microbatch) % 2:
                blocks[-1][-1].append(action)
            else:
                blocks[-1].append([action])
    end: dict[tuple[int, str, int | None], int] = defaultdict(int)
    last = schedule.layout.num_stages - 1
    # Long enough for the latest to settle: a pass over the devices carries a message on by one at least.
    for _ in range(4 * schedule.num_actions):
        before_pass = dict(end)
        for device in blocks:
            time = 0
            for block in device:
                waits = [time]
                for stage, kind, m, _ in block:
                    waits.append(end[stage - 1, "F", m] if kind == "F" and stage else 0)
                    waits.append(end[stage + 1, "B", m] if kind in "BI" and stage < last else 0)
                time = max(waits) + sum(price[action.kind] for action in block)
                for stage, kind, m, _ in block:
                    end[stage, "B" if kind == "I" else kind, m] = time
        if dict(end) == before_pass:
            break
    return max(end.values())


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_dualpipe_shows_the_published_bubble_where_pairs_are_fused(devices: int) -> None:
    for microbatches in (2 * devices - 2, 2 * devices, 3 * devices):
        schedule = GENERATORS["dualpipe"].make(request(devices, microbatches))
        # (P/2 - 1)(F&B + B - 3W) with F&B = F + B; written F then B, half of it is left.
        published = (devices // 2 - 1) * (3 + 2 - 3)
        assert fused_makespan(schedule) - 3 * microbatches == published
        assert preview(schedule, unit).timeline.devices[0].idle == published / 2


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


@pytest.mark.parametrize(
    ("name", "shape", "device", "program"),
    [
        ("terapipe", (2, 2, 2), 1, "1F0.0 1F0.1 1F1.0 1F1.1 1B0.1 1B0.0 1B1.1 1B1.0"),
        (
            "seq1f1b-interleaved",
            (2, 1, 2, 2),
            0,
            "0F0.0 0F0.1 2F0.0 2F0.1 2B0.1 2B0.0 0B0.1 0B0.0",
        ),
        ("zb-h1", (2, 3), 0, "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2"),
        ("zb-h1", (2, 3), 1, "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"),
        ("zb-h2", (2, 3), 0, "0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2"),
        ("zb-h2", (2, 3), 1, "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"),
        ("seq1f1b-zb", (2, 1, 2), 1, "1F0.0 1F0.1 1I0.1 1I0.0 1W0.1 1W0.0"),
        ("chimera", (4, 4), 0, "0F0 0F2 3F1 3B1 3F3 3B3 0B0 0B2"),
        ("chimera", (4, 4), 1, "1F0 2F1 1F2 2F3 2B1 1B0 2B3 1B2"),
        ("bitpipe", (2, 2, 1, 2), 0, "0F0 1F1 2F1 3F0 3B0 2B1 1B1 0B0"),
        (
            "bitpipe",
            (4, 4, 1, 2),
            0,
            "0F0 0F2 3F1 4F1 3F3 4F3 7F0 7B0 7F2 7B2 4B1 3B1 4B3 3B3 0B0 0B2",
        ),
        (
            "dualpipe",
            (4, 8),
            0,
            "0F0 0F2 0F4 3F1 3I1 3W1 3F3 0F6 3B3 3F5 0B0 3B5 3F7 0B2 3B7 0I4 0W4 0I6 0W6",
        ),
        (
            "dualpipe",
            (4, 8),
            1,
            "1F0 2F1 1F2 2F3 1F4 2B1 2F5 1B0 1F6 2B3 2F7 1B2 2B5 1B4 2I7 1I6 2W7 1W6",
        ),
    ],
)  # fmt: skip
def test_a_device_by_hand(name: str, shape: tuple[int, ...], device: int, program: str) -> None:
    assert lines(GENERATORS[name].make(request(*shape)))[device] == program


def test_makespans_by_hand() -> None:
    assert shown("bitpipe", 4, 4, 1, 2).makespan == 14
    assert [shown("bitpipe", p, p, 1, 2).makespan - 3 * p for p in (4, 6, 8)] == [2, 4, 6]
    assert shown("chimera", 4, 4).makespan == 16
    assert shown("seq1f1b-zb", 4, 4, 4).makespan == 12.75
    assert shown("seq1f1b-zb", 8, 4, 4).makespan == 13.75
    assert shown("seq1f1b-zb", 8, 16, 8).makespan == 48.875


@pytest.mark.parametrize(
    ("whole", "cut", "stages_per_device"),
    [
        ("gpipe", "terapipe", 1),
        ("1f1b", "seq1f1b", 1),
        ("zb-h1", "seq1f1b-zb", 1),
        ("interleaved-1f1b", "seq1f1b-interleaved", 3),
    ],
)
def test_a_generator_without_subsequences_is_its_sibling_with_one(
    whole: str, cut: str, stages_per_device: int
) -> None:
    for devices, microbatches in ((1, 1), (3, 3), (4, 8)):
        asked = request(devices, microbatches, 1, stages_per_device)
        assert GENERATORS[whole].make(asked).program == GENERATORS[cut].make(asked).program


def test_a_shorter_last_sequence_keeps_the_order() -> None:
    for kind in GENERATORS.values():
        if kind.budgeted:
            continue
        asked = request(4, 8, 2 if kind.cuts else 1, kind.stages_per_device)
        *others, last = asked.splits
        short = Request(
            4, (*asked.sequences[:-1], sum(last) - 1), (*others, (*last[:-1], 7)), kind.stages_per_device
        )
        assert kind.make(short).program == kind.make(asked).program


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
    "gpipe cuts nothing": (
        "gpipe", (4, 4, 2), "use --subsequences 1, or terapipe", [("gpipe", (4, 4)), ("terapipe", (4, 4, 2))],
    ),
    "1f1b cuts nothing": (
        "1f1b", (4, 4, 3), "use --subsequences 1, or seq1f1b", [("1f1b", (4, 4)), ("seq1f1b", (4, 4, 3))],
    ),
    "zb-h1 cuts nothing": (
        "zb-h1", (4, 4, 3), "use --subsequences 1, or seq1f1b-zb", [("zb-h1", (4, 4)), ("seq1f1b-zb", (4, 4, 3))],
    ),
    "interleaved cuts nothing": (
        "interleaved-1f1b", (4, 4, 2, 2), "use --subsequences 1, or seq1f1b-interleaved",
        [("interleaved-1f1b", (4, 4, 1, 2)), ("seq1f1b-interleaved", (4, 4, 2, 2))],
    ),
    "chimera cuts nothing": (
        "chimera", (4, 4, 2), "use --subsequences 1, or bsipipe with --stages-per-device 2",
        [("chimera", (4, 4)), ("bsipipe", (4, 4, 2, 2))],
    ),
    "bitpipe cuts nothing": (
        "bitpipe", (4, 4, 2, 2), "use --subsequences 1, or bsipipe",
        [("bitpipe", (4, 4, 1, 2)), ("bsipipe", (4, 4, 2, 2))],
    ),
    "dualpipe cuts nothing": (
        "dualpipe", (4, 8, 2), "use --subsequences 1, or bsipipe with --stages-per-device 2",
        [("dualpipe", (4, 8)), ("bsipipe", (4, 8, 2, 2))],
    ),
    "gpipe has one stage on a device": (
        "gpipe", (4, 4, 1, 2), "use --stages-per-device 1, or interleaved-1f1b",
        [("gpipe", (4, 4)), ("interleaved-1f1b", (4, 4, 1, 2))],
    ),
    "seq1f1b has one stage on a device": (
        "seq1f1b", (4, 4, 2, 2), "use --stages-per-device 1, or seq1f1b-interleaved",
        [("seq1f1b", (4, 4, 2)), ("seq1f1b-interleaved", (4, 4, 2, 2))],
    ),
    "seq1f1b has one stage on a device, and no interleaved order goes": (
        "seq1f1b", (4, 3, 3, 2), "not 2: use --stages-per-device 1", [("seq1f1b", (4, 3, 3))],
    ),
    "1f1b breaks two rules": (
        "1f1b", (4, 3, 3, 2), "use --stages-per-device 1 --subsequences 1, or seq1f1b with --stages-per-device 1",
        [("1f1b", (4, 3)), ("seq1f1b", (4, 3, 3))],
    ),
    "interleaved goes in groups": (
        "interleaved-1f1b", (4, 6, 1, 2), "use --microbatches 4 or 8, or 1f1b with --stages-per-device 1",
        [("interleaved-1f1b", (4, 4, 1, 2)), ("interleaved-1f1b", (4, 8, 1, 2)), ("1f1b", (4, 6))],
    ),
    "interleaved goes in groups of at least one": (
        "interleaved-1f1b", (4, 3, 1, 2), "use --microbatches 4, or 1f1b", [("interleaved-1f1b", (4, 4, 1, 2))],
    ),
    "seq1f1b-interleaved goes in groups of subsequences": (
        "seq1f1b-interleaved", (8, 3, 4, 2), "use --microbatches 2 or 4, or seq1f1b with --stages-per-device 1",
        [("seq1f1b-interleaved", (8, 2, 4, 2)), ("seq1f1b-interleaved", (8, 4, 4, 2)), ("seq1f1b", (8, 3, 4))],
    ),
    "seq1f1b-interleaved goes in groups of whole microbatches": (
        "seq1f1b-interleaved", (4, 6, 3, 2), "use --microbatches 4 or 8, or seq1f1b with --stages-per-device 1",
        [("seq1f1b-interleaved", (4, 4, 3, 2)), ("seq1f1b-interleaved", (4, 8, 3, 2)), ("seq1f1b", (4, 6, 3))],
    ),
    "zb-h2 needs microbatches for its warm-up": (
        "zb-h2", (4, 6), "at least 7 microbatches, not 6: use --microbatches 7, or zb-h1",
        [("zb-h2", (4, 7)), ("zb-h1", (4, 6))],
    ),
    "chimera goes in pairs": (
        "chimera", (5, 5), "cannot use 5, and takes microbatches in groups of 4, of which 5 is no multiple: "
        "use --devices 4 --microbatches 4, or 1f1b",
        [("chimera", (4, 4)), ("1f1b", (5, 5))],
    ),
    "chimera goes in at least a pair": (
        "chimera", (1, 2), "use --devices 2, or 1f1b", [("chimera", (2, 2)), ("1f1b", (1, 2))],
    ),
    "chimera goes in units": (
        "chimera", (4, 6), "use --microbatches 4 or 8, or bsipipe with --stages-per-device 2",
        [("chimera", (4, 4)), ("chimera", (4, 8)), ("bsipipe", (4, 6, 1, 2))],
    ),
    "bitpipe goes in units": (
        "bitpipe", (4, 2, 1, 2), "use --microbatches 4, or bsipipe",
        [("bitpipe", (4, 4, 1, 2)), ("bsipipe", (4, 2, 1, 2))],
    ),
    "bitpipe turns once": (
        "bitpipe", (4, 4, 1, 1), "use --stages-per-device 2, or bsipipe", [("bitpipe", (4, 4, 1, 2))],
    ),
    "dualpipe needs microbatches for its phases": (
        "dualpipe", (4, 5), "at least 6 microbatches, not 5: use --microbatches 6, or bsipipe with --stages",
        [("dualpipe", (4, 6)), ("bsipipe", (4, 5, 1, 2))],
    ),
    "dualpipe sends as many each way": (
        "dualpipe", (4, 9), "9 are odd: use --microbatches 8 or 10, or bsipipe with --stages-per-device 2",
        [("dualpipe", (4, 8)), ("dualpipe", (4, 10)), ("bsipipe", (4, 9, 1, 2))],
    ),
    "dualpipe goes in pairs": (
        "dualpipe", (3, 8), "use --devices 2, or zb-h1", [("dualpipe", (2, 8)), ("zb-h1", (3, 8))],
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


def test_microbatches_cut_differently_are_refused_by_interleaved_orders() -> None:
    splits = ((8, 8), (16,), (8, 8), (16,))
    with pytest.raises(Refusal, match="as the others: use seq1f1b with --stages-per-device 1"):
        GENERATORS["seq1f1b-interleaved"].make(Request(4, (16,) * 4, splits, 2))
    assert check(GENERATORS["seq1f1b"].make(Request(4, (16,) * 4, splits, 1))) == []


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


def test_every_generator_is_registered_under_its_name_and_told_apart() -> None:
    for name, kind in GENERATORS.items():
        assert kind.name == name
    assert len({kind.summary for kind in GENERATORS.values()}) == len(GENERATORS)
    assert [kind.directions for kind in GENERATORS.values()] == sorted(
        k.directions for k in GENERATORS.values()
    )


@pytest.mark.parametrize("devices", [2, 4, 6, 16])
def test_the_fewest_microbatches_are_made_and_one_less_is_not(devices: int) -> None:
    for name, kind in GENERATORS.items():
        fewest = kind.fewest_microbatches(devices)
        if fewest > 1:
            kind.make(request(devices, fewest, 1, kind.stages_per_device))
            with pytest.raises(Refusal, match=f"^{name} .*--microbatches {fewest}"):
                kind.make(request(devices, fewest - 1, 1, kind.stages_per_device))
