"""Light, dark, and high contrast. The bars keep their own colours: they are spaced by luminance already."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="contraflow-dark",
    primary="#5aa9e6",
    secondary="#3cb394",
    accent="#f2a65a",
    warning="#f2c14e",
    error="#e4576a",
    success="#3cb394",
    foreground="#dce3ea",
    background="#11161c",
    surface="#1a2129",
    panel="#222b35",
)
LIGHT = Theme(
    name="contraflow-light",
    primary="#1f6aa5",
    secondary="#1c7c65",
    accent="#a85a12",
    warning="#8a6100",
    error="#b3273c",
    success="#1c7c65",
    foreground="#1b232b",
    background="#fbfcfd",
    surface="#eef2f5",
    panel="#e1e7ec",
    dark=False,
)
CONTRAST = Theme(
    name="contraflow-contrast",
    primary="#4dc3ff",
    secondary="#00e5b0",
    accent="#ffd400",
    warning="#ffd400",
    error="#ff6b7d",
    success="#00e5b0",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    text_alpha=1.0,
    variables={"text-muted": "#e6e6e6", "text-disabled": "#b0b0b0"},
)
THEMES = (DARK, LIGHT, CONTRAST)


def next_theme(name: str) -> str:
    """The theme after the one of this name, the first after the last."""
    names = [theme.name for theme in THEMES]
    return names[(names.index(name) + 1) % len(names)] if name in names else names[0]
