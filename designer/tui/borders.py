"""The borders of subsequences: where they are, where they can go, and what lies between them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from contraflow.designer import costs
from contraflow.designer.costs.presets import DEFAULT
from contraflow.designer.costs.work import layer_work
from contraflow.designer.design import Design, Preview

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Part:
    """One subsequence: its tokens, and its shares of all work and of all time; what it holds, in words."""

    start: int
    stop: int
    work: float
    time: float
    held: str


def parts(shown: Preview, name: str) -> tuple[Part, ...]:
    """The subsequences of microbatch 0 on the costs of this name; work is the causal work of the model behind them.

    What a subsequence holds is the mean over the devices: bytes where the costs know any, else whole microbatches.
    """
    layout, prices = shown.schedule.layout, shown.timeline.prices
    shape = costs.model_behind(name if name != "unit" else DEFAULT)
    borders = layout.borders(0)
    work = [layer_work(shape, *border) for border in borders]
    time, held = [0.0] * len(borders), [0.0] * len(borders)
    for stage in range(layout.num_stages):
        for q in range(len(borders)):
            slot = layout.slot(stage, 0, q)
            time[q] += prices.forward[slot] + prices.backward[slot]
            if shown.footprint is not None:
                held[q] += shown.footprint.activations[slot] / layout.num_devices
    words = [f"{size / GIB:.2f} GiB" for size in held]
    if shown.footprint is None:
        words = [f"{(stop - start) / layout.longest:.3g} mb" for start, stop in borders]
    return tuple(
        Part(start, stop, work[q] / sum(work), time[q] / (sum(time) or 1.0), words[q])
        for q, (start, stop) in enumerate(borders)
    )


def moved(lengths: tuple[int, ...], border: int, to: int) -> tuple[int, ...]:
    """The lengths with a border (1 is the first between two subsequences) at a token, none becoming empty."""
    marks = [0, *accumulate(lengths)]
    marks[border] = min(max(to, marks[border - 1] + 1), marks[border + 1] - 1)
    return tuple(stop - start for start, stop in pairwise(marks))


def stepped(lengths: tuple[int, ...], border: int, by: int, multiple: int) -> tuple[int, ...]:
    """The lengths with a border on the next multiple up (by > 0) or down, `by` multiples away."""
    here = sum(lengths[:border])
    steps = here // multiple + by if by > 0 else -(-here // multiple) + by
    return moved(lengths, border, steps * multiple)


def cut_by_hand(design: Design, lengths: tuple[int, ...]) -> Design:
    """The design with these lengths, which say how many there are."""
    return replace(design, split=lengths, subsequences=None)


def cut_by_rule(design: Design, rule: str) -> Design:
    """The design cut `even`, by `compute` or by `time`, in as many subsequences as now."""
    return replace(design, split=rule, subsequences=design.num_subsequences)
