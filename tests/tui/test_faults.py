"""Files that cannot be used: every fault in a list, each at its place in the text, and never a crash."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text
from textual.pilot import Pilot

from contraflow.designer.design import Design, make
from contraflow.designer.format.check import examine
from contraflow.designer.format.file import dumps
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.tui.app import Designer
from contraflow.designer.tui.faults import Faults, Place, read
from contraflow.designer.tui.locate import excerpt, located

from .driving import drive, press, saved, settle, text

TEXT = dumps(make(Design(generator="bsipipe", microbatches=2, subsequences=2)))


@settings(max_examples=20)
@given(st.data())
def test_a_place_in_the_program_is_its_token(data: st.DataObject) -> None:
    schedule = data.draw(st.from_type(Schedule))
    written = dumps(schedule)
    device = data.draw(st.integers(0, len(schedule.program) - 1))
    for number, action in enumerate(schedule.program[device]):
        found = located(written, f"device {device}, action {number}")
        assert found is not None
        assert written[found.start : found.stop] == str(action)


def test_a_path_is_its_value_or_what_is_around_it() -> None:
    for where, expected in {
        "$.directions[1].placement[0]": "3",
        "$.devices": "4",
        "$.splits[1]": "16384",
        "$.directions[0].microbatches[5]": "[0]",
        "$.none": TEXT.rstrip(),
        "device 9, action 1": None,
        "$": TEXT.rstrip(),
    }.items():
        found = located(TEXT, where)
        assert found is not None
        if expected is not None:
            assert TEXT[found.start : found.stop] == expected


def mutated(draw: Random) -> str:
    """The text with a few characters gone, doubled or replaced."""
    letters = list(TEXT)
    for _ in range(draw.randint(1, 6)):
        place = draw.randrange(len(letters))
        letters[place] = draw.choice(["", letters[place] * 2, draw.choice('[]{}",: 0F9B.\x1b\n-☃')])
    return "".join(letters)


@given(st.integers(0, 2**32))
def test_every_fault_of_a_mutated_file_has_an_excerpt(seed: int) -> None:
    source = mutated(Random(seed))
    try:
        _, faults = examine(source)
    except ValueError:
        return
    for fault in faults[:5]:
        assert "\x1b" not in excerpt(source, located(source, fault.where), 60, 8).plain


@given(st.text(), st.text(), st.integers(0, 90), st.integers(0, 20))
def test_an_excerpt_fits_whatever_the_text_is(source: str, where: str, width: int, height: int) -> None:
    shown = excerpt(source, located(source, f"$.{where}"), width, height)
    assert isinstance(shown, Text)
    assert len(shown.plain.split("\n")) <= max(height, 1)


def test_mutated_files_open_as_a_list_of_faults_that_leads_to_the_places(tmp_path: Path) -> None:
    path = saved(tmp_path)
    good = path.read_text()
    path.write_text(good.replace("0F0.0 ", "").replace("1B3.0", "1B9.0"))

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        shown = text(designer)
        assert "cannot be used: 3 faults" in shown
        place = designer.screen.query_one(Place)
        seen = set()
        for _ in range(3):
            shown_place = place.render()
            seen |= {
                shown_place.plain[span.start : span.end]
                for span in shown_place.spans
                if "reverse" in f"{span.style}"
            }
            await press(designer, pilot, "down")
        assert "1B9.0" in seen
        for draw in map(Random, range(8)):
            path.write_text(mutated(draw))
            await press(designer, pilot, *(["r"] if designer.screen.query(Place) else ["ctrl+r"]))
        # Put right elsewhere, it is a design again.
        path.write_text(good)
        if not designer.screen.query(Place):
            designer.open_file(path)
        await settle(designer, pilot)
        assert "makespan 14.25" in await press(designer, pilot, "r")
        assert designer.session.path == path

    drive(steps, path, size=(80, 24))


def test_an_escape_leaves_the_faults_for_a_fresh_design(tmp_path: Path) -> None:
    path = tmp_path / "a.schedule.json"
    path.write_text("{")

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "is not JSON" in text(designer)
        # Nothing that is hidden changes meanwhile.
        await press(designer, pilot, "ctrl+s", "ctrl+z", "f9")
        assert "untitled" in await press(designer, pilot, "escape")
        assert path.read_text() == "{"
        await pilot.press("ctrl+q")

    assert drive(steps, path).return_code == 0


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none", Path("\0")):
        found = read(path)
        assert isinstance(found, Faults)
        assert found.title
