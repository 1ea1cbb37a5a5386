"""Knobs instead of actions: the design that takes least time under a memory cap, down to the borders of its splits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, product
from random import Random
from time import monotonic
from typing import Any

from contraflow.designer import costs
from contraflow.designer.costs.prices import CostModel
from contraflow.designer.design import BALANCED, Design, DesignError, Preview, carried, make, preview
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.generators import GENERATORS
from contraflow.designer.generators.concatenation import least_budget
from contraflow.designer.generators.request import QUICK
from contraflow.designer.topology import BEST

from .judge import Cap, Judge
from .search import FOREVER, GIVEN, search
from .standing import Progress

KNOBS = {
    "splits": "the borders of the subsequences",
    "subsequences": "how many there are",
    "budget": "how much activation bsipipe and bsipipe-zb may hold",
    "directions": "the generator, and with it the directions and whether backwards are I and W",
    "units": "how many microbatches of each direction make a basic unit",
    "layers": "layers evenly or balanced",
    "ranks": "which rank plays which device",
}
"""What can be freed, as `--free` names it."""

SPARE = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Budgets beyond the least, in whole microbatches."""

LONGEST_STEP = 6
"""Borders move by a multiple of tokens doubled at most so often."""

PATIENCE = 60
"""Moves of a border in a row that gain nothing, after which no more are tried."""

DESIGNING = 0.5
"""Of the time, where knobs are free."""

Fits = Callable[[Preview], bool]
"""Whether what is shown keeps to the memory cap."""


def free_knobs(names: Sequence[str], schedule: Schedule) -> Design | None:
    """The knobs of a file for which `names` are free; None where it carries none, and only its borders can move.

    Raises DesignError for a name that is none, and for knobs of a file that carries none.
    """
    if not names:
        return carried(schedule)
    for name in names:
        if name not in KNOBS:
            raise DesignError(f"no knob {name!r} to free; there are {', '.join(KNOBS)}")
    design = carried(schedule)
    if design is None and set(names) != {"splits"}:
        raise DesignError(
            "the file does not say which knobs made it, so only --free splits is possible: "
            "make one with contraflow new"
        )
    return design


