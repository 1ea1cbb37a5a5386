"""Every schedule on LLaMA-3-8B, 8 H100s in 2 nodes: where two directions win, where they do not, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from markdown import table

from contraflow.designer import costs
from contraflow.designer.costs.prices import CostModel, Link, Network, Prices
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, DesignError, Preview, make, preview
from contraflow.designer.explain import CAUSES
from contraflow.designer.format.schedule import Layout
from contraflow.designer.generators import GENERATORS, Request

MACHINE = Path(__file__).with_name("h100-2x4.toml")
DEVICES = 8
SEQUENCES = (65536, 131072)
MICROBATCHES = (4, 8)
SUBSEQUENCES = (4, 8)
SPLITS = ("even", "compute", "time")
EFFORT = 2**14
"""Of each of the many orders that are made to find where preference turns."""
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Row:
    """One schedule in one shape."""

    design: Design
    shown: Preview

    @property
    def name(self) -> str:
        cut = f", k={self.design.num_subsequences}, {self.design.split}" if self.design.kind.cuts else ""
        return f"{self.design.generator}{cut}"


def rows(sequence: int, microbatches: int, machine: Path = MACHINE) -> Iterator[Row]:
    """All generators that have something to say of this shape, each cut in all ways that it can be."""
    model = costs.named(str(machine))
    for kind in GENERATORS.values():
        for count in SUBSEQUENCES if kind.cuts else (1,):
            for split in SPLITS if kind.cuts else ("even",):
                design = Design(
                    kind.name,
                    DEVICES,
                    microbatches,
                    count,
                    sequence=sequence,
                    split=split,
                    layers="balanced",
                    ranks="best",
                    costs=str(machine),
                )
                try:
                    yield Row(design, preview(make(design), model))
                except DesignError:
                    continue


def text() -> str:
    """The page."""
    parts = [INTRODUCTION]
    best: dict[tuple[int, int], list[Row]] = {}
    for sequence in SEQUENCES:
        for microbatches in MICROBATCHES:
            found = sorted(rows(sequence, microbatches), key=lambda row: row.shown.step)
            best[sequence, microbatches] = found
            parts.append(f"## {sequence:,} tokens, {microbatches} microbatches\n")
            parts.append(table(HEADS, (cells(row) for row in found)))
            refused = [name for name in GENERATORS if name not in {row.design.generator for row in found}]
            if refused:
                parts.append(f"Not possible in this shape: {', '.join(refused)}.\n")
    parts.insert(1, summary(best))
    parts.append(turning_points())
    return "\n".join(parts)


HEADS = (
    "schedule",
    "step s",
    "tokens/s",
    "bubble",
    "activation",
    "peak GiB",
    "weights GiB",
    "between nodes GiB",
)


def cells(row: Row) -> list[str]:
    """A row of the large tables."""
    shown = row.shown
    assert shown.tokens_per_second is not None
    assert shown.peak_bytes is not None
    assert shown.traffic is not None
    assert shown.footprint is not None
    weights = shown.footprint.weights
    return [
        row.name,
        f"{shown.step:.3f}",
        f"{shown.tokens_per_second:,.0f}",
        f"{100 * shown.bubble:.1f} %",
        f"{shown.peak:.3f}",
        f"{shown.peak_bytes / GIB:.1f}",
        f"{max(weights) / GIB:.1f}",
        f"{shown.traffic.total / GIB:.1f}",
    ]


INTRODUCTION = """\
# LLaMA-3-8B on 8 H100s in 2 nodes

Made by `make study` from `h100-2x4.toml`: every figure is a prediction, in seconds modelled for that machine, with
causal attention, bfloat16 and float32 gradients, activation checkpointing, one sequence in a microbatch; messages,
reductions of mirrored copies and the optimizer's step included. Layers are balanced with embedding and head counted,
and devices sit on the ranks for which least time is spent between nodes. The orders of bsipipe and bsipipe-zb are made
for these very prices, within their default budget of 2.5 microbatches of activation.

