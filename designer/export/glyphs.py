"""The characters that charts are drawn with: Unicode or ASCII, on coloured grounds or without any colour."""

from __future__ import annotations

from dataclasses import dataclass

from .chart import State

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """`solid` glyphs stand on coloured grounds; the others carry everything by letters and textures."""

    solid: bool
    ascii: bool
    separator: str
    """Opens a bar that has room for it."""
    textures: dict[State, str]
    """Fills a bar behind its label."""
    edges: str
    """A cell filled from the left by 0 to 8 eighths; empty where two looks cannot share a cell."""
    levels: str
    """A cell filled from below by 0 to 8 eighths."""
    mark: str
    """Of a ruler."""
    dot: str
    """Between items of a line."""

    def suffix(self, subsequence: int) -> str:
        """How a label names a subsequence."""
        return f".{subsequence}" if self.ascii else str(subsequence).translate(_SUBSCRIPTS)


_BLANK: dict[State, str] = {
    "forward": " ", "backward": " ", "input": " ", "weight": " ", "idle": " ",
}  # fmt: skip
_UNICODE = {"levels": " ▁▂▃▄▅▆▇█", "mark": "╵", "dot": "·"}
_ASCII = {"levels": " .:-=+*##", "mark": "|", "dot": "-"}

SOLID = Glyphs(True, False, "▏", {**_BLANK, "reduction": "┄"}, " ▏▎▍▌▋▊▉█", **_UNICODE)
SOLID_ASCII = Glyphs(True, True, "|", {**_BLANK, "reduction": "~"}, "", **_ASCII)
PLAIN = Glyphs(
    False,
    False,
    "▏",
    {"forward": "░", "backward": "▓", "input": "▒", "weight": "▚", "idle": " ", "reduction": "┄"},
    "",
    **_UNICODE,
)
PLAIN_ASCII = Glyphs(
    False,
    True,
    "|",
    {"forward": "-", "backward": "=", "input": "+", "weight": "*", "idle": " ", "reduction": "~"},
    "",
    **_ASCII,
)


def glyphs(*, color: bool, ascii: bool) -> Glyphs:
    """The set for a terminal with or without colour, with or without Unicode."""
    if color:
        return SOLID_ASCII if ascii else SOLID
    return PLAIN_ASCII if ascii else PLAIN
