"""Drives the terminal interface without a terminal: keys in, text of the screen out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

from contraflow.designer.design import Design, make
from contraflow.designer.format import file
from contraflow.designer.tui.app import Designer, opened

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
    while designer.session.waiting:
        await asyncio.sleep(0.01)
    # On a busy machine a layout may be due that the pause did not wait for.
    for _ in range(3):
        await pilot.pause()
        while designer.screen._layout_required or designer.screen._dirty_widgets:
            await asyncio.sleep(0.01)


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
