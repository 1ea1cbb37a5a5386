"""Arguments that several commands share, and what may be written in them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

COSTS = "unit, work:MODEL, a preset such as llama3-8b-h100, a model.toml or a profile.json"


def whole(text: str) -> int:
    """A whole number that a schedule file can hold."""
    try:
        number = int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None
    if abs(number) >= 2**63:
        raise typer.BadParameter(f"{text} is too large a number")
    return number


def at_least(least: int) -> Callable[[str], int]:
    """A whole number that is not less."""

    def parse(text: str) -> int:
        number = whole(text)
        if number < least:
            raise typer.BadParameter(f"{text} is less than {least}")
        return number

    return parse


def real(text: str) -> float:
    """A finite number."""
    try:
        number = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise typer.BadParameter(f"{text} is not a finite number")
    return number


def amount(text: str) -> float:
    """A finite number of at least 0."""
    number = real(text)
    if number < 0:
        raise typer.BadParameter(f"{text} is less than 0")
    return number


def one_of(*words: str) -> Callable[[str], str]:
    """One of these words."""

    def parse(text: str) -> str:
        if text in words:
            return text
        near = get_close_matches(text, words, 1, 0.0)[0]
        raise typer.BadParameter(f"{text!r} is none of {', '.join(words)}; did you mean {near!r}?")

    return parse


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between."""
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise typer.BadParameter(f"{text!r} is not a list such as 8,8,8,8")
    return tuple(map(whole, text.split(",")))


def listed(text: str) -> str | tuple[int, ...]:
    """A word, which the design judges, or whole numbers with commas between."""
    return counts(text) if re.fullmatch(r"[\d,]+", text) else text


class MemoryCap(NamedTuple):
    """What a device may hold: bytes on each GPU, or whole microbatches of activation."""

    amount: float
    in_bytes: bool


def cap(text: str) -> MemoryCap:
    """A bare number of whole microbatches, or bytes such as 70GiB or 80GB."""
    from contraflow.designer.search.judge import Cap

    try:
        return MemoryCap(*Cap.named(text))
    except ValueError as slip:
        raise typer.BadParameter(str(slip)) from None


def _or_no_color(given: bool) -> bool:
    return given or bool(os.environ.get("NO_COLOR"))


File = Annotated[Path, typer.Argument(metavar="FILE", help="a schedule file", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="answer in JSON")]
Costs = Annotated[str, typer.Option("--costs", metavar="COSTS", help=f"the clock: {COSTS}")]
Mono = Annotated[bool, typer.Option("--mono", callback=_or_no_color, help="no colours, as with NO_COLOR")]
Ascii = Annotated[bool, typer.Option("--ascii", help="for terminals without block characters")]
# typer knows no tuples of its own: the parser makes a MemoryCap.
Cap = Annotated[
    Any,
    typer.Option(
        "--cap",
        metavar="CAP",
        parser=cap,
        help="whole microbatches of activation, or bytes such as 70GiB; exit code 1 where a device holds more",
    ),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="write there instead of to stdout")
]
