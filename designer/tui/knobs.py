"""The knobs of a design as a table: how each is shown, turned by one, and typed. Pure; no widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contraflow.designer.costs.presets import HARDWARE, MODELS
from contraflow.designer.design import Design
from contraflow.designer.generators import GENERATORS

from . import typed

Choice = tuple[str, str]
"""What is typed, and what it means."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One field of `Design` on the screen."""

    name: str
    label: str
    meaning: str
    """One sentence for someone who sees it for the first time."""
    shown: Callable[[Design], str]
    typed: Callable[[Design, str], Design]
    """Raises Slip."""
    turned: Callable[[Design, int], Design] | None = None
    """One step up (1) or down (-1); None where there are no steps."""
    rested: Callable[[Design], Design] | None = None
    """Back to the generator's default; None where there is none."""
    choices: Callable[[], Sequence[Choice]] | None = None
    applies: Callable[[Design], bool] = lambda design: True
    """Whether the generator has this knob at all."""

    def at_rest(self, design: Design) -> bool:
        """Whether it stands on the generator's default."""
        return getattr(design, self.name, None) is None


def changed(design: Design, name: str, value: Any) -> Design:
    """The design with one field changed."""
    return replace(design, **{name: value})


def _count(
    name: str,
    label: str,
    meaning: str,
    value: Callable[[Design], int],
    *,
    rests: bool = False,
    applies: Callable[[Design], bool] = lambda design: True,
) -> Knob:
    """A whole number from 1; `value` is what it amounts to where the field is None."""

    def turned(design: Design, by: int) -> Design:
        return changed(design, name, max(value(design) + by, 1))

    def entered(design: Design, text: str) -> Design:
        return changed(design, name, typed.whole(text))

    def rested(design: Design) -> Design:
        return changed(design, name, None)

    return Knob(
        name,
        label,
        meaning,
        lambda design: f"{value(design)}",
        entered,
        turned,
        rested if rests else None,
        applies=applies,
    )


def _neighbour(names: Sequence[str], name: str, by: int) -> str:
    return names[(names.index(name) + by) % len(names)] if name in names else names[0]


def _turn_split(design: Design, by: int) -> Design:
    return replace(design, split=_neighbour(list(typed.SPLITS), str(design.split), by))


def _turn_subsequences(design: Design, by: int) -> Design:
    if isinstance(design.split, tuple):
        design = replace(design, split="even", subsequences=len(design.split))
    return replace(design, subsequences=max(design.num_subsequences + by, 1))


def _double(design: Design, by: int) -> Design:
    return replace(design, sequence=max(design.sequence * 2 if by > 0 else design.sequence // 2, 1))


def _listed(value: str | tuple[int, ...]) -> str:
    return value if isinstance(value, str) else ",".join(map(str, value))


def costs_choices() -> list[Choice]:
    """Every cost model that has a name of its own."""
    return [
        ("unit", "compares orders; counts tokens"),
        *((f"work:{model}", "compares splits; causal work") for model in MODELS),
        *((f"{model}-{machine}", "seconds, modelled") for model in MODELS for machine in HARDWARE),
    ]


def _turn_costs(design: Design, by: int) -> Design:
    names = [name for name, _ in costs_choices()]
    return typed.costs(design, _neighbour(names, design.costs or "unit", by))


def _cuts(design: Design) -> bool:
    return design.kind.cuts


def _budgeted(design: Design) -> bool:
    return design.kind.budgeted


KNOBS = (
    Knob(
        "generator",
        "generator",
        "who makes the order: a family of schedules",
        lambda design: design.generator,
        typed.generator,
        lambda design, by: typed.generator(design, _neighbour(list(GENERATORS), design.generator, by)),
        choices=lambda: [(kind.name, kind.summary) for kind in GENERATORS.values()],
    ),
    _count("devices", "devices", "positions in the pipeline", lambda design: design.devices),
    _count(
        "stages_per_device",
        "stages/device",
        "slices of the model that each device holds, in each direction",
        lambda design: design.num_stages_per_device,
        rests=True,
    ),
    Knob(
        "microbatches",
        "microbatches",
        "parts of the batch that travel one after the other, over all directions",
        lambda design: f"{design.num_microbatches}",
        typed.microbatches,
        lambda design, by: typed.microbatches(design, f"{max(design.num_microbatches + by, 1)}"),
        lambda design: replace(design, microbatches=None, directions=None),
    ),
    Knob(
        "directions",
        "directions",
        "which way each microbatch goes: by turns, or a digit for each, 0 down and 1 up",
        lambda design: design.directions or typed.BY_TURNS,
        typed.directions,
        rested=lambda design: replace(design, directions=None),
        applies=lambda design: design.kind.directions > 1,
    ),
    Knob(
        "subsequences",
        "subsequences",
        "parts that every sequence is cut into",
        lambda design: f"{design.num_subsequences}",
        typed.subsequences,
        _turn_subsequences,
        lambda design: replace(design, subsequences=None),
        applies=_cuts,
    ),
    Knob(
        "sequence",
        "sequence",
        "tokens of every sequence",
        lambda design: f"{design.sequence}",
        lambda design, text: replace(design, sequence=typed.whole(text)),
        _double,
    ),
    Knob(
        "split",
        "split",
        "where sequences are cut: even, by compute, by time, or lengths",
        lambda design: _listed(design.split),
        typed.split,
        _turn_split,
        choices=lambda: list(typed.SPLITS.items()),
        applies=_cuts,
    ),
    _count(
        "multiple",
        "borders at",
        "borders fall on multiples of so many tokens",
        lambda design: design.multiple,
        applies=lambda design: _cuts(design) and design.split in ("compute", "time"),
    ),
    _count(
        "unit_microbatches",
        "basic unit",
        "microbatches of each direction that are planned together",
        lambda design: design.unit_microbatches,
        applies=_budgeted,
    ),
    Knob(
        "budget",
        "budget",
        "activation that a device may hold, in whole microbatches: more memory, less waiting",
        lambda design: f"{design.activation_budget:g}",
        typed.budget,
        lambda design, by: replace(design, budget=design.activation_budget + by / 2),
        lambda design: replace(design, budget=None),
        applies=_budgeted,
    ),
    Knob(
        "layers",
        "layers",
        "layers of each stage: evenly, balanced on the costs, or one number for each stage",
        lambda design: _listed(design.layers or typed.EVENLY),
        typed.layers,
        rested=lambda design: replace(design, layers=None),
    ),
    Knob(
        "ranks",
        "ranks",
        "which process plays which device: what lies on one node talks faster",
        lambda design: _listed(design.ranks or typed.IN_ORDER),
        typed.ranks,
        rested=lambda design: replace(design, ranks=None),
        choices=lambda: [
            (typed.IN_ORDER, "device d on rank d"),
            *((name, "by the costs' nodes") for name in typed.RANKINGS),
        ],
    ),
    Knob(
        "costs",
        "costs",
        "the clock: abstract units, or a model on a machine in seconds and bytes",
        lambda design: design.costs or "unit",
        typed.costs,
        _turn_costs,
        lambda design: replace(design, costs=None),
        choices=costs_choices,
    ),
)
"""In the order of the screen."""

CAP = Knob(
    "cap",
    "memory cap",
    "what a device may hold: whole microbatches of activation, or bytes such as 70GiB",
    lambda design: typed.NO_CAP,
    lambda design, text: design,
    lambda design, by: design,
)
"""Not a field of `Design`: it judges what is shown."""
