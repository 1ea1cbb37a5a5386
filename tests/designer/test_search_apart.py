"""A search in a process of its own: the same answers, and nothing left behind."""

from __future__ import annotations

import os
import signal
from itertools import islice
from multiprocessing import active_children

import pytest

pytest.importorskip("ortools", reason="search is an optional extra")

from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, DesignError, make, preview
from contraflow.designer.format.check import check
from contraflow.designer.search import Cap, NoStart, SearchLost, apart, jointly

pytestmark = pytest.mark.processes

GPIPE = make(Design("gpipe", devices=2, microbatches=3))
OPEN = make(Design("bsipipe", microbatches=6, subsequences=4, budget=2.0), effort=1)
"""Takes long to prove anything of."""


def test_it_finds_what_it_finds_in_one_process() -> None:
    found = list(apart(GPIPE, "unit", Cap(2.0), seconds=100))
    wanted = list(jointly(GPIPE, "unit", Cap(2.0), (), seconds=100))
    assert found[-1].optimal
    better = [
        [(step.shown.schedule, step.bound, step.how) for step in steps if step.better]
        for steps in (found, wanted)
    ]
    assert better[0] == better[1]
    assert active_children() == []


def test_every_step_is_valid_and_better_and_leaving_ends_it() -> None:
    search = apart(OPEN, "unit", Cap(2.0))
    steps = list(islice(search, 2))
    assert len(active_children()) == 1
    search.close()  # type: ignore[attr-defined]
    assert active_children() == []
    for step in steps:
        assert check(step.shown.schedule) == []
        assert step.shown.peak <= 2.0
    spans = [step.shown.makespan for step in steps]
    assert spans == sorted(spans, reverse=True)
    assert spans[0] <= preview(OPEN, unit).makespan


def test_it_stops_when_told() -> None:
    told = iter([False, False])
    assert list(apart(OPEN, "unit", Cap(2.0), stop=lambda: next(told, True))) == []
    assert active_children() == []


def test_what_it_raises_is_raised_here() -> None:
    with pytest.raises(NoStart, match=r"keeps within 0\.25 whole microbatches"):
        list(apart(GPIPE, "unit", Cap(0.25)))
    with pytest.raises(DesignError, match="no knob 'nothing' to free"):
        list(apart(GPIPE, "unit", Cap(2.0), ("nothing",)))
    assert active_children() == []


def test_a_process_that_is_killed_is_told() -> None:
    search = apart(OPEN, "unit", Cap(2.0))
    next(search)
    [child] = active_children()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(SearchLost, match=r"died \(exit code -9\)"):
        list(search)
    assert active_children() == []
