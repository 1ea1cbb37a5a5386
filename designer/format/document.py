"""Text -> JSON object -> typed values: whatever stands in the text, it ends in a value or in a fault with its path."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .fault import MAX_FAULTS_PER_RULE, Fault, NotAScheduleError, not_listed

MAX_DEPTH = 64
LIMIT = 2**63


class _Ambiguous(dict[str, Any]):
    """A JSON object in which some keys stood twice."""

    twice: tuple[str, ...] = ()


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) == len(items):
        return found
    ambiguous = _Ambiguous(found)
    ambiguous.twice = tuple(key for key, count in Counter(key for key, _ in items).items() if count > 1)
    return ambiguous


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{word[:40]} is not a number of JSON, or too large")
    return number


def read(text: bytes | str, name: str) -> tuple[dict[str, Any], Reader]:
    """The object in `text`, and a reader for it that has seen which keys stand twice. Raises NotAScheduleError."""
    document = _parsed(text, name)
    reader = Reader()
    for where, container in _containers(document, name):
        if isinstance(container, _Ambiguous):
            for key in container.twice:
                reader.fault("duplicate-field", _below(where, key), "stands twice; keep one of the two")
    return document, reader


def _parsed(text: bytes | str, name: str) -> dict[str, Any]:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        if not text.strip():
            raise NotAScheduleError(f"{name} is empty")
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite)
        # Half a surrogate pair, spelled as an escape, is a string that cannot be written or shown again.
        if not text.isascii() or "\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()
    except NotAScheduleError:
        raise
    except UnicodeError:
        raise NotAScheduleError(f"{name} is not a schedule: it is not UTF-8 text") from None
    except RecursionError:
        raise NotAScheduleError(f"{name} is not a schedule: its JSON is nested too deeply") from None
    except ValueError as error:
        raise NotAScheduleError(f"{name} is not a schedule: it is not JSON ({str(error)[:120]})") from None
    if not isinstance(document, dict):
        raise NotAScheduleError(f"{name} is not a schedule: it holds {_kind(document)}, not an object")
    return document


def _containers(document: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any] | list[Any]]]:
    left: list[tuple[str, dict[str, Any] | list[Any], int]] = [("$", document, 0)]
    while left:
        where, value, depth = left.pop()
        if depth > MAX_DEPTH:
            raise NotAScheduleError(f"{name} is not a schedule: its JSON is nested too deeply")
        yield where, value
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(entry, dict | list):
                left.append((_below(where, key), entry, depth + 1))


def _below(where: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{where}[{key}]"
    shown = key if len(key) <= 40 else key[:37] + "..."
    return f"{where}.{key}" if key.isidentifier() and shown == key else f"{where}[{json.dumps(shown)}]"


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "null" if value is None else "an object")


class Reader:
    """Typed access to a document; a value of the wrong type becomes a fault and a harmless stand-in."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._counts: Counter[str] = Counter()

    def fault(self, rule: str, where: str, message: str, action: str | None = None) -> None:
        self._counts[rule] += 1
        if self._counts[rule] <= MAX_FAULTS_PER_RULE:
            self.faults.append(Fault(rule, where, message, action))
        elif self._counts[rule] == MAX_FAULTS_PER_RULE + 1:
            self.faults.append(not_listed(rule))

    def fields(
        self, where: str, value: Mapping[str, Any], required: Sequence[str], optional: Sequence[str] = ()
    ) -> None:
        known = [*required, *optional]
        for key in value:
            if key not in known:
                self.fault(
                    "unknown-field", _below(where, key), f"unknown field; known are {', '.join(known)}"
                )
        for key in required:
            if key not in value:
                self.fault("missing-field", _below(where, key), "is missing")

    def wrong_type(self, where: str, value: Any, wanted: str) -> None:
        self.fault("type", where, f"is {_kind(value)}, where {wanted} belongs")

    def string(self, where: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        self.wrong_type(where, value, "a string")
        return ""

    def integer(self, where: str, value: Any, least: int) -> int | None:
        if type(value) is not int:
            self.wrong_type(where, value, "a whole number")
        elif abs(value) >= LIMIT:
            self.fault("range", where, "is too large a number")
        elif value < least:
            self.fault("range", where, f"is {value}, where at least {least} belongs")
        else:
            return value
        return None

    def integers(self, where: str, value: Any, least: int) -> tuple[int, ...] | None:
        if not isinstance(value, list):
            self.wrong_type(where, value, "a list of whole numbers")
            return None
        wrong = [
            index for index, entry in enumerate(value) if type(entry) is not int or not least <= entry < LIMIT
        ]
        for index in wrong[: MAX_FAULTS_PER_RULE + 1]:
            self.integer(f"{where}[{index}]", value[index], least)
        return None if wrong else tuple(value)
