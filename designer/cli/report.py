"""Previews in figures: as JSON, as headlines and as tables. Commands import this when they run: it loads rich."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from contraflow.designer.costs import CostError, CostModel
from contraflow.designer.design import Preview, preview
from contraflow.designer.export.axis import scale
from contraflow.designer.export.text import figures, percent, shape
from contraflow.designer.format.check import load
from contraflow.designer.format.schedule import Layout


def read(path: Path, cost_model: CostModel) -> Preview:
    """The preview of a file. Raises NotAScheduleError, InvalidScheduleError, or CostError with the file's name."""
    schedule = load(path)
    try:
        return preview(schedule, cost_model)
    except CostError as error:
        raise CostError(f"{path}: {error}") from None


def facts(shown: Preview) -> dict[str, Any]:
    """The figures of a preview, as JSON. Activation is in whole microbatches through a device's share."""
    timeline = shown.timeline
    return {
        "name": shown.schedule.name,
        "clock": timeline.prices.clock,
        "costs": timeline.prices.costs,
        "assumptions": shown.caption,
        "makespan": shown.makespan,
        "step": shown.step,
        "bubble": shown.bubble,
        "peak_activation": shown.peak,
        "weights": weights_held(shown.schedule.layout),
        "actions": shown.schedule.num_actions,
        "devices": [
            {
                "busy": use.busy,
                "idle": use.idle,
                "first": use.first,
                "last": use.last,
                "peak_activation": curve.peak,
            }
            for use, curve in zip(timeline.devices, shown.curves, strict=True)
        ],
    }


def weights_held(layout: Layout) -> float:
    """The most weights on a device, where 1 is its share of one copy of the model."""
    held = [0] * layout.num_devices
    for copies in layout.copies:
        for device in copies:
            held[device] += 1
    return max(held) * layout.num_devices / layout.num_stages


def headline(shown: Preview) -> str:
    """What a schedule is, and how it does."""
    parts = figures(shown)
    if shown.step != shown.makespan:
        [unit, [step]] = times([shown], [shown.step])
        parts.insert(1, f"step {step} {unit}")
    return f"{shown.schedule.name}: {', '.join(shape(shown))}\n{', '.join(parts)}\n"


def device_table(shown: Preview, over: Sequence[int]) -> Table:
    """One row for each device; those in `over` are over the cap."""
    names = ("busy", "idle", "first", "last")
    columns, heads = [], []
    for name in names:
        unit, cells = times([shown], [getattr(use, name) for use in shown.timeline.devices])
        heads.append(f"{name} ({unit})" if unit else name)
        columns.append(cells)
    columns.append(column([curve.peak for curve in shown.curves]))
    table = plain_table("device", *heads, "peak")
    for device, row in enumerate(zip(*columns, strict=True)):
        table.add_row(str(device), *row, "over the cap" if device in over else "")
    return table


def over_cap(shown: Preview, cap: float) -> list[int]:
    """The devices whose activation exceeds the cap."""
    return [device for device, curve in enumerate(shown.curves) if curve.peak > cap + 1e-9]


def speedup(first: Preview, other: Preview) -> float | None:
    """How many times faster than the first; None where nothing takes any time."""
    return first.makespan / other.makespan if other.makespan else None


def comparison_table(files: Sequence[Path], previews: Sequence[Preview]) -> Table:
    """One row for each schedule."""
    ratios = [speedup(previews[0], shown) for shown in previews]
    unit, makespans = times(previews, [shown.makespan for shown in previews])
    columns = [
        short_names(files),
        makespans,
        ["-" if ratio is None else f"{ratio:.3f}x" for ratio in ratios],
        [percent(shown.bubble) for shown in previews],
        column([shown.peak for shown in previews]),
        [f"{weights}x" for weights in column([weights_held(shown.schedule.layout) for shown in previews])],
        [str(shown.schedule.num_actions) for shown in previews],
    ]
    makespan = f"makespan ({unit})" if unit else "makespan"
    table = plain_table("schedule", makespan, "speed-up", "bubble", "peak", "weights", "actions")
    table.columns[0].justify, table.columns[0].overflow = "left", "fold"
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table


def short_names(files: Sequence[Path]) -> list[str]:
    """Paths without the folder that all share, and without the ending of schedule files."""
    common = os.path.commonpath([file.absolute().parent for file in files])
    return [os.path.relpath(file, common).removesuffix(".schedule.json") for file in files]


def unlike(previews: Sequence[Preview]) -> Iterator[str]:
    """Why the makespans of these schedules are not of the same work, or not on one clock."""
    layouts = [shown.schedule.layout for shown in previews]
    tokens = [sum(layout.sequences) for layout in layouts]
    if len(set(tokens)) > 1:
        yield f"the schedules train on different numbers of tokens ({_listed(tokens)}): their work is not the same"
    if previews[0].timeline.prices.clock == "unit":
        for what, values in (
            ("devices", [layout.num_devices for layout in layouts]),
            ("tokens in a microbatch", [layout.longest for layout in layouts]),
        ):
            if len(set(values)) > 1:
                yield (
                    f"the schedules have different numbers of {what} ({_listed(values)}), so 1 is not the same time "
                    "for each; --costs MODEL-HARDWARE puts them on one clock"
                )


def times(previews: Sequence[Preview], values: Sequence[float]) -> tuple[str, list[str]]:
    """Times on the clock that these previews share: the unit that fits all of them, and the numbers."""
    longest = max(shown.makespan for shown in previews)
    factor, unit = scale(previews[0].timeline.prices.clock, longest)
    return unit, column([value * factor for value in values], 2 if unit else 4)


def column(values: Sequence[float], most: int = 4) -> list[str]:
    """Numbers with equally many decimals, as few as show them all exactly, and at most so many."""
    digits = next((n for n in range(most) if all(abs(round(v, n) - v) < 1e-9 for v in values)), most)
    return [f"{round(value, digits) + 0.0:.{digits}f}" for value in values]


def plain_table(*heads: str) -> Table:
    """A table of numbers, without rules."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, justify="right")
    return table


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
