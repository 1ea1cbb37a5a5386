"""The knobs of a design as a table: how each is shown, turned by one, and typed. Pure; no widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contraflow.designer.costs.presets import HARDWARE, MODELS
from contraflow.designer.design import BALANCED, Design
from contraflow.designer.generators import GENERATORS
from contraflow.designer.topology import BEST, MAPPINGS

Choice = tuple[str, str]
"""What is typed, and what it means."""


class Slip(ValueError):
    """Typed text that is no value of its knob; the message says what would be."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One field of `Design` on the screen."""

    name: str
    label: str
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
        return getattr(design, self.name) is None


def changed(design: Design, name: str, value: Any) -> Design:
    """The design with one field changed."""
    return replace(design, **{name: value})


def _count(
    name: str,
    label: str,
    value: Callable[[Design], int],
    *,
    rests: bool = False,
    applies: Callable[[Design], bool] = lambda design: True,
) -> Knob:
    """A whole number from 1; `value` is what it amounts to where the field is None."""

    def turned(design: Design, by: int) -> Design:
        return changed(design, name, max(value(design) + by, 1))

    def typed(design: Design, text: str) -> Design:
        return changed(design, name, whole(text))

    def rested(design: Design) -> Design:
        return changed(design, name, None)

    return Knob(
        name,
        label,
        lambda design: f"{value(design)}",
        typed,
        turned,
        rested if rests else None,
        applies=applies,
    )


def whole(text: str) -> int:
    """A whole number from 1; `32k` is 32,768. Raises Slip."""
    digits = text.strip().lower().replace(",", "").replace("_", "")
    factor = 1024 if digits.endswith("k") else 1
    digits = digits.removesuffix("k")
    if not (digits.isascii() and digits.isdigit() and 0 < len(digits) <= 12 and int(digits)):
        raise Slip(f"{text.strip()!r} is not a whole number of at least 1")
    return int(digits) * factor


