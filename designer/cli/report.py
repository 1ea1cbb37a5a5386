"""Previews in figures: as JSON, as headlines and as tables. Commands import this when they run: it loads rich."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from contraflow.designer.costs import CostError, CostModel
from contraflow.designer.design import Preview, preview
from contraflow.designer.export import held as levels
from contraflow.designer.export import text
from contraflow.designer.export.axis import scale
from contraflow.designer.format.check import load
from contraflow.designer.format.schedule import Layout
from contraflow.designer.topology import mapped

from .arguments import MemoryCap

GIB = 2**30


def read(path: Path, cost_model: CostModel) -> Preview:
    """The preview of a file. Raises NotAScheduleError, InvalidScheduleError, or CostError with the file's name."""
    schedule = load(path)
    try:
        return preview(schedule, cost_model)
    except CostError as error:
        raise CostError(f"{path}: {error}") from None


def on_ranks(shown: Preview, word: str) -> Preview:
    """The same schedule with its devices on the ranks that the word means. Raises CostError."""
    layout = shown.schedule.layout
    ranks = mapped(word, layout, shown.costs)
    return preview(replace(shown.schedule, layout=replace(layout, ranks=ranks)), shown.costs)


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
        "ranks": shown.schedule.layout.ranks,
        "weights": weights_held(shown.schedule.layout),
        "actions": shown.schedule.num_actions,
        "tokens_per_s": shown.tokens_per_second,
        "peak_bytes": shown.peak_bytes,
        "bytes_between_nodes": None if shown.traffic is None else shown.traffic.total,
        "devices": [
            {
                "busy": use.busy,
                "idle": use.idle,
                "first": use.first,
                "last": use.last,
                "peak_activation": curve.peak,
                "peak_bytes": held,
            }
            for use, curve, held in zip(timeline.devices, shown.curves, peak_bytes(shown), strict=True)
        ],
    }


def peak_bytes(shown: Preview) -> list[float] | list[None]:
    """The most bytes of each device, each None where the costs know of no model."""
    return [None] * len(shown.curves) if shown.memory is None else [curve.peak for curve in shown.memory]


def weights_held(layout: Layout) -> float:
    """The most weights on a device, where 1 is its share of one copy of the model."""
    held = [0] * layout.num_devices
    for copies in layout.copies:
        for device in copies:
            held[device] += 1
    return max(held) * layout.num_devices / layout.num_stages


def headline(shown: Preview) -> str:
    """What a schedule is, and how it does."""
    figures = text.headline(shown, levels.held(shown))
    return f"{shown.schedule.name}: {', '.join(text.shape(shown))}\n{', '.join(figures)}\n"


def device_table(shown: Preview, over: Sequence[int]) -> Table:
    """One row for each device; those in `over` are over the cap."""
    names = ("busy", "idle", "first", "last")
    columns, heads = [], []
    for name in names:
        unit, cells = times([shown], [getattr(use, name) for use in shown.timeline.devices])
        heads.append(f"{name} ({unit})" if unit else name)
        columns.append(cells)
    columns.append(column([curve.peak for curve in shown.curves]))
    heads.append("activation" if shown.memory else "peak")
    if shown.memory:
        columns.append([f"{curve.peak / GIB:.1f}" for curve in shown.memory])
        heads.append("memory (GiB)")
    table = plain_table("device", *heads)
    for device, row in enumerate(zip(*columns, strict=True)):
        table.add_row(str(device), *row, "over" if device in over else "")
    return table


def over_cap(shown: Preview, cap: MemoryCap) -> list[int]:
    """The devices that hold more than the cap. Raises CostError for bytes where the costs know of no model."""
    return [device for device, held in enumerate(_held(shown, cap)) if held > cap.amount * (1 + 1e-9)]


def excess(shown: Preview, cap: MemoryCap, over: Sequence[int]) -> str:
    """Which devices are over the cap, and what they hold."""
    held = _held(shown, cap)
    word = gibibytes if cap.in_bytes else "{:.4g}".format
    devices = ", ".join(f"device {device} ({word(held[device])})" for device in over)
    return f"over the cap of {word(cap.amount)}{'' if cap.in_bytes else ' whole microbatches'}: {devices}"


def _held(shown: Preview, cap: MemoryCap) -> list[float]:
    if not cap.in_bytes:
        return [curve.peak for curve in shown.curves]
    if shown.memory is None:
        raise CostError(
            f"{shown.costs.name} knows of no bytes: a cap in bytes needs --costs MODEL-HARDWARE or a model.toml"
        )
    return [curve.peak for curve in shown.memory]


def gibibytes(size: float) -> str:
    """Bytes for people."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / 2**20:.1f} MiB"


def speedup(first: Preview, other: Preview) -> float | None:
    """How many times faster than the first; None where nothing takes any time."""
    return first.step / other.step if other.step else None


def comparison_table(names: Sequence[str], previews: Sequence[Preview]) -> Table:
    """One row for each schedule; times are of a whole step where the costs know one."""
    ratios = [speedup(previews[0], shown) for shown in previews]
    word = "step" if previews[0].timeline.prices.clock == "seconds" else "makespan"
    unit, makespans = times(previews, [shown.step for shown in previews])
    columns = {
        f"{word}\n({unit})" if unit else word: makespans,
        "speed-up": ["-" if ratio is None else f"{ratio:.3f}x" for ratio in ratios],
        "bubble": [text.percent(shown.bubble) for shown in previews],
    }
    held = column([weights_held(shown.schedule.layout) for shown in previews])
    weights = {"weights": [f"{times}x" for times in held]}
    if previews[0].costs.footprint is None:
        columns |= {"peak": column([shown.peak for shown in previews])} | weights
        columns["actions"] = [str(shown.schedule.num_actions) for shown in previews]
    else:
        columns["tokens\nper s"] = [f"{shown.tokens_per_second or 0:,.0f}" for shown in previews]
        columns["memory\n(GiB)"] = [f"{(shown.peak_bytes or 0) / GIB:.1f}" for shown in previews]
        columns |= weights
        if previews[0].timeline.prices.network.nodes:
            between = [shown.traffic.total if shown.traffic else 0 for shown in previews]
            columns["between\nnodes\n(GiB)"] = [f"{size / GIB:.1f}" for size in between]
    table = plain_table("schedule", *columns)
    table.columns[0].justify, table.columns[0].overflow = "left", "fold"
    for row in zip(names, *columns.values(), strict=True):
        table.add_row(*row)
    return table


def short_names(files: Sequence[Path]) -> list[str]:
    """Paths without the folder that all share, and without the ending of schedule files."""
    common = os.path.commonpath([file.absolute().parent for file in files])
    return [os.path.relpath(file, common).removesuffix(".schedule.json") for file in files]


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
        table.add_column(head, justify="right", no_wrap=True)
    return table
