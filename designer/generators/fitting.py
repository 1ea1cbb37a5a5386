"""Holding a shape against a generator's rules: a refusal names each rule that is broken, and the nearest shape.

Rules are tried in turn, and each sees what those before it have changed: so what the refusal names breaks none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from .request import Refusal, Request


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a request; `subsequences` is the most that any microbatch is cut into."""

    devices: int
    stages_per_device: int
    subsequences: int
    microbatches: int


@dataclass(frozen=True, slots=True)
class Misfit:
    """A broken rule: what the generator does instead, as a predicate of its name; and the nearest shapes."""

    reason: str
    nearest: tuple[Shape, ...]


Rule = Callable[[Shape], Misfit | None]
Sibling = Callable[[Shape], tuple[str, Shape] | None]
"""Another generator, and the shape that it makes in place of the given one; None where it is no help."""


def shape_of(request: Request) -> Shape:
    most = max(map(len, request.splits))
    return Shape(request.num_devices, request.stages_per_device, most, request.num_microbatches)


def fit(name: str, request: Request, rules: Sequence[Rule], siblings: Sequence[Sibling]) -> None:
    """Raises Refusal where `request` breaks a rule of the generator `name`; it names the first sibling that helps."""
    asked = shape_of(request)
    reasons: list[str] = []
    nearest: tuple[Shape, ...] = (asked,)
    for rule in rules:
        misfit = rule(nearest[0])
        if misfit is not None:
            reasons.append(misfit.reason)
            nearest = misfit.nearest
    if not reasons:
        return
    # Later rules were held against the first of several nearest shapes alone.
    ways = _flags(asked, nearest if len(reasons) == 1 else nearest[:1])
    for other, shape in filter(None, (sibling(asked) for sibling in siblings)):
        ways += ", or " + " with ".join(filter(None, (other, _flags(asked, (shape,)))))
        break
    raise Refusal(f"{name} {', and '.join(reasons)}: use {ways}")


def _flags(asked: Shape, shapes: Sequence[Shape]) -> str:
    """What to change, as flags; where there are several ways, they differ in one flag's value."""
    flags = []
    for field in fields(Shape):
        values = dict.fromkeys(getattr(shape, field.name) for shape in shapes)
        if list(values) != [getattr(asked, field.name)]:
            flags.append(f"--{field.name.replace('_', '-')} {' or '.join(map(str, values))}")
    return " ".join(flags)


def stages_per_device(count: int) -> Rule:
    def rule(shape: Shape) -> Misfit | None:
        if shape.stages_per_device == count:
            return None
        stages = "one stage" if count == 1 else f"{count} stages"
        return Misfit(
            f"puts {stages} on each device, not {shape.stages_per_device}",
            (replace(shape, stages_per_device=count),),
        )

    return rule


def whole_microbatches(shape: Shape) -> Misfit | None:
    if shape.subsequences == 1:
        return None
    return Misfit(
        f"sends microbatches whole, not in {shape.subsequences} subsequences",
        (replace(shape, subsequences=1),),
    )


def even_devices(shape: Shape) -> Misfit | None:
    if shape.devices % 2 == 0:
        return None
    return Misfit(
        f"mirrors the devices in pairs and cannot use {shape.devices}",
        (replace(shape, devices=max(shape.devices - 1, 2)),),
    )


def half_each_way(name: str, request: Request) -> None:
    """Raises Refusal where the generator `name` would send two or more microbatches more one way than the other."""
    down, up = map(len, request.ways)
    if abs(down - up) > 1:
        raise Refusal(
            f"{name} sends half of the microbatches each way, not {down} down and {up} up: "
            "use --directions with as many 0 as 1, or bsipipe"
        )


def in_groups(shape: Shape, size: int) -> Misfit | None:
    """The rule of whole groups of `size` microbatches."""
    below, rest = divmod(shape.microbatches, size)
    if not rest:
        return None
    nearest = (replace(shape, microbatches=size * count) for count in (below, below + 1) if count)
    return Misfit(
        f"takes microbatches in groups of {size}, of which {shape.microbatches} is no multiple",
        tuple(nearest),
    )


def at_least(shape: Shape, least: int) -> Misfit | None:
    """The rule of a warm-up that so many microbatches fill."""
    if shape.microbatches >= least:
        return None
    devices = "1 device" if shape.devices == 1 else f"{shape.devices} devices"
    return Misfit(
        f"fills {devices} with at least {least} microbatches, not {shape.microbatches}",
        (replace(shape, microbatches=least),),
    )


def interleaved_group(shape: Shape) -> int | None:
    """How many subsequences in a row an interleaved order sends through one stage: P or else Pk; None for neither.

    P where k divides P and P divides Mk; Pk where P divides M. Groups of P that cut a microbatch in two cannot run:
    their backwards begin with its last subsequence, whose forward is in the group behind.
    """
    devices, cut = shape.devices, shape.subsequences
    if devices % cut == 0 and shape.microbatches * cut % devices == 0:
        return devices
    return devices * cut if shape.microbatches % devices == 0 else None


def more_stages(shape: Shape) -> tuple[str, Shape] | None:
    """Where several stages on a device are asked for, the interleaved order, if there is one."""
    if shape.stages_per_device == 1 or interleaved_group(shape) is None:
        return None
    return "interleaved-1f1b" if shape.subsequences == 1 else "seq1f1b-interleaved", shape


def cut(name: str) -> Sibling:
    """Where subsequences are asked for, the generator `name`, which has one stage per device."""
    return lambda shape: (name, replace(shape, stages_per_device=1)) if shape.subsequences > 1 else None


def whole(name: str) -> Sibling:
    """For whole microbatches, the generator `name`, which has one stage per device."""
    return lambda shape: (name, replace(shape, stages_per_device=1)) if shape.subsequences == 1 else None


def in_pairs(shape: Shape) -> tuple[str, Shape] | None:
    """bsipipe, which cuts and takes any number of microbatches, where the devices come in pairs."""
    return None if shape.devices % 2 else ("bsipipe", replace(shape, stages_per_device=2))
