"""Opening, saving, reloading and leaving: what happens to the file, and what is asked before."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from contraflow.designer import journal
from contraflow.designer.design import Design, knobs, make
from contraflow.designer.format import file
from contraflow.designer.format.check import load
from contraflow.designer.tui.app import Designer
from contraflow.designer.tui.inspector import KnobLine

from .driving import drive, press, saved, settle, text, type_in


def test_save_asks_for_a_name_and_round_trips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "down", "plus", "ctrl+s")
        shown = await press(designer, pilot, "enter")
        assert "seq1f1b-p5-m4-k4.schedule.json ·" in shown
        assert load("seq1f1b-p5-m4-k4.schedule.json") == make(Design(devices=5))
        await press(designer, pilot, "plus")
        assert "json*" in text(designer)
        assert "json*" not in await press(designer, pilot, "ctrl+s")
        assert load("seq1f1b-p5-m4-k4.schedule.json") == make(Design(devices=6))

    drive(steps)


def test_saving_over_another_file_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    taken = tmp_path / "seq1f1b-p4-m4-k4.schedule.json"
    taken.write_text("mine")

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "Replace it?" in await press(designer, pilot, "ctrl+s", "enter")
        await press(designer, pilot, "n")
        assert taken.read_text() == "mine"
        await press(designer, pilot, "ctrl+s", "enter", "y")
        assert load(taken) == make(Design())

    drive(steps)


def test_a_refused_design_is_not_saved(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = path.read_text()

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "down", "down", *type_in("3"), "ctrl+s")
        assert path.read_text() == before
        assert "json*" in text(designer)

    drive(steps, path)


def test_a_name_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        designer.write(tmp_path / "none" / "a.schedule.json", lambda: None)
        await settle(designer, pilot)
        assert "cannot be written: No such file" in text(designer)

    drive(steps, size=(200, 50))


def test_quitting_asks_only_where_something_is_unsaved() -> None:
    async def unchanged(designer: Designer, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+q")

    async def changed(designer: Designer, pilot: Pilot[None]) -> None:
        shown = await press(designer, pilot, "plus", "ctrl+q")
        assert "quit without saving" in shown
        assert "quit without saving" not in await press(designer, pilot, "c")
        assert designer.is_running
        await press(designer, pilot, "ctrl+q", "escape")
        assert designer.is_running
        await pilot.press("ctrl+q", "q")

    for steps in (unchanged, changed):
        assert drive(steps).return_code == 0


def test_save_and_quit(tmp_path: Path) -> None:
    path = saved(tmp_path)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await pilot.press("down", "plus", "ctrl+q", "s")

    drive(steps, path)
    assert load(path) == make(Design(devices=5))


def test_a_generated_file_has_live_knobs(tmp_path: Path) -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "bsipipe" in text(designer)
        assert "m5" in await press(designer, pilot, "down", "down", "down", "plus")

    drive(steps, saved(tmp_path, Design(generator="bsipipe")))


def parted(tmp_path: Path) -> Path:
    """A file whose knobs make another program than it holds."""
    path = tmp_path / "parted.schedule.json"
    file.write(replace(make(Design(generator="gpipe")), design=knobs(Design(generator="1f1b"))), path)
    return path


def test_a_parted_program_is_kept_until_someone_means_it(tmp_path: Path) -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "has parted from its knobs" in text(designer)
        program = designer.session.draft.program
        assert "make a new program?" in await press(designer, pilot, "down", "plus")
        await press(designer, pilot, "n")
        assert designer.session.draft.program is program
        assert "1f1b p5" in await press(designer, pilot, "plus", "y")
        assert "gpipe p4" in await press(designer, pilot, "ctrl+z")
        assert designer.session.draft.program is program
        assert "has parted" in text(designer)

    drive(steps, parted(tmp_path))


def test_costs_price_a_parted_program_without_a_question(tmp_path: Path) -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        designer.query_one("#costs", KnobLine).enter("llama3-8b-h100")
        await settle(designer, pilot)
        assert "gpipe p4" in text(designer)
        assert " s ·" in text(designer)

    drive(steps, parted(tmp_path))


def test_a_file_without_our_knobs_gets_those_of_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "alien.schedule.json"
    file.write(replace(make(Design(devices=3, microbatches=5)), design=None), path)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert designer.session.draft.parted
        assert designer.session.draft.design.devices == 3
        assert designer.session.draft.design.microbatches == 5

    drive(steps, path)


def test_a_file_with_faults_lists_them_all(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_text(path.read_text().replace("0F0.0 ", "").replace("1B3.0", "1B9.0"))

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        shown = text(designer)
        assert "cannot be used: 3 faults" in shown
        assert "0F0.0" in shown
        assert "1B9.0" in shown
        await press(designer, pilot, "ctrl+s", "ctrl+z", "escape")
        await pilot.press("ctrl+q")

    assert drive(steps, path).return_code == 0


@pytest.mark.parametrize("content", [None, "", "{", "[1]"])
def test_what_is_no_schedule_is_said_in_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "a.schedule.json"
    if content is not None:
        path.write_text(content)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "a.schedule.json" in text(designer)

    drive(steps, path)


def lose_journal(designer: Designer) -> None:
    """As if the process were gone: its journal stays, and nobody holds it."""
    assert designer.journal._file is not None
    os.close(designer.journal._file.handle)


def test_lost_work_is_offered_and_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def lose(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "down", "plus", "plus")
        lose_journal(designer)

    async def find(designer: Designer, pilot: Pilot[None]) -> None:
        assert "ended before its work was saved" in text(designer)
        shown = await press(designer, pilot, "r")
        assert "untitled*" in shown
        assert "seq1f1b p6" in shown
        await press(designer, pilot, "ctrl+s", "enter")

    drive(lose)
    assert len(journal.lost(journal.folder())) == 1
    drive(find)
    assert load("seq1f1b-p6-m4-k4.schedule.json") == make(Design(devices=6))


def test_a_refused_knob_is_not_what_is_recovered() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "down", "plus", "down", *type_in("3"))
        assert designer.session.refusal
        lose_journal(designer)

    drive(steps)
    [left] = journal.lost(journal.folder())
    assert left.schedule() == make(Design(devices=5))


def test_a_file_that_changes_on_disk_is_read_again_and_asked_about_where_something_is_unsaved(
    tmp_path: Path,
) -> None:
    path = saved(tmp_path)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        file.write(make(Design(devices=5)), path)
        designer.look_at_disk()
        await settle(designer, pilot)
        assert "seq1f1b p5" in text(designer)
        assert "json*" not in text(designer)
        await press(designer, pilot, "down", "plus")
        file.write(make(Design(devices=7)), path)
        designer.look_at_disk()
        await settle(designer, pilot)
        assert "has changed on disk" in text(designer)
        assert "seq1f1b p6" in await press(designer, pilot, "k")
        # It asks once for each change.
        designer.look_at_disk()
        await settle(designer, pilot)
        assert "has changed on disk" not in text(designer)
        assert "seq1f1b p7" in await press(designer, pilot, "ctrl+r")
        assert "seq1f1b p6" in await press(designer, pilot, "ctrl+z")
        path.write_text("{")
        assert "cannot be used" in await press(designer, pilot, "ctrl+r")
        assert "seq1f1b p6" in text(designer)

    drive(steps, path)


def test_another_file_is_opened_after_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file.write(make(Design("gpipe")), tmp_path / "b.schedule.json")

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "open another file without saving" in await press(designer, pilot, "down", "plus", "ctrl+o")
        assert "b.schedule.json" in await press(designer, pilot, "q")
        shown = await press(
            designer, pilot, "tab", "b", "full_stop", *"schedule", "full_stop", *"json", "enter"
        )
        assert "gpipe p4" in shown
        assert "json*" not in shown

    drive(steps, saved(tmp_path))
