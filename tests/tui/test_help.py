"""Help, palette and themes: everything that can be done can be found."""

from __future__ import annotations

from textual.pilot import Pilot

from contraflow.designer.tui.app import Designer
from contraflow.designer.tui.commands import commands
from contraflow.designer.tui.knobs import CAP, KNOBS
from contraflow.designer.tui.themes import THEMES

from .driving import drive, press, text


def test_help_tells_the_knob_and_every_key() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        shown = await press(designer, pilot, "down", "f1")
        assert "devices: positions in the pipeline" in shown
        assert "knobs" in shown
        assert "no longer" not in await press(designer, pilot, "escape")
        # On the chart the chart's keys come first.
        shown = await press(designer, pilot, "escape", "question_mark")
        assert shown.index("Zoom in") < shown.index("Save as")

    drive(steps, size=(120, 50))


def test_every_action_is_in_the_palette_and_runs_from_there() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        found = commands(designer.screen)
        titles = [command.title for command in designer.get_system_commands(designer.screen)]
        assert len(titles) == len(set(titles))
        for command in found:
            assert any(command.description in title for title in titles)
        actions = {command.action for command in found}
        assert {"save", "undo", "redo", "open", "quit", "search", "export", "pin", "help"} <= actions
        await press(designer, pilot, "ctrl+p", *"next theme")
        before = designer.theme
        await press(designer, pilot, "enter")
        assert designer.theme != before
        # A knob is found by its name, too.
        await press(designer, pilot, "ctrl+p", *"Knob: microb")
        await press(designer, pilot, "enter")
        await press(designer, pilot, "plus")
        assert "m5" in text(designer)

    drive(steps)


def test_every_knob_says_what_it_is_for() -> None:
    for knob in (*KNOBS, CAP):
        assert len(knob.meaning) > 10

    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        assert KNOBS[3].meaning in await press(designer, pilot, "down", "down", "down")

    drive(steps)


def test_themes_differ_and_keep_text_legible() -> None:
    async def steps(designer: Designer, pilot: Pilot[None]) -> None:
        looks = set()
        for theme in THEMES:
            designer.theme = theme.name
            await press(designer, pilot, "f1", "escape")
            lines = designer.screen._compositor.render_strips()
            styles = [
                segment.style
                for line in lines
                for segment in line
                if any(map(str.isalnum, segment.text)) and segment.style
            ]
            grounds = {style.bgcolor.get_truecolor() for style in styles if style.bgcolor}
            looks.add(frozenset(grounds))
            for style in styles:
                if style.color and style.bgcolor and not style.dim:
                    assert contrast(style.color.get_truecolor(), style.bgcolor.get_truecolor()) > 2.5
        assert len(looks) == len(THEMES)

    drive(steps)


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """As WCAG has it."""

    def luminance(colour: tuple[int, int, int]) -> float:
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in (channel / 255 for channel in colour)
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