def lengths(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas or blanks. Raises Slip."""
    return tuple(whole(part) for part in text.replace(",", " ").split())


def _turn_generator(design: Design, name: str) -> Design:
    """Another generator; knobs that it lacks, or whose default it sets otherwise, go back to rest."""
    kind = GENERATORS[name]
    design = replace(design, generator=name, stages_per_device=None)
    if not kind.cuts:
        design = replace(design, subsequences=None, split="even")
    if not kind.budgeted:
        design = replace(design, unit_microbatches=1, budget=None)
    return design


def _type_generator(design: Design, text: str) -> Design:
    if text.strip() not in GENERATORS:
        raise Slip(f"no generator {text.strip()!r}; there are {', '.join(GENERATORS)}")
    return _turn_generator(design, text.strip())


def _neighbour(names: Sequence[str], name: str, by: int) -> str:
    return names[(names.index(name) + by) % len(names)] if name in names else names[0]


SPLITS = {
    "even": "equal lengths, the longer first",
    "compute": "equal causal work",
    "time": "equal time on the costs",
}


def _type_split(design: Design, text: str) -> Design:
    word = text.strip().lower()
    if word in SPLITS:
        return replace(design, split=word)
    try:
        listed = lengths(text)
    except Slip:
        raise Slip("there are even, compute, time, and lengths such as 512,384,128") from None
    # The list says how many there are, so a number of subsequences could only contradict it.
    return replace(design, split=listed or "even", subsequences=None)


def _turn_split(design: Design, by: int) -> Design:
    return replace(design, split=_neighbour(list(SPLITS), str(design.split), by))


def _turn_subsequences(design: Design, by: int) -> Design:
    if isinstance(design.split, tuple):
        design = replace(design, split="even", subsequences=len(design.split))
    return replace(design, subsequences=max(design.num_subsequences + by, 1))


def _type_subsequences(design: Design, text: str) -> Design:
    split = "even" if isinstance(design.split, tuple) else design.split
    return replace(design, split=split, subsequences=whole(text))


def _double(design: Design, by: int) -> Design:
    return replace(design, sequence=max(design.sequence * 2 if by > 0 else design.sequence // 2, 1))


EVENLY = "evenly"

IN_ORDER = "in order"
"""Device d on rank d."""

RANKINGS = (*MAPPINGS, BEST)


def _type_budget(design: Design, text: str) -> Design:
    try:
        return replace(design, budget=float(text))
    except ValueError:
        raise Slip(f"{text.strip()!r} is not a number of microbatches, such as 2.5") from None


def _type_layers(design: Design, text: str) -> Design:
    if text.strip() == EVENLY:
        return replace(design, layers=None)
    if text.strip() == BALANCED:
        return replace(design, layers=BALANCED)
    try:
        parts = [0 if part == "0" else whole(part) for part in text.replace(",", " ").split()]
    except Slip:
        raise Slip(f"layers are {BALANCED}, or listed one number for each stage, such as 8,8,8,7") from None
    return replace(design, layers=tuple(parts) or None)


def _type_ranks(design: Design, text: str) -> Design:
    word = text.strip()
    if word in ("", IN_ORDER):
        return replace(design, ranks=None)
    if word in RANKINGS:
        return replace(design, ranks=word)
    try:
        return replace(design, ranks=tuple(int(part) for part in word.replace(",", " ").split()))
    except ValueError:
        raise Slip(
            f"ranks are {', '.join(RANKINGS)}, or one number for each device, such as 0,3,1,2"
        ) from None


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
    return _with_costs(design, _neighbour(names, design.costs or "unit", by))


def _with_costs(design: Design, text: str) -> Design:
    name = text.strip()
    return replace(design, costs=None if name in ("", "unit") else name)


def _cuts(design: Design) -> bool:
    return design.kind.cuts


def _budgeted(design: Design) -> bool:
    return design.kind.budgeted


KNOBS = (
    Knob(
        "generator",
        "generator",
        lambda design: design.generator,
        _type_generator,
        lambda design, by: _turn_generator(design, _neighbour(list(GENERATORS), design.generator, by)),
        choices=lambda: [(kind.name, kind.summary) for kind in GENERATORS.values()],
    ),
    _count("devices", "devices", lambda design: design.devices),
    _count("stages_per_device", "stages/device", lambda design: design.num_stages_per_device, rests=True),
    _count("microbatches", "microbatches", lambda design: design.num_microbatches, rests=True),
    Knob(
        "subsequences",
        "subsequences",
        lambda design: f"{design.num_subsequences}",
        _type_subsequences,
        _turn_subsequences,
        lambda design: replace(design, subsequences=None),
        applies=_cuts,
    ),
    Knob(
        "sequence",
        "sequence",
        lambda design: f"{design.sequence}",
        lambda design, text: replace(design, sequence=whole(text)),
        _double,
    ),
    Knob(
        "split",
        "split",
        lambda design: _listed(design.split),
        _type_split,
        _turn_split,
        choices=lambda: list(SPLITS.items()),
        applies=_cuts,
    ),
    _count(
        "multiple",
        "borders at",
        lambda design: design.multiple,
        applies=lambda design: _cuts(design) and design.split in ("compute", "time"),
    ),
    _count("unit_microbatches", "basic unit", lambda design: design.unit_microbatches, applies=_budgeted),
    Knob(
        "budget",
        "budget",
        lambda design: f"{design.activation_budget:g}",
        _type_budget,
        lambda design, by: replace(design, budget=design.activation_budget + by / 2),
        lambda design: replace(design, budget=None),
        applies=_budgeted,
    ),
    Knob(
        "layers",
        "layers",
        lambda design: _listed(design.layers or EVENLY),
        _type_layers,
        rested=lambda design: replace(design, layers=None),
    ),
    Knob(
        "ranks",
        "ranks",
        lambda design: _listed(design.ranks or IN_ORDER),
        _type_ranks,
        rested=lambda design: replace(design, ranks=None),
        choices=lambda: [
            (IN_ORDER, "device d on rank d"),
            *((name, "by the costs' nodes") for name in RANKINGS),
        ],
    ),
    Knob(
        "costs",
        "costs",
        lambda design: design.costs or "unit",
        _with_costs,
        _turn_costs,
        lambda design: replace(design, costs=None),
        choices=costs_choices,
    ),
)
"""In the order of the screen."""
