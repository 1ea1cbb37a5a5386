"""Everything that can be done on the screen, read off the key bindings: what the palette and the help list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

HIDDEN = ("app.command_palette", "command_palette", "help_quit", "app.help_quit")
"""Actions that are no use in a list of actions."""


@dataclass(frozen=True, slots=True)
class Command:
    """One thing that can be done, where, and with which keys."""

    node: DOMNode
    """In whose name the action runs."""
    place: str
    description: str
    tooltip: str
    keys: tuple[str, ...]
    action: str


def commands_of(node: DOMNode, place: str) -> Iterator[Command]:
    """What the bindings of a node's own class offer, those of Textual's base classes left out."""
    found: dict[str, list[Binding]] = {}
    for kind in type(node).__mro__:
        if not kind.__module__.startswith("contraflow"):
            continue
        for entry in kind.__dict__.get("BINDINGS", ()):
            for binding in Binding.make_bindings([entry]):
                found.setdefault(binding.action, []).append(binding)
    for action, bindings in found.items():
        first = bindings[0]
        if not first.description or action in HIDDEN:
            continue
        keys = tuple(node.app.get_key_display(Binding(binding.key, action)) for binding in bindings)
        yield Command(node, place, first.description, first.tooltip, keys, action)


def commands(screen: Screen[Any]) -> list[Command]:
    """Everywhere on a screen, nearest to the focus first; of several alike widgets the focused one or the first."""
    found: dict[tuple[str, str], Command] = {}
    kinds: set[type] = set()
    chain = list(screen.focused.ancestors_with_self) if screen.focused else [screen, screen.app]
    for node in [*chain, *screen.query("*"), screen.app]:
        if type(node) not in kinds:
            kinds.add(type(node))
            for command in commands_of(node, place_of(node)):
                found.setdefault((command.place, command.action), command)
    return list(found.values())


def place_of(node: DOMNode) -> str:
    """What a person calls this part of the screen."""
    return "everywhere" if isinstance(node, App) else str(getattr(node, "PLACE", type(node).__name__.lower()))