def jointly(
    schedule: Schedule,
    prices: str,
    cap: Cap,
    free: Sequence[str],
    *,
    seed: int = 0,
    seconds: float = FOREVER,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Better and better schedules: the free knobs in the first part of the time, then the order of the best.

    Raises what `search` raises, and DesignError as `free_knobs` does.
    """
    began = monotonic()
    cost_model = costs.named(prices)
    free_knobs(free, schedule)
    judge = Judge(schedule, cost_model, cap)
    best = schedule
    if free:
        until = began + DESIGNING * seconds
        for found in designs(schedule, prices, free, judge.keeps, seed):
            if found is not None:
                best = found.schedule
                yield Progress(found, 0.0, monotonic() - began, "a design", better=True, optimal=False)
            if stop() or monotonic() >= until:
                break
    spent = monotonic() - began
    for progress in search(best, cost_model, cap, seed=seed, seconds=seconds - spent, stop=stop):
        # What the knobs have come to is known already.
        better = progress.better and (not free or progress.how != GIVEN)
        yield replace(progress, seconds=monotonic() - began, better=better)


def designs(
    schedule: Schedule, prices: str, free: Collection[str], fits: Fits, seed: int
) -> Iterator[Preview | None]:
    """Better and better schedules, and None for every trial that is none, so that the caller can look at the clock.

    First the knobs, one after the other, until none gains; then the borders, at random. What comes first is the
    schedule itself, where it fits. `prices` names the cost model. Raises CostError where there is none.
    """
    search = _Search(costs.named(prices), fits)
    yield search.shown(schedule)
    design = carried(schedule)
    if design is not None:
        design = replace(design, costs=prices)
        gained = True
        while gained:
            before = search.best
            design = yield from _better_knobs(search, design, free)
            gained = search.best is not before
    if "splits" in free:
        yield from _better_borders(search, schedule if design is None else design, Random(seed))
    if design is not None and search.design is not None:
        yield search.made(search.design, whole=True)


class _Search:
    """The best that was seen."""

    def __init__(self, cost_model: CostModel, fits: Fits):
        self.cost_model, self.fits = cost_model, fits
        self.best: Preview | None = None
        self.design: Design | None = None
        """The knobs of the best; None where it has none."""

    def shown(self, schedule: Schedule, design: Design | None = None) -> Preview | None:
        """What is shown of a schedule, where it is better than all before it."""
        shown = preview(schedule, self.cost_model)
        better = self.best is None or shown.step < self.best.step * (1 - 1e-9)
        if not (better and self.fits(shown)):
            return None
        self.best, self.design = shown, design
        return shown

    def made(self, design: Design, whole: bool = False) -> Preview | None:
        try:
            schedule = make(design) if whole else make(design, QUICK)
        except DesignError:
            return None
        return self.shown(schedule, design)


def _better_knobs(
    search: _Search, design: Design, free: Collection[str]
) -> Generator[Preview | None, None, Design]:
    for name in KNOBS:
        if name not in free:
            continue
        best = design
        for values in _alternatives(name, design, free):
            found = search.made(replace(design, **values))
            if found is not None:
                best = replace(design, **values)
            yield found
        design = best
    return design


def _alternatives(name: str, design: Design, free: Collection[str]) -> Iterator[dict[str, Any]]:
    """Other values of a knob, with those of the knobs that depend on it."""
    if name == "splits":
        yield from ({"split": word} for word in ("even", "compute", "time"))
    elif name == "subsequences":
        now = design.num_subsequences
        word = design.split if isinstance(design.split, str) else "even"
        for count in dict.fromkeys((now // 2, now - 1, now + 1, 2 * now)):
            if count >= 1 and count != now:
                yield {"subsequences": count, "split": word}
    elif name == "budget":
        if design.kind.budgeted:
            yield from ({"budget": budget} for budget in _budgets(design.unit_microbatches))
    elif name == "directions":
        for kind in GENERATORS.values():
            lacking: dict[str, Any] = {} if kind.cuts else {"subsequences": None, "split": "even"}
            if kind.directions == 1:
                # Listed directions also say how many microbatches there are.
                lacking |= {"directions": None, "microbatches": design.num_microbatches}
            budgets: Sequence[float | None] = (None,)
            if kind.budgeted:
                own = _budgets(design.unit_microbatches)
                budgets = own if "budget" in free else (design.budget,)
            for budget, stages in product(budgets, sorted({kind.stages_per_device, 2})):
                yield {"generator": kind.name, "budget": budget, "stages_per_device": stages, **lacking}
    elif name == "units":
        if design.kind.budgeted:
            for unit in (1, 2, 3):
                for budget in _budgets(unit) if "budget" in free else (design.budget,):
                    yield {"unit_microbatches": unit, "budget": budget}
    elif name == "layers":
        yield from ({"layers": value} for value in (None, BALANCED))
    elif name == "ranks":
        yield from ({"ranks": value} for value in (None, BEST))


def _budgets(unit_microbatches: int) -> list[float]:
    return [least_budget(unit_microbatches) + spare for spare in SPARE]


def _better_borders(search: _Search, start: Design | Schedule, rng: Random) -> Iterator[Preview | None]:
    """Of a design all microbatches are cut alike, and the order is made anew; of a file without knobs it is kept."""
    failed = 0
    while failed < PATIENCE:
        moved = _moved_design(start, rng) if isinstance(start, Design) else _moved_splits(start, rng)
        found = None
        if isinstance(moved, Design):
            found = search.made(moved)
        elif moved is not None:
            found = search.shown(moved)
        if found is None:
            failed += 1
        elif moved is not None:
            start, failed = moved, 0
        yield found


def _moved_design(design: Design, rng: Random) -> Design | None:
    lengths = _moved(design.lengths(), design.multiple, rng)
    return None if lengths is None else replace(design, split=lengths, subsequences=None)


def _moved_splits(schedule: Schedule, rng: Random) -> Schedule | None:
    """A border of one split moved, for all microbatches that are cut so."""
    splits = schedule.layout.splits
    old = rng.choice(sorted(set(splits)))
    new = _moved(old, max(sum(old) // 256, 1), rng)
    if new is None:
        return None
    layout = replace(schedule.layout, splits=tuple(new if split == old else split for split in splits))
    return replace(schedule, layout=layout)


def _moved(lengths: Sequence[int], multiple: int, rng: Random) -> tuple[int, ...] | None:
    """One border moved to a multiple of `multiple` tokens; None where there is no way to go."""
    if len(lengths) < 2:
        return None
    borders = [0, *accumulate(lengths)]
    index = rng.randrange(1, len(lengths))
    step = multiple * 2 ** rng.randrange(LONGEST_STEP) * rng.choice((-1, 1))
    borders[index] = round((borders[index] + step) / multiple) * multiple
    moved = tuple(stop - start for start, stop in pairwise(borders))
    return moved if min(moved) > 0 else None
