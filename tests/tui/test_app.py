"""The terminal interface as a person sees it: keys in, text of the screen out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from contraflow.designer.design import Design, knobs, make
from contraflow.designer.format import file
from contraflow.designer.format.check import load
from contraflow.designer.tui import answering
from contraflow.designer.tui.app import Designer, opened
from contraflow.designer.tui.gantt import Gantt
from contraflow.designer.tui.inspector import KnobLine

Steps = Callable[[Designer, "Pilot[None]"], Awaitable[None]]


def drive(
    steps: Steps, path: Path | None = None, size: tuple[int, int] = (120, 40), **looks: bool
) -> Designer:
    """Run the interface without a terminal while `steps` press keys and look."""
    designer = opened(path, **looks)

    async def run() -> None:
        async with designer.run_test(size=size) as pilot:
            await settle(designer, pilot)
            await steps(designer, pilot)

    asyncio.run(run())
    return designer


async def settle(designer: Designer, pilot: Pilot[None]) -> None:
    """Wait until nothing is being worked out or drawn."""
    await pilot.pause()
    while designer.session is not None and designer.session.waiting:
        await asyncio.sleep(0.01)
    await pilot.pause()


async def press(designer: Designer, pilot: Pilot[None], *keys: str) -> str:
    """Press keys; the text of the screen afterwards."""
    await pilot.press(*keys)
    await settle(designer, pilot)
    return text(designer)


def text(designer: Designer) -> str:
    """The characters on the screen."""
    lines = designer.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line) for line in lines)


def type_in(value: str) -> list[str]:
    """The keys that type a knob's value."""
    return [*value, "enter"]


def saved(tmp_path: Path, design: Design | None = None) -> Path:
    path = tmp_path / "a.schedule.json"
    file.write(make(design or Design()), path)
    return path


def test_every_size_has_chart_figures_and_knobs() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert isinstance(designer.focused, KnobLine)
        for size in [(60, 16), (80, 24), (100, 30), (200, 50)]:
            await pilot.resize_terminal(*size)
            await settle(designer, pilot)
            shown = text(designer)
            for part in ("makespan 14.25", "bubble 15.8 %", "peak 1.75", "microbatches", "B0", "activation"):
                assert part in shown

    drive(steps)


def test_a_turned_knob_changes_chart_and_figures() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        # 4 devices, 5 microbatches of 4 subsequences: (5 + 3/4) * 3.
        shown = await press(designer, pilot, "down", "down", "down", "plus")
        assert "makespan 17.25 +3" in shown
        assert "untitled*" in shown

    drive(steps)


def test_a_typed_value_changes_them_too() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        shown = await press(designer, pilot, "down", *type_in("2"))
        assert designer.session is not None
        assert designer.session.draft.design.devices == 2
        assert "makespan 12.75 −1.5" in shown

    drive(steps)


def test_a_generator_is_chosen_from_the_list() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "1f1b over subsequences" in await press(designer, pilot, "enter")
        assert "two opposing Vs" in await press(designer, pilot, "end", "up")
        shown = await press(designer, pilot, "enter")
        assert "bsipipe" in shown
        assert "small letters: up" in shown

    drive(steps)


def test_a_refused_shape_says_why_and_keeps_the_chart() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "enter", "end", "up", "enter")
        before = designer.session
        shown = " ".join((await press(designer, pilot, "down", *type_in("3"))).split())
        assert "bsipipe mirrors the devices" in shown
        assert designer.session is not None
        assert before is not None
        assert designer.session.picture is before.picture
        assert designer.query_one(Gantt).has_class("-stale")
        assert "makespan 12" in shown
        # Turning on leads out of it again.
        shown = await press(designer, pilot, "plus")
        assert "mirrors" not in shown
        assert not designer.query_one(Gantt).has_class("-stale")

    drive(steps, size=(100, 40))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_a_refusal_stands_under_the_knob_that_was_turned(size: tuple[int, int]) -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "plus", "down", *type_in("3"))
        knob, refusal = designer.query_one("#devices"), designer.query_one("#refusal")
        assert refusal.region.y == knob.region.y + 1

    drive(steps, size=size)


def test_a_typing_slip_is_refused_in_words() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        shown = await press(designer, pilot, "down", *type_in("4x"))
        assert "'4x' is not a whole number" in " ".join(shown.split())
        assert "makespan 14.25" in shown

    drive(steps)


def test_undo_and_redo() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "down", "plus", "plus")
        assert "p6" in text(designer)
        assert "p5" in await press(designer, pilot, "ctrl+z")
        shown = await press(designer, pilot, "ctrl+z", "ctrl+z")
        assert "makespan 14.25" in shown
        assert "untitled*" not in shown
        assert "p6" in await press(designer, pilot, "ctrl+y", "ctrl+y", "ctrl+y")

    drive(steps)


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
        assert designer.session is not None
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
        assert designer.session is not None
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


def test_a_small_window_says_what_it_needs() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert "60 columns and 16 rows" in text(designer)
        assert "has 59 and 20" in text(designer)
        await pilot.resize_terminal(80, 15)
        await settle(designer, pilot)
        assert "has 80 and 15" in text(designer)
        await pilot.resize_terminal(80, 24)
        await settle(designer, pilot)
        assert "makespan 14.25" in text(designer)

    drive(steps, size=(59, 20))


def test_zoom_pan_and_cursor() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        gantt = designer.query_one(Gantt)
        whole = gantt.axis
        await press(designer, pilot, "escape", "z", "z")
        assert gantt.axis.step == pytest.approx(whole.step / 4, rel=0.25)
        start = gantt.axis.start
        await press(designer, pilot, "left")
        assert gantt.axis.start < start
        await press(designer, pilot, "0")
        assert gantt.axis == whole
        shown = await press(designer, pilot, "down", "full_stop")
        assert "device 0: 0F0.1  0.25 to 0.5, forward of stage 0, tokens 8192 to 16383" in shown

    drive(steps)


def test_the_mouse_points_at_actions() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        gantt = designer.query_one(Gantt)
        await pilot.hover(Gantt, offset=(gantt.gutter_width, 1))
        await settle(designer, pilot)
        assert "device 0: 0F0.0  0 to 0.25" in text(designer)
        await pilot.click("#devices", offset=(designer.query_one("#devices").size.width - 2, 0))
        await settle(designer, pilot)
        assert "p5" in text(designer)

    drive(steps)


def test_large_designs_are_worked_out_beside_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "INLINE", 0)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        # The last of several turns wins.
        assert "p9" in await press(designer, pilot, "down", *["plus"] * 5)
        assert designer.session is not None
        assert designer.session.picture is not None
        assert designer.session.picture.draft is designer.session.draft

    drive(steps)


@pytest.mark.parametrize("mono", [True, False])
def test_ascii_is_ascii(mono: bool) -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert text(designer).isascii()
        assert (await press(designer, pilot, "plus", "ctrl+q")).isascii()
        assert (await press(designer, pilot, "escape", "enter")).isascii()
        assert (await press(designer, pilot, "escape", "escape", "z", "z", "full_stop")).isascii()

    drive(steps, ascii=True, mono=mono)


def test_mono_has_no_colours() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        for line in designer.screen._compositor.render_strips():
            for segment in line:
                for color in (segment.style and segment.style.color, segment.style and segment.style.bgcolor):
                    if color:
                        red, green, blue = color.get_truecolor()
                        assert max(red, green, blue) - min(red, green, blue) <= 1
        assert "Ff" in text(designer) or "F░" in text(designer)

    drive(steps, mono=True)