*Activation* is the peak in whole microbatches through a device's share. *Peak GiB* counts everything on the fullest
GPU: weights (twice in two directions), gradients, optimizer state, activations, keys and values, messages, and the
log-likelihoods of the vocabulary, which without a fused cross-entropy are the largest part on the last stage's device.
*Between nodes* is what one step sends from node to node.
"""

TWO_DIRECTIONS = ("bsipipe", "bsipipe-zb")


def summary(best: dict[tuple[int, int], list[Row]]) -> str:
    """Who is fastest in each shape, and by how much."""
    lines = []
    for (sequence, microbatches), found in best.items():
        one = next(row for row in found if row.design.kind.directions == 1)
        cells = [f"{sequence:,} x {microbatches}", one.name, f"{one.shown.step:.3f}"]
        for name in TWO_DIRECTIONS:
            ours = next(row for row in found if row.design.generator == name)
            cells += [f"{ours.shown.step:.3f}", f"{one.shown.step / ours.shown.step:.3f}x"]
        lines.append(cells)
    heads = ["tokens x microbatches", "fastest in one direction", "s"]
    for name in TWO_DIRECTIONS:
        heads += [f"{name} s", "speed-up"]
    return f"## In short\n\n{table(heads, lines)}\n{why(best)}"


def why(best: dict[tuple[int, int], list[Row]]) -> str:
    """Where the time of the fastest schedules goes in the first shape, device by device at the median."""
    shape, found = next(iter(best.items()))
    names = ("seq1f1b", "seq1f1b-interleaved", "seq1f1b-zb", *TWO_DIRECTIONS)
    lines = []
    for name in names:
        row = next((row for row in found if row.design.generator == name), None)
        if row is None:
            continue
        shown = row.shown
        busy = sum(use.busy for use in shown.timeline.devices)
        idle = [entry.by_cause() for entry in shown.explanation.idle]
        causes = [sum(entry[cause] for entry in idle) for cause in CAUSES]
        seconds = [time / DEVICES for time in (busy, *causes)] + [shown.timeline.prices.after_step]
        lines.append([row.name, *(f"{1000 * time:.0f}" for time in seconds)])
    said = f"Where a step's milliseconds go, mean of the devices, {shape[0]:,} tokens and {shape[1]} microbatches:"
    return f"{said}\n\n{table(['schedule', 'computing', *CAUSES, 'after the step'], lines)}"


# Where the order of preference turns, on the unit clock at P=8 M=4 k=8: shapes that others can be held against.

UNIT_SHAPE = (8, 4, 8)
LATENCIES = [0.0, *(0.01 * count for count in range(1, 51))]
RATIOS = [1 + 0.25 * count for count in range(77)]


def with_latency(latency: float) -> CostModel:
    """The unit clock, with every message so long on its way."""
    link = Link(latency, 1.0)
    return CostModel("unit", lambda layout: replace(unit(layout), network=Network(link, link)))


def with_ratio(ratio: float) -> CostModel:
    """The unit clock, with I : W = ratio : 1 and their sum as it was."""

    def price(layout: Layout) -> Prices:
        prices = unit(layout)
        return replace(
            prices,
            backward_input=[cost * 2 * ratio / (1 + ratio) for cost in prices.forward],
            backward_weight=[cost * 2 / (1 + ratio) for cost in prices.forward],
        )

    return CostModel("unit", price)


@dataclass(frozen=True, slots=True)
class Entrant:
    """A generator, and the budget of one that takes any."""

    name: str
    budget: float | None = None

    def __str__(self) -> str:
        return self.name if self.budget is None else f"{self.name} within {self.budget:g}"


OURS = [Entrant(name, budget) for name in TWO_DIRECTIONS for budget in (2.0, 2.5)]
RIVALS = [Entrant("seq1f1b"), Entrant("seq1f1b-interleaved"), Entrant("seq1f1b-zb")]


@cache
def makespan(entrant: Entrant, clock: Callable[[float], CostModel], value: float) -> float:
    """In the unit shape, made for these prices where its generator takes any."""
    devices, microbatches, count = UNIT_SHAPE
    kind, model = GENERATORS[entrant.name], clock(value)
    request = Request(
        devices,
        (1024 * count,) * microbatches,
        ((1024,) * count,) * microbatches,
        kind.stages_per_device,
        budget=entrant.budget,
        costs=model,
        effort=EFFORT,
    )
    return preview(kind.make(request), model).makespan


def turning_point(
    one: Entrant, other: Entrant, clock: Callable[[float], CostModel], values: Sequence[float]
) -> float | None:
    """From which value on the one that is faster at the first is not any more; None where it is at all of them."""

    def ahead(value: float) -> bool:
        return makespan(one, clock, value) < makespan(other, clock, value)

    turned = next((index for index, value in enumerate(values) if ahead(value) != ahead(values[0])), None)
    if turned is None:
        return None
    below, above = values[turned - 1], values[turned]
    while above - below > 0.002:
        middle = (below + above) / 2
        below, above = (below, middle) if ahead(middle) != ahead(values[0]) else (middle, above)
    return above


def turning_points() -> str:
    """Two tables: from which message latency, and from which I : W on, the order of preference turns."""
    devices, microbatches, count = UNIT_SHAPE
    return "\n".join(
        [
            "## Where the order of preference turns\n",
            f"On the unit clock, P={devices} M={microbatches} k={count}. bsipipe and bsipipe-zb are made anew for each "
            "price, by a rule that can lose by a hair's change of it: a first turn is not always the last.\n",
            turns("free messages", "latency in units", OURS, RIVALS, with_latency, LATENCIES),
            turns("I : W = 1 : 1", "I : W", OURS[2:], [*OURS[1::-1], *RIVALS], with_ratio, RATIOS),
        ]
    )


def turns(
    start: str,
    quantity: str,
    ours: Sequence[Entrant],
    rivals: Sequence[Entrant],
    clock: Callable[[float], CostModel],
    values: Sequence[float],
) -> str:
    """One line for each pair: both makespans at the first value, and where the order turns."""
    lines = []
    for one in ours:
        for other in rivals:
            value = turning_point(one, other, clock, values)
            said = f"none up to {values[-1]:g}" if value is None else f"{value:.3f}"
            spans = [makespan(entrant, clock, values[0]) for entrant in (one, other)]
            lines.append([f"{one} against {other}", *(f"{span:.3f}" for span in spans), said])
    return table(["pair", f"first, {start}", "second", f"{quantity} from which it turns"], lines)
