"""The picture for print: what is drawn is what the timeline says, at any width, and a reader finds its assumptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer import costs
from contraflow.designer.design import Design, Preview, make, preview
from contraflow.designer.export import svg
from contraflow.designer.export.axis import Axis, marks
from contraflow.designer.export.labels import width_of, wrapped
from contraflow.designer.generators import GENERATORS

SVG = "{http://www.w3.org/2000/svg}"


@cache
def example(
    generator: str = "seq1f1b", costs_name: str = "unit", devices: int = 4, k: int | None = None
) -> Preview:
    return preview(make(Design(generator, devices, subsequences=k)), costs.named(costs_name))


def tree(shown: Preview, width: float = svg.WIDTH) -> ElementTree.Element:
    return ElementTree.fromstring(svg.dumps(shown, width))


def words(root: ElementTree.Element) -> str:
    return " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))


def boxes(root: ElementTree.Element) -> Iterator[tuple[float, float, float]]:
    """Left edge, top and width of every bar."""
    for path in root.iter(f"{SVG}path"):
        if re.fullmatch(r"s\d+", path.get("class", "")):
            for found in re.finditer(r"M([\d.e-]+) ([\d.]+)h([\d.e-]+)v", path.get("d", "")):
                yield float(found[1]), float(found[2]), float(found[3])


@pytest.mark.parametrize("generator", sorted(GENERATORS))
@pytest.mark.parametrize("costs_name", ["unit", "llama3-8b-h100"])
def test_bars_are_as_long_as_their_actions_take(generator: str, costs_name: str) -> None:
    shown = example(generator, costs_name)
    root = tree(shown)
    rows: dict[float, float] = {}
    for _, top, width in boxes(root):
        rows[top] = rows.get(top, 0.0) + width
    ground = next(path for path in root.iter(f"{SVG}path") if path.get("class") == "i").get("d", "")
    whole = float(ground.split("h")[1].split("v")[0])
    drawn = [rows[top] / whole * shown.makespan for top in sorted(rows)]
    busy = [use.busy for use in shown.timeline.devices]
    assert drawn == pytest.approx(busy, rel=0.01)


def test_nothing_depends_on_the_run() -> None:
    made = [svg.dumps(preview(make(Design("bsipipe")), costs.named("unit"))) for _ in range(2)]
    assert made[0] == made[1]


@pytest.mark.parametrize("width", [60, 85, 180, 420])
@pytest.mark.parametrize("costs_name", ["unit", "llama3-8b-h100"])
def test_everything_lies_on_the_page(width: int, costs_name: str) -> None:
    root = tree(example("bsipipe", costs_name), width)
    assert root.get("width") == f"{width}mm"
    _, _, right, bottom = map(float, root.get("viewBox", "").split())
    assert right == pytest.approx(width * 72 / 25.4, abs=0.01)
    for text in root.iter(f"{SVG}text"):
        x, y = float(text.get("x", "")), float(text.get("y", ""))
        length = 5 * width_of("".join(text.itertext()))
        ends = "e" in text.get("class", "").split()
        assert x >= length * ends
        assert x + length * (not ends) <= right + 1
        assert 0 < y < bottom
    for left, _, length in boxes(root):
        assert 0 <= left <= left + length <= right


def test_labels_name_their_actions_where_they_fit() -> None:
    shown = example(k=2)
    labels = [text.text for group in tree(shown).iter(f"{SVG}g") for text in group]
    whole = {str(action)[1:] for program in shown.schedule.program for action in program}
    assert set(labels) == whole
    assert len(labels) == shown.schedule.num_actions
    # With the stage where paper is wide enough; nothing where bars are too narrow for any word.
    wide = [text.text for group in tree(shown, 420).iter(f"{SVG}g") for text in group]
    assert sorted(map(str, wide)) == sorted(
        str(action) for program in shown.schedule.program for action in program
    )
    assert not list(tree(example(devices=4, k=64)).iter(f"{SVG}g"))


def test_labels_stay_within_their_bars() -> None:
    for generator in ("bsipipe", "zb-v", "seq1f1b-interleaved"):
        root = tree(example(generator, "llama3-8b-h100"))
        edges = [(left, left + width) for left, _, width in boxes(root)]
        for text in (text for group in root.iter(f"{SVG}g") for text in group):
            middle, half = float(text.get("x", "")), svg.LABEL * width_of(text.text or "") / 2
            assert any(left <= middle - half and middle + half <= right + 0.01 for left, right in edges)


def test_says_what_the_figures_rest_on() -> None:
    text = words(tree(example()))
    assert "makespan 14.25 · bubble 15.8 % · peak 1.75 microbatches on device 0" in text
    assert "Unit clock: F of a whole microbatch through a device's share = 1" in text
    assert "Idle from time 0 to the end of the last action." in text
    bytes_of = words(tree(example(costs_name="llama3-8b-h100")))
    assert "Bytes modelled on one GPU: bfloat16" in bytes_of
    assert "dashed: the 74.51 GiB that it has" in bytes_of


def test_memory_curves_share_one_scale() -> None:
    shown = example(k=2)
    lines = [path.get("d", "") for path in tree(shown).iter(f"{SVG}path") if path.get("class") == "k"]
    heights = []
    for line in lines:
        places = [float(y) for y in re.findall(r"(?:M[\d.]+ |V)([\d.]+)", line)]
        heights.append(places[-1] - min(places))
    assert [height / heights[0] for height in heights] == pytest.approx(
        [1, 2 / 2.5, 1.5 / 2.5, 1 / 2.5], abs=0.01
    )


def test_the_second_direction_is_hatched_and_the_second_stage_underlined() -> None:
    plain, two = svg.dumps(example()), svg.dumps(example("bsipipe"))
    assert "<pattern" not in plain
    assert "hatched" not in plain
    assert two.count("<pattern") == 4  # of F and B, on either stage
    assert "plain: down, hatched: up" in two
    assert "underlined: 2nd stage of a device" in two
    assert 'class="u' in two
    assert "url(" in svg.dumps(example("zb-v"))


def test_names_cannot_break_the_picture() -> None:
    name = '<script>"&amp;" ]]> &'
    shown = replace(example(), schedule=replace(example().schedule, name=name))
    root = tree(shown)
    assert root.findtext(f"{SVG}title") == name
    assert name in words(root)
    assert not list(root.iter(f"{SVG}script"))


def test_thousands_of_actions_stay_small() -> None:
    shown = preview(make(Design("bsipipe", 8, 16, subsequences=8)), costs.named("unit"))
    assert shown.schedule.num_actions == 4096
    assert len(svg.dumps(shown)) < 100 * 4096


def test_a_schedule_on_one_device_is_drawn() -> None:
    assert "1 device" in words(tree(preview(make(Design(devices=1)), costs.named("unit"))))


@given(st.text(alphabet="abc mW.1", min_size=1, max_size=60), st.floats(2, 30))
def test_lines_are_broken_where_they_end(text: str, room: float) -> None:
    lines = wrapped(text, room)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(width_of(line) <= room for line in lines)


@given(st.floats(0, 1e4), st.floats(1e-6, 1e6), st.integers(20, 600), st.floats(9, 60))
def test_marks_are_round_and_apart(start: float, length: float, width: int, room: float) -> None:
    axis = Axis(start, length / width, width)
    found = list(marks(axis, room=room))
    for (time, _), (later, _) in pairwise(found):
        assert axis.column(later) - axis.column(time) >= room * (1 - 1e-6)
    assert all(-1e-3 <= axis.column(time) <= width + 1e-3 for time, _ in found)
