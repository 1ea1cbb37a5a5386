"""A search in a process of its own: a screen beside it stays quick, and it ends the moment that it is told to."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

from contraflow.designer import costs
from contraflow.designer.design import Preview, preview
from contraflow.designer.format.schedule import Schedule

from .designs import jointly
from .judge import Cap
from .search import FOREVER
from .standing import Progress

EVERY = 0.1
"""Seconds between two looks at whether to stop."""


class SearchLost(RuntimeError):
    """The process of a search has died; the one-line message says how."""


class _News(NamedTuple):
    """A `Progress` on its way: its schedule where that is another than the one before, and the rest."""

    schedule: Schedule | None
    bound: float
    seconds: float
    how: str
    better: bool
    optimal: bool


def apart(
    schedule: Schedule,
    prices: str,
    cap: Cap,
    free: Sequence[str] = (),
    *,
    seed: int = 0,
    seconds: float = FOREVER,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """What `jointly` yields, worked out in another process, which is gone when this iterator is left or told to stop.

    Raises what `jointly` raises, and SearchLost.
    """
    cost_model = costs.named(prices)
    shown = preview(schedule, cost_model)
    context = get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(
        target=_work, args=(there, schedule, prices, cap, tuple(free), seed, seconds), daemon=True
    )
    child.start()
    there.close()
    try:
        while not stop():
            if not here.poll(EVERY):
                continue
            try:
                news = here.recv()
            except (EOFError, ConnectionResetError):
                child.join()
                raise SearchLost(f"the search's process died (exit code {child.exitcode})") from None
            if news is None:
                return
            if isinstance(news, Exception):
                raise news
            if news.schedule is not None:
                shown = preview(news.schedule, cost_model)
            yield Progress(shown, *news[1:])
    finally:
        child.kill()
        child.join()
        here.close()


def _work(
    pipe: Connection,
    schedule: Schedule,
    prices: str,
    cap: Cap,
    free: Sequence[str],
    seed: int,
    seconds: float,
) -> None:
    """What the process does."""
    # Ctrl-C is for those who watch; what libraries print would spoil their screen.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if hasattr(os, "nice"):
        os.nice(5)
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    told: Preview | None = None
    try:
        for progress in jointly(schedule, prices, cap, free, seed=seed, seconds=seconds):
            shown = progress.shown
            new = shown.schedule if shown is not told else None
            told = shown
            pipe.send(
                _News(new, progress.bound, progress.seconds, progress.how, progress.better, progress.optimal)
            )
        pipe.send(None)
    except Exception as error:
        pipe.send(error)


def _end_with_parent(pipe: Connection) -> None:
    """Nothing is ever sent this way: the pipe ends with whoever began the search."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os._exit(0)
