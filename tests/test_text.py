"""A preview as text: what fills a cell is what the timeline says, at any width, in colour or without."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color
from rich.console import Console

from contraflow.designer import costs
from contraflow.designer.design import Design, Preview, make, preview
from contraflow.designer.export.axis import Axis, figure, ruler, whole
from contraflow.designer.export.cells import Paint, row, spans
from contraflow.designer.export.chart import IDLE, Look, chart
from contraflow.designer.export.glyphs import PLAIN, PLAIN_ASCII, SOLID
from contraflow.designer.export.palette import GROUNDS, grey, style
from contraflow.designer.export.strips import highest
from contraflow.designer.export.text import show
from contraflow.designer.format.graph import NONE
from contraflow.designer.generators import GENERATORS

GENERATOR_NAMES = sorted(GENERATORS)


@cache
def example(generator: str = "seq1f1b", costs_name: str = "unit", microbatches: int | None = None) -> Preview:
    design = Design(generator=generator, devices=4, microbatches=microbatches)
    return preview(make(design), costs.named(costs_name))


def printed(shown: Preview, width: int, *, color: bool = False, ascii: bool = False) -> str:
    console = Console(width=width, force_terminal=True, color_system="truecolor", legacy_windows=False)
    with console.capture() as capture:
        console.print(show(shown, width, color=color, ascii=ascii))
    return capture.get()


def test_shows_the_figures_and_their_assumptions() -> None:
    text = printed(example(), 100)
    assert "makespan 14.25 · bubble 15.8 % · peak 1.75 microbatches on device 0" in text
    assert "Unit clock: F of a whole microbatch" in text


def test_shows_each_devices_own_peak() -> None:
    lines = printed(example(), 100).splitlines()
    title = next(number for number, line in enumerate(lines) if line.startswith("activation"))
    assert [line.split()[-1] for line in lines[title + 1 : title + 5]] == ["1.75", "1.5", "1.25", "1"]


def test_a_small_chart_reads_letter_by_letter() -> None:
    # 1F1B on two devices by hand: F = 1, B = 2, two columns to a unit.
    shown = preview(make(Design(generator="1f1b", devices=2, microbatches=2)), costs.named("unit"))
    axis = Axis(0.0, 0.5, 18)
    rows = ["".join(run.text for run in row(chart(shown), device, axis, PLAIN_ASCII)) for device in range(2)]
    assert rows == [
        "F0F1    |B0=  |B1=",
        "  F0|B0=F1|B1=    ",
    ]


@pytest.mark.parametrize("generator", GENERATOR_NAMES)
@pytest.mark.parametrize("width", [60, 80, 200, 400])
@pytest.mark.parametrize("color", [True, False])
def test_fits_the_width_with_a_row_per_device(generator: str, width: int, color: bool) -> None:
    text = printed(example(generator), width, color=color)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= width
    # Each device has a line in the chart and one in the memory strips.
    assert [line.split()[0] for line in lines if re.match(r" \d ", line)] == [*"0123"] * 2


@pytest.mark.parametrize("generator", GENERATOR_NAMES)
def test_without_color_there_are_no_escapes(generator: str) -> None:
    assert "\x1b" in printed(example(generator), 80, color=True)
    assert "\x1b" not in printed(example(generator), 80)


@pytest.mark.parametrize("generator", GENERATOR_NAMES)
@pytest.mark.parametrize("costs_name", ["unit", "llama3-8b-h100"])
@pytest.mark.parametrize("color", [True, False])
def test_ascii_is_ascii(generator: str, costs_name: str, color: bool) -> None:
    assert printed(example(generator, costs_name), 80, color=color, ascii=True).isascii()


windows = st.builds(
    lambda start, length, width: Axis(start, length / width, width),
    st.floats(0, 20),
    st.floats(0.01, 30),
    st.integers(1, 300),
)
shown_devices = st.tuples(
    st.sampled_from(GENERATOR_NAMES), st.sampled_from(["unit", "work:llama3-8b"]), st.integers(0, 3)
)


def times_in(shown: Preview, device: int, low: float, high: float) -> dict[str, float]:
    """Oracle: how long each kind of action fills [low, high) of a device, straight from the timeline."""
    timeline = shown.timeline
    found: dict[str, float] = {}
    for node, action in enumerate(timeline.graph.actions):
        if timeline.graph.device[node] == device and action.kind != "REDUCE_GRAD":
            time = min(timeline.end[node], high) - max(timeline.start[node], low)
            found[action.kind] = found.get(action.kind, 0.0) + max(time, 0.0)
    return {**found, "idle": high - low - sum(found.values())}


@given(shown_devices, windows)
def test_a_cell_shows_what_fills_most_of_it(which: tuple[str, str, int], axis: Axis) -> None:
    generator, costs_name, device = which
    shown = example(generator, costs_name)
    drawn = chart(shown)
    kinds = {"forward": "F", "backward": "B", "input": "I", "weight": "W", "idle": "idle"}
    looks = [*drawn.looks, IDLE]
    found = spans(drawn.bars[device], axis)
    assert [span.low for span in found] == [0, *(span.high for span in found[:-1])]
    assert found[-1].high == axis.width
    for span in found:
        for column in range(span.low, span.high):
            times = times_in(shown, device, axis.time(column), axis.time(column + 1))
            # Of a kind's looks each counts for itself, so the largest has at least its kind's share of that.
            of_kind = times[kinds[looks[span.look].state]]
            assert of_kind * len(looks) >= max(times.values()) - 1e-6
            if len(drawn.looks) == len({look.state for look in drawn.looks}):
                assert of_kind >= max(times.values()) - 1e-6 * axis.step - 1e-9


@given(shown_devices, st.integers(2000, 4000))
def test_at_high_resolution_cells_measure_busy_time(which: tuple[str, str, int], width: int) -> None:
    generator, costs_name, device = which
    shown = example(generator, costs_name)
    drawn = chart(shown)
    axis = whole(shown.makespan, width)
    found = spans(drawn.bars[device], axis)
    busy = sum(span.high - span.low for span in found if span.look != NONE) * axis.step
    assert busy == pytest.approx(shown.timeline.devices[device].busy, abs=len(found) * axis.step)


@given(shown_devices, windows, st.sampled_from([SOLID, PLAIN, PLAIN_ASCII]), st.booleans())
def test_a_row_has_a_character_for_each_column(
    which: tuple[str, str, int], axis: Axis, glyphs: object, labels: bool
) -> None:
    generator, costs_name, device = which
    drawn = chart(example(generator, costs_name))
    assert glyphs in (SOLID, PLAIN, PLAIN_ASCII)
    runs = row(drawn, device, axis, glyphs, labels=labels)  # type: ignore[arg-type]
    assert sum(len(run.text) for run in runs) == axis.width


@given(shown_devices, windows)
def test_a_memory_column_shows_the_highest_level(which: tuple[str, str, int], axis: Axis) -> None:
    generator, costs_name, device = which
    curve = example(generator, costs_name).curves[device]
    for column, level in enumerate(highest(curve, axis, float("inf"))):
        low, high = axis.time(column), axis.time(column + 1)
        inside = [
            level
            for level, start, end in zip(
                curve.levels, curve.times, [*curve.times[1:], float("inf")], strict=True
            )
            if start < high - 2e-6 * axis.step and end > low + 2e-6 * axis.step
        ]
        assert level >= max(inside)
        assert level in curve.levels


def test_the_peak_is_seen_however_short_it_is() -> None:
    curve = example(microbatches=64).curves[0]
    assert max(highest(curve, whole(example(microbatches=64).makespan, 5), float("inf"))) == curve.peak


def test_the_ruler_counts_in_round_numbers() -> None:
    line = ruler(Axis(3.0, 0.25, 60), "unit", 20, "|")
    assert line.split() == ["|5", "|10", "|15"]
    assert [line.index(mark) for mark in ("|5", "|10", "|15")] == [8, 28, 48]


@pytest.mark.parametrize(
    ("value", "text"), [(14.8231, "14.82 s"), (0.0123, "12.3 ms"), (0.000031, "31 µs"), (0.0, "0 µs")]
)
def test_seconds_are_written_in_a_fitting_unit(value: float, text: str) -> None:
    assert figure(value, "seconds") == text


def test_grounds_are_apart_in_greyscale() -> None:
    levels = sorted(int(grey(colour)[1:3], 16) for pair in GROUNDS.values() for colour in pair)
    assert min(high - low for low, high in pairwise(levels)) >= 12


@pytest.mark.parametrize("state", sorted(GROUNDS))
@pytest.mark.parametrize("tone", [0, 1])
def test_labels_stand_out_from_their_ground(state: str, tone: int) -> None:
    painted = style(Paint(Look(state, tone)))  # type: ignore[arg-type]

    def luminance(colour: Color | None) -> float:
        assert colour is not None
        level = int(grey(colour.name)[1:3], 16) / 255
        return level**2.2

    dark, light = sorted([luminance(painted.color), luminance(painted.bgcolor)])
    assert (light + 0.05) / (dark + 0.05) >= 4.5
