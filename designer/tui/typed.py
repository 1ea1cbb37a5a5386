"""What may be typed into a knob: text becomes a value, or a slip in one line. Pure."""

from __future__ import annotations

from dataclasses import replace

from contraflow.designer.design import BALANCED, Design
from contraflow.designer.generators import GENERATORS
from contraflow.designer.search.judge import Cap
from contraflow.designer.topology import BEST, MAPPINGS

SPLITS = {
    "even": "equal lengths, the longer first",
    "compute": "equal causal work",
    "time": "equal time on the costs",
}

EVENLY = "evenly"

IN_ORDER = "in order"
"""Device d on rank d."""

RANKINGS = (*MAPPINGS, BEST)

BY_TURNS = "by turns"
"""Microbatches go down and up by turns."""

NO_CAP = "none"


class Slip(ValueError):
    """Typed text that is no value of its knob; the message says what would be."""


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


def generator(design: Design, text: str) -> Design:
    """Another generator; knobs that it lacks, or whose default it sets otherwise, go back to rest. Raises Slip."""
    name = text.strip()
    if name not in GENERATORS:
        raise Slip(f"no generator {name!r}; there are {', '.join(GENERATORS)}")
    kind = GENERATORS[name]
    design = replace(design, generator=name, stages_per_device=None)
    if not kind.cuts:
        design = replace(design, subsequences=None, split="even")
    if not kind.budgeted:
        design = replace(design, unit_microbatches=1, budget=None)
    if kind.directions == 1:
        design = replace(design, directions=None)
    return design


def microbatches(design: Design, text: str) -> Design:
    """So many; where it is listed which way each goes, the list gets as long, the new ones by turns. Raises Slip."""
    count = whole(text)
    listed = design.directions
    if listed is not None:
        listed = (listed + "01" * count)[:count] if len(listed) % 2 == 0 else (listed + "10" * count)[:count]
    return replace(design, microbatches=count, directions=listed)


def directions(design: Design, text: str) -> Design:
    """A digit for each microbatch: 0 down, 1 up. Raises Slip."""
    word = "".join(text.replace(",", " ").split())
    if word in ("", "".join(BY_TURNS.split())):
        return replace(design, directions=None)
    if not set(word) <= set("01"):
        raise Slip("directions are a digit for each microbatch, 0 down and 1 up, such as 0110")
    return replace(design, directions=word)


def split(design: Design, text: str) -> Design:
    word = text.strip().lower()
    if word in SPLITS:
        return replace(design, split=word)
    try:
        listed = lengths(text)
    except Slip:
        raise Slip("there are even, compute, time, and lengths such as 512,384,128") from None
    # The list says how many there are, so a number of subsequences could only contradict it.
    return replace(design, split=listed or "even", subsequences=None)


def subsequences(design: Design, text: str) -> Design:
    split = "even" if isinstance(design.split, tuple) else design.split
    return replace(design, split=split, subsequences=whole(text))


def budget(design: Design, text: str) -> Design:
    try:
        return replace(design, budget=float(text))
    except ValueError:
        raise Slip(f"{text.strip()!r} is not a number of microbatches, such as 2.5") from None


def layers(design: Design, text: str) -> Design:
    if text.strip() == EVENLY:
        return replace(design, layers=None)
    if text.strip() == BALANCED:
        return replace(design, layers=BALANCED)
    try:
        parts = [0 if part == "0" else whole(part) for part in text.replace(",", " ").split()]
    except Slip:
        raise Slip(f"layers are {BALANCED}, or listed one number for each stage, such as 8,8,8,7") from None
    return replace(design, layers=tuple(parts) or None)


def ranks(design: Design, text: str) -> Design:
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


def costs(design: Design, text: str) -> Design:
    name = text.strip()
    return replace(design, costs=None if name in ("", "unit") else name)


def cap(text: str) -> str:
    """What a device may hold, as typed, if it can be read so; empty for no cap. Raises Slip."""
    word = text.strip()
    if word in ("", NO_CAP):
        return ""
    try:
        Cap.named(word)
    except ValueError:
        raise Slip(f"{word!r} is neither microbatches, such as 2.5, nor bytes, such as 70GiB") from None
    return word
