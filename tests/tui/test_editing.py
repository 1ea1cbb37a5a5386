"""Borders and edits by hand, by keys and by mouse; and what pins, searches and exports."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets._footer import FooterKey

from contraflow.designer.cli import main
from contraflow.designer.design import Design, make
from contraflow.designer.format import file
from contraflow.designer.format.check import load
from contraflow.designer.tui.app import Designer
from contraflow.designer.tui.exporting import FORMATS
from contraflow.designer.tui.gantt import Gantt
from contraflow.designer.tui.split_bar import GUTTER, SplitBar

from .driving import drive, press, saved, settle, text


def lengths(designer: Designer) -> tuple[int, ...]:
    """Of the subsequences that are shown."""
    assert designer.session.picture is not None
    return designer.session.picture.preview.schedule.layout.splits[0]


def test_borders_move_by_key_and_by_rule() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "split even" in await press(designer, pilot, "f5")
        await press(designer, pilot, "full_stop", "right", "right", "shift+left")
        assert lengths(designer) == (8192, 8192 - 6 * 128, 8192 + 6 * 128, 8192)
        assert "by hand" in text(designer)
        # Of equal work each has a quarter; the first is the longest, for it has nothing to look back at.
        shown = await press(designer, pilot, "c")
        assert lengths(designer)[0] > lengths(designer)[3]
        assert "25.1 %" in shown
        await press(designer, pilot, "e")
        assert lengths(designer) == (8192,) * 4
        # A border stops before the next one; there are always as many subsequences.
        await press(designer, pilot, *["shift+left"] * 12)
        assert min(lengths(designer)) > 0
        assert len(lengths(designer)) == 4

    drive(steps, size=(80, 24))


def test_a_border_is_pulled_by_the_mouse_in_one_step_to_undo() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        bar = designer.query_one(SplitBar)
        quarter = bar.room // 4
        assert designer.session.past == ()
        await pilot.mouse_down(SplitBar, offset=(GUTTER + 1 + quarter, 2))
        for by in range(1, 9):
            await pilot.hover(SplitBar, offset=(GUTTER + 1 + quarter + by, 2))
        await pilot.mouse_up(SplitBar, offset=(GUTTER + 1 + quarter + 8, 2))
        await settle(designer, pilot)
        assert lengths(designer)[0] > 8192
        assert lengths(designer)[0] % 128 == 0
        assert sum(lengths(designer)) == 32768
        await press(designer, pilot, "ctrl+z")
        assert lengths(designer) == (8192,) * 4
        assert designer.session.past == ()

    drive(steps)


def test_an_action_moves_and_what_would_break_is_refused_with_the_reason() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        shown = await press(designer, pilot, "f3", "down", "less_than_sign")
        assert "0F0.0 cannot move" in shown
        assert not designer.session.dirty
        # The first B of the last device comes after all four forwards of its microbatch: one more F may come first.
        await press(designer, pilot, "down", "down", "down", *["full_stop"] * 5)
        assert "3B0.3" in text(designer)
        before = designer.session.draft
        shown = await press(designer, pilot, "less_than_sign")
        assert "3B0.3" in shown
        assert "3F0.3" in shown
        assert designer.session.draft is before
        assert designer.session.chain
        shown = await press(designer, pilot, "greater_than_sign")
        assert designer.session.draft.parted
        assert "device 3: 3B0.3" in shown
        assert designer.session.picture is not None
        assert [str(action) for action in designer.session.picture.preview.schedule.program[3][4:6]] == [
            "3F1.0",
            "3B0.3",
        ]
        # Knobs still turn, after a question; and undo leads back through all of it.
        assert "make a new program?" in await press(designer, pilot, "escape", "plus")
        await press(designer, pilot, "y")
        await press(designer, pilot, "ctrl+z", "ctrl+z")
        assert designer.session.draft is before

    drive(steps, size=(120, 50))


def test_a_backward_in_halves_and_whole_again() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "f3", "down", "down", "down", "down", *["full_stop"] * 5)
        assert "3I0.3" in await press(designer, pilot, "w")
        assert "3W0.3" in await press(designer, pilot, "full_stop")
        assert "3B0.3" in await press(designer, pilot, "w")

    drive(steps)


def test_a_microbatch_goes_the_other_way_and_the_memory_follows() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "one direction" in await press(designer, pilot, "f3", "down", "d")
        await press(designer, pilot, "f2", "enter", "end", "up", "enter")
        assert designer.session.picture is not None
        before = designer.session.picture.preview
        await press(designer, pilot, "f3", "full_stop", "d")
        after = designer.session.picture.preview
        assert len(after.schedule.layout.directions[1].microbatches) == 3
        assert [curve.peak for curve in after.curves] != [curve.peak for curve in before.curves]
        await press(designer, pilot, "ctrl+z")
        assert designer.session.picture.preview.schedule == before.schedule

    drive(steps)


def test_a_is_pinned_and_let_go() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "A is seq1f1b" in await press(designer, pilot, "f7")
        a = designer.session.picture
        shown = await press(designer, pilot, "down", "plus")
        assert designer.session.pinned is a
        assert "makespan 14.25 to 15, bubble 15.8 % to 20.0 %, peak 1.75 to 2" in shown
        assert "device 4  - to 1" in await press(designer, pilot, "f4")
        await press(designer, pilot, "f3", "a")
        assert designer.session.pinned is None

    drive(steps)


def test_a_memory_cap_is_typed_turned_and_taken_back() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        cap = designer.query_one("#cap")
        cap.focus()
        await press(designer, pilot, *"70GiB", "enter")
        assert designer.session.limit is not None
        assert designer.session.limit.amount == 70 * 2**30
        assert "71GiB" in await press(designer, pilot, "plus")
        shown = await press(designer, pilot, *"2x", "enter")
        assert "neither microbatches" in " ".join(shown.split())
        assert designer.session.limit.amount == 71 * 2**30
        await press(designer, pilot, "delete")
        assert designer.session.limit is None
        assert not designer.session.dirty

    drive(steps)


def test_a_search_in_the_background_is_stopped_and_undone(tmp_path: Path) -> None:
    pytest.importorskip("ortools")

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        designer.query_one("#cap").focus()
        await press(designer, pilot, "4", "enter")
        before = designer.session.picture
        assert before is not None
        assert "Search for a shorter makespan" in await press(designer, pilot, "f8")
        await press(designer, pilot, "o")
        for _ in range(3000):
            await asyncio.sleep(0.01)
            if designer.session.picture is not before or not designer.session.searching:
                break
        assert designer.session.picture is not None
        assert designer.session.picture.preview.makespan < before.preview.makespan
        if designer.session.searching:
            await press(designer, pilot, "f8")
        while designer.session.searching:
            await asyncio.sleep(0.01)
        assert "stays" in text(designer)
        await press(designer, pilot, "ctrl+z")
        assert designer.session.picture.preview.schedule == before.preview.schedule

    # One microbatch after the other: any rule does better where there is room for two.
    path = saved(tmp_path, Design("gpipe"))
    slow = load(path)
    by_microbatch = [sorted(program, key=lambda action: action.microbatch or 0) for program in slow.program]
    file.write(replace(slow, program=tuple(map(tuple, by_microbatch))), path)
    drive(steps, path)


def test_exports_equal_those_of_the_command_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, Design(devices=2, microbatches=2, subsequences=2))

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        for number, to in enumerate(FORMATS):
            await press(designer, pilot, "f9", "home", *["down"] * number, "enter")
            shown = await press(designer, pilot, "enter")
            name = f"a{FORMATS[to].suffix}"
            assert f"{name} is written" in " ".join(shown.replace("│", "").split())
            assert f"--to {to}" in " ".join(shown.replace("│", "").split())
            await press(designer, pilot, "escape")
            written = {path.name: path.read_bytes() for path in tmp_path.glob(f"{name}*")}
            [*line, _, _] = shlex.split(command_of(to, name))
            assert main([*line[1:], "-o", f"again/{name}"]) == 0
            for each, content in written.items():
                assert (tmp_path / "again" / each).read_bytes() == content

    (tmp_path / "again").mkdir()
    drive(steps, tmp_path / "a.schedule.json")


def command_of(to: str, name: str) -> str:
    from contraflow.designer.tui.exporting import command

    return command("a.schedule.json", to, None, Path(name))


def test_a_format_that_cannot_say_it_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "f9", "end", "enter")
        assert "copies" in " ".join((await press(designer, pilot, "enter")).split())

    drive(steps, saved(tmp_path, Design(generator="bsipipe")))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_the_whole_way_with_the_keyboard_alone(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, *["enter", "end", "up", "enter"])
        for keys in (["down"], ["down", "down"], ["down", "down"]):
            await press(designer, pilot, *keys, "8", "enter")
        assert "bsipipe p8 v2 m8 k8" in text(designer)
        await press(designer, pilot, "f5")
        await press(designer, pilot, "right")
        assert lengths(designer)[:2] == (4224, 3968)
        before = designer.session.picture
        assert before is not None
        await press(designer, pilot, "f3", "down", "d")
        after = designer.session.picture
        assert after is not None
        assert after.preview.peak != before.preview.peak
        await press(designer, pilot, "ctrl+z", "f7")
        assert designer.session.pinned is not None
        await press(designer, pilot, "f2", "home", *["enter", "end"], *["up"] * 8, "escape")
        await press(designer, pilot, "ctrl+s", "enter")
        await pilot.press("ctrl+q")

    assert drive(steps, size=size).return_code == 0
    [path] = tmp_path.glob("*.schedule.json")
    assert main(["check", str(path)]) == 0
    assert load(path) == make(Design("bsipipe", 8, 8, split=(4224, 3968, *[4096] * 6)))


def test_the_whole_way_with_the_mouse_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        async def click(widget: str | Widget, *, column: int = 0, line: int = 0) -> None:
            await pilot.click(widget, offset=(column, line))
            await settle(designer, pilot)

        async def footer(action: str) -> None:
            [key] = [key for key in designer.screen.query(FooterKey) if key.action.split(".")[-1] == action]
            await click(key, column=2)

        await click("#generator", column=20)
        await click(
            designer.screen.query_one(OptionList),
            column=4,
            line=designer.screen.query_one(OptionList).size.height - 3,
        )
        for knob in ("#devices", "#microbatches", "#subsequences"):
            for _ in range(4):
                await click(knob, column=designer.query_one(knob).size.width - 2)
        assert "p8 v2 m8 k8" in text(designer)
        bar = designer.query_one(SplitBar)
        border = GUTTER + 1 + bar.room // 8
        await pilot.mouse_down(SplitBar, offset=(border, 2))
        await pilot.hover(SplitBar, offset=(border + 3, 2))
        await pilot.mouse_up(SplitBar, offset=(border + 3, 2))
        await settle(designer, pilot)
        cut = lengths(designer)
        assert cut[0] > 4096
        before = designer.session.picture
        assert before is not None
        await click(Gantt, column=designer.query_one(Gantt).gutter_width, line=1)
        await footer("other_way")
        assert designer.session.picture is not None
        assert designer.session.picture.preview.peak != before.preview.peak
        await footer("undo")
        await footer("pin")
        assert designer.session.pinned is not None
        await footer("save")
        await click("#select", column=2, line=1)
        await footer("quit")
        assert make(Design("bsipipe", 8, 8, split=cut)).program == load(next(tmp_path.glob("*.json"))).program

    assert drive(steps, size=(200, 50)).return_code == 0
