"""Reading a table of a TOML or JSON file into a frozen dataclass, with errors that name the nearest valid key."""

from __future__ import annotations

import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

LARGEST = 1e30
"""Beyond every size and rate; infinity and not-a-number are no numbers here."""


class ConfigError(ValueError):
    """A slip in a configuration; the one-line message names file, key and the nearest valid key."""


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises ConfigError for what cannot be read."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def known_keys(table: Mapping[str, Any], known: list[str], where: str) -> None:
    """Raises ConfigError for a key of `table` that is not in `known`. `where` names file and table."""
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, 1, 0.0)
            hint = f"did you mean {near[0]!r}?" if near else "it has no keys"
            raise ConfigError(f"{where}: unknown key {key!r}; {hint} (known: {', '.join(known)})")


def from_table(kind: type[T], table: Any, where: str) -> T:
    """An instance of the dataclass `kind` from the keys of `table`; absent keys take their defaults.

    Raises ConfigError for unknown or missing keys, values of a wrong type, and values that `kind` itself refuses.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} must be a table of keys and values")
    hints = get_type_hints(kind)
    entries = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    known_keys(table, list(entries), where)
    for name, field in entries.items():
        if name not in table and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{where}: {name!r} is missing")
    values = {key: _typed(value, hints[key], f"{where}: {key}") for key, value in table.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _typed(value: Any, hint: Any, where: str) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        return value if value is None else _typed(value, options[0], where)
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        if isinstance(value, (list, tuple)):
            return tuple(_typed(entry, inner, where) for entry in value)
    elif hint is float and type(value) in (int, float):
        if abs(value) < LARGEST:
            return float(value)
    elif type(value) is hint and (hint is not int or abs(value) < LARGEST):
        return value
    words = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    raise ConfigError(f"{where} is {repr(value)[:60]}, where {words.get(hint, 'a list')} belongs")
