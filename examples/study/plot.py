"""Small line charts side by side, in SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLUMNS, WIDTH, HEIGHT, EDGE = 3, 230.0, 150.0, 34.0
"""Of panels, in points."""
COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#8d6a9f", "#b08900", "#4a5759")
LEGEND = 14.0
"""Points of a line of the legend."""
STYLE = (
    "text{font:8px Helvetica,Arial,sans-serif;fill:#1c2733}.b{font-weight:bold}.f{fill:none;stroke:#aab4be}"
)


@dataclass(frozen=True, slots=True)
class Curve:
    """Points that are joined, or marks. Curves of one family (the name up to a comma) share their colour."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    title: str
    curves: Sequence[Curve]


def plot(panels: Sequence[Panel], across: str, up: str) -> str:
    """All panels and one legend, with the names of both axes."""
    names = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    families = list(dict.fromkeys(name.split(",")[0] for name in names))
    colour = {name: COLOURS[families.index(name.split(",")[0]) % len(COLOURS)] for name in names}
    lines = -(-len(panels) // COLUMNS)
    height = lines * HEIGHT + LEGEND * (len(names) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH:g} {height:g}"><style>{STYLE}</style>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for number, panel in enumerate(panels):
        left, top = number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT
        parts.append(f'<g transform="translate({left:g} {top:g})">{"".join(_panel(panel, colour))}</g>')
    top = lines * HEIGHT + LEGEND
    parts.append(f'<text class="b" x="{EDGE:g}" y="{top:g}">{escape(up)} over {escape(across)}</text>')
    looks = {curve.name: curve for panel in panels for curve in panel.curves}
    for number, name in enumerate(names, 1):
        y = top + number * LEGEND
        sample = Curve(name, [], looks[name].dashed, looks[name].joined)
        parts.append("".join(_drawn(sample, [(EDGE, y - 3), (EDGE + 18, y - 3)], colour[name])))
        parts.append(f'<text x="{EDGE + 26:g}" y="{y:g}">{escape(name)}</text>')
    return "".join([*parts, "</svg>\n"])


def _panel(panel: Panel, colour: dict[str, str]) -> Iterator[str]:
    points = [point for curve in panel.curves for point in curve.points]
    (low, high), (least, most) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
    wide, tall = WIDTH - EDGE - 10, HEIGHT - 2 * EDGE + 8

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        return (
            EDGE + wide * (x - low) / ((high - low) or 1),
            HEIGHT - EDGE + 8 - tall * (y - least) / ((most - least) or 1),
        )

    yield f'<text class="b" x="{EDGE:g}" y="14">{escape(panel.title)}</text>'
    yield f'<rect class="f" x="{EDGE:g}" y="{EDGE - 14:g}" width="{wide:g}" height="{tall + 14:g}"/>'
    for value in (least, most):
        yield f'<text x="{EDGE - 4:g}" y="{place((low, value))[1] + 3:g}" text-anchor="end">{value:.2f}</text>'
    for value in (low, high):
        yield f'<text x="{place((value, least))[0]:g}" y="{HEIGHT - EDGE + 20:g}" text-anchor="middle">{value:g}</text>'
    for curve in panel.curves:
        yield from _drawn(curve, [place(point) for point in curve.points], colour[curve.name])


def _drawn(curve: Curve, places: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    if curve.joined:
        dash = ' stroke-dasharray="4 3"' if curve.dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"{dash}/>'
    else:
        for x, y in places[-1:] if not curve.points else places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'
