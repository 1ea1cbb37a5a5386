"""`contraflow search`: a better program under a memory cap, or a better design."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import Costs, File, Json, at_least, cap, whole
from .exit import Complaint, Exit
from .output import console, narrate, put, put_json, write

if TYPE_CHECKING:
    from rich.status import Status

    from contraflow.designer.costs.prices import Clock
    from contraflow.designer.search import Progress

INSTALL = "pip install 'ortools>=9.15'"


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


# typer knows neither tuples of its own nor of any length: the parsers make them.
Within = Annotated[
    Any,
    typer.Option(
        "--cap",
        metavar="CAP",
        parser=cap,
        help="what a device may hold: whole microbatches of activation, or bytes such as 70GiB "
        "(default: the activation that FILE holds)",
    ),
]
Free = Annotated[
    Any,
    typer.Option(
        "--free",
        metavar="KNOBS",
        parser=_names,
        help="knobs to move as well: splits, subsequences, budget, directions, units, layers, ranks, "
        "with commas between",
    ),
]
Seconds = Annotated[int, typer.Option(metavar="N", parser=at_least(1), help="how long to search")]
Seed = Annotated[int, typer.Option(metavar="N", parser=whole, help="of all that is drawn")]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="written anew, whole, with each better program; without it the best goes to stdout",
    ),
]


def search(
    file: File,
    within: Within = None,
    free: Free = None,
    seconds: Seconds = 60,
    seed: Seed = 0,
    costs: Costs = "unit",
    output: Output = None,
    json: Json = False,
) -> Exit:
    """A better program under a memory cap, or a better design. Ctrl-C ends the search and keeps the best.

    Equal searches find equal programs in equal order, where Python and OR-tools are the same; --seconds decides how
    far they come.
    """
    from contraflow.designer.costs import named
    from contraflow.designer.format.file import dumps
    from contraflow.designer.search import Cap, NoStart, jointly

    from . import report

    given = report.read(file, named(costs))
    limit = Cap(given.peak) if within is None else Cap(*within)
    if output is not None and not output.parent.is_dir():
        raise Complaint(f"{output} cannot be written: there is no folder {output.parent}")
    clock = given.timeline.prices.clock
    last: Progress | None = None
    written = False
    with told_to_stop() as signals, status_line(json) as line:
        try:
            for progress in jointly(
                given.schedule,
                costs,
                limit,
                free or (),
                seed=seed,
                seconds=seconds,
                stop=lambda: bool(signals),
            ):
                last = progress
                if progress.better:
                    say(f"{progress.seconds:6.1f} s: {in_words(progress, clock)}, by {progress.how}", line)
                    # The given program has its file, and another one there may be better.
                    if output is not None and progress.shown.schedule != given.schedule:
                        write(dumps(progress.shown.schedule), output)
                        written = True
                if line is not None:
                    line.update(f"{progress.seconds:.0f} of {seconds} s: {in_words(progress, clock)}")
        except NoStart as error:
            raise Complaint(f"{file}: {error}", Exit.FINDINGS) from None
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] != "ortools":
                raise
            raise Complaint(f"needs OR-tools, which is not installed here: {INSTALL}", Exit.MISSING) from None
    assert last is not None
    if output is not None and not written:
        write(dumps(last.shown.schedule), output)
    ended = None if not signals else signal.Signals(signals[0]).name
    if json:
        put_json(
            {
                "file": None if output is None else str(output),
                "before": given.makespan,
                "makespan": last.shown.makespan,
                "bound": last.bound,
                "optimal": last.optimal,
                "peak_activation": last.shown.peak,
                "peak_bytes": last.shown.peak_bytes,
                "seconds": last.seconds,
                "how": last.how,
                "interrupted": ended,
            }
        )
    elif output is None:
        put(dumps(last.shown.schedule))
    kept = "" if ended is None else "interrupted, the best is kept: "
    narrate(f"{'' if output is None else f'{output}: '}{kept}{in_words(last, clock)}")
    # Who presses Ctrl-C has seen enough; who ends a process wants to see that it was ended.
    if signals and signals[0] != signal.SIGINT:
        raise SystemExit(128 + signals[0])
    return Exit.FINE


def in_words(progress: Progress, clock: Clock) -> str:
    """The best, and what is proven."""
    from contraflow.designer.export.axis import figure

    best = progress.shown.makespan
    proven = f"at least {figure(progress.bound, clock, best)}"
    if progress.optimal:
        proven = "proven to be the least"
    return f"makespan {figure(best, clock)}, {proven}"


def say(text: str, line: Status | None) -> None:
    """Above the line that moves, where there is one."""
    if line is None:
        narrate(text)
    else:
        line.console.print(text)


@contextmanager
def status_line(json: bool) -> Iterator[Status | None]:
    """A line on stderr that moves; None where that is no terminal, or JSON on the same one would mix with it."""
    screen = console(stderr=True)
    if not screen.is_terminal or (json and sys.stdout.isatty()):
        yield None
        return
    with screen.status("searching") as line:
        yield line


@contextmanager
def told_to_stop() -> Iterator[list[int]]:
    """Within, the first signal that would end the process is only noted; a second one ends it."""
    noted: list[int] = []
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _: object) -> None:
        noted.append(number)
        restore()

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            number = getattr(signal, name)
            before[number] = signal.signal(number, note)
    try:
        yield noted
    finally:
        restore()
