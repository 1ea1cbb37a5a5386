"""Two or more calls measured in turn, so that a machine whose speed drifts is fair to all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.table import Table


def in_turn(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of `rounds` calls of each, A B A B ..., after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            begun = perf_counter()
            call()
            if number:
                times[name].append(perf_counter() - begun)
    return times


def show(
    console: Console, title: str, times: Mapping[str, list[float]], base: str, aims: Mapping[str, str]
) -> None:
    """A table of medians and minima, their ratios to those of `base` (and the inverse), and what is aimed at."""
    table = Table(
        title=title, title_justify="left", caption=f"ratios to {base}", caption_justify="left", box=None
    )
    for column in ("", "median", "minimum", "time", "of minima", "speed", "aim"):
        table.add_column(column, justify="left" if column in ("", "aim") else "right", no_wrap=True)
    for name, seconds in times.items():
        ratio, least = median(seconds) / median(times[base]), min(seconds) / min(times[base])
        table.add_row(
            name,
            f"{1000 * median(seconds):.0f} ms",
            f"{1000 * min(seconds):.0f} ms",
            f"{ratio:.3f}",
            f"{least:.3f}",
            f"{1 / ratio:.3f}",
            aims.get(name, ""),
        )
    console.print(table, "")
