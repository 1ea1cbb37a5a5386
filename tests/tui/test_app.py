"""The terminal interface as a person sees it: keys in, text of the screen out."""

from __future__ import annotations

import asyncio

import pytest
from textual.pilot import Pilot

from contraflow.designer.tui import answering
from contraflow.designer.tui import session as sessions
from contraflow.designer.tui.app import Designer
from contraflow.designer.tui.gantt import Gantt
from contraflow.designer.tui.inspector import KnobLine
from contraflow.designer.tui.session import Draft, Picture, Refusal

from .driving import drive, press, settle, text, type_in


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


def test_a_key_that_is_held_down_does_not_queue_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    answer = sessions.answer

    def counted(draft: Draft, *, rough: bool = False) -> Picture | Refusal:
        asked.append(rough)
        return answer(draft, rough=rough)

    monkeypatch.setattr(sessions, "answer", counted)

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        await press(designer, pilot, "enter", "end", "up", "enter")
        asked.clear()
        knob = designer.query_one("#microbatches", KnobLine)
        for _ in range(100):
            knob.action_turn(1)
            await asyncio.sleep(0)
        await settle(designer, pilot)
        # All hundred count, few are drawn, and the last is drawn with the whole effort.
        assert designer.session.draft.design.num_microbatches > 4
        assert len(asked) < 50
        assert not designer.session.rough
        assert designer.session.picture is not None
        assert designer.session.picture.draft is designer.session.draft
        assert len(designer.session.past) > 1

    drive(steps)
