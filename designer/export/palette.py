"""Colours of looks: spaced by luminance, so that greyscale and colour blindness leave them apart."""

from __future__ import annotations

from colorsys import hls_to_rgb

from rich.color import Color
from rich.style import Style

from .cells import Paint
from .chart import Look, State

# Lightness (CIE L*): F 83 75, I 66 57, B 48 40, W 30 22; blue, teal, orange and violet at even saturation.
GROUNDS = {
    "forward": ("#98d6ff", "#7abefe"),
    "input": ("#3cb394", "#229985"),
    "backward": ("#b9541e", "#9b4424"),
    "weight": ("#722578", "#551962"),
}
DARK_INK, LIGHT_INK = "#10202c", "#fff8f2"
INKS = {"forward": DARK_INK, "input": DARK_INK, "backward": LIGHT_INK, "weight": LIGHT_INK}
MEMORY = "#8f9bb3"
REDUCTION = "#9aa3b5"


def ground(look: Look) -> str | None:
    """The colour of a bar; None for the terminal's own."""
    return GROUNDS[look.state][look.tone] if look.state in GROUNDS else None


def hatching(state: State) -> str:
    """The colour of lines across a bar of the second tone, where a picture has textures: they leave labels legible."""
    return _mixed(GROUNDS[state][1], INKS[state], 0.25)


def _mixed(colour: str, other: str, share: float) -> str:
    pairs = zip(*[Color.parse(name).get_truecolor() for name in (colour, other)], strict=True)
    return "#" + "".join(f"{round(one + share * (two - one)):02x}" for one, two in pairs)


def hue(number: int, count: int, lightness: float) -> str:
    """Hues far apart for numbers that are near."""
    turn = number / count if count <= 6 else number * 0.618034
    red, green, blue = (round(255 * part) for part in hls_to_rgb((0.58 + turn) % 1, lightness, 0.62))
    return f"#{red:02x}{green:02x}{blue:02x}"


def style(paint: Paint) -> Style:
    """How a cell is painted."""
    look, ink = paint
    below = ground(look)
    if ink is not None:
        beside = ground(ink)
        if beside is None:
            # The terminal's own colour as ink: only swapping ink and ground can say that.
            return Style(color=below, reverse=True)
        return Style(color=beside, bgcolor=below)
    if look.state == "idle":
        return Style.null()
    if look.state == "reduction":
        return Style(color=REDUCTION)
    return Style(color=INKS[look.state], bgcolor=below, underline=look.second or None)


def grey(name: str) -> str:
    """The grey of the same luminance as a colour."""
    red, green, blue = ((channel / 255) ** 2.2 for channel in Color.parse(name).get_truecolor())
    level = round(255 * (0.2126 * red + 0.7152 * green + 0.0722 * blue) ** (1 / 2.2))
    return f"#{level:02x}{level:02x}{level:02x}"
