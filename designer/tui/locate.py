"""Where in a file's text a fault lies: JSON paths and program positions become a range of characters. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

Path = tuple[str | int, ...]

_LEXEME = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]")
_ACTION = re.compile(r"device (\d+)(?:, action (\d+))?$")


@dataclass(frozen=True, slots=True)
class Range:
    """Characters from `start` to before `stop`."""

    start: int
    stop: int


def located(text: str, where: str) -> Range | None:
    """The characters that a fault's `where` means, or of the nearest thing around it; None for none."""
    action = _ACTION.match(where)
    if action is None:
        steps = tuple(name or int(number) for name, number in _STEP.findall(where))
        return _nearest(text, steps)
    device = int(action[1])
    if action[2] is None:
        return _nearest(text, ("program", device))
    left = int(action[2])
    for path, found in values(text):
        if path[:2] != ("program", device) or len(path) != 3 or text[found.start] != '"':
            continue
        start = found.start + 1
        for token in text[start : found.stop - 1].split(" "):
            if left == 0:
                return Range(start, start + len(token))
            left, start = left - 1, start + len(token) + 1
    return _nearest(text, ("program", device))


def _nearest(text: str, steps: Path) -> Range | None:
    best: tuple[int, Range] | None = None
    for path, found in values(text):
        if path == steps[: len(path)] and (best is None or len(path) > best[0]):
            best = len(path), found
    return best[1] if best else None


def values(text: str) -> Iterator[tuple[Path, Range]]:
    """Every value of a JSON text with its path, containers once they are closed; lenient with what is not JSON."""
    path: list[str | int] = []
    opened: list[tuple[int, bool]] = []
    key: str | None = None
    expects_key = False
    for match in _LEXEME.finditer(text):
        word, start = match[0], match.start()
        if word in "[{":
            opened.append((start, word == "{"))
            path.append(0)
            expects_key = word == "{"
        elif word in "]}":
            if not opened:
                return
            begin, _ = opened.pop()
            path.pop()
            yield tuple(path), Range(begin, match.end())
        elif word == ",":
            if opened and not opened[-1][1]:
                path[-1] = int(path[-1]) + 1 if isinstance(path[-1], int) else 0
            expects_key = bool(opened) and opened[-1][1]
        elif word == ":":
            if key is not None and path:
                path[-1], expects_key = key, False
        elif expects_key and word.startswith('"'):
            key = word[1:-1]
        else:
            yield tuple(path), Range(start, match.end())


def excerpt(text: str, found: Range | None, width: int, height: int) -> Text:
    """Numbered lines around a range, which is set off; long lines are cut around it."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    first = bisect_right(starts, found.start) - 1 if found else 0
    top = max(min(first - height // 2, len(starts) - height), 0)
    digits = len(str(min(top + height, len(starts))))
    room = max(width - digits - 2, 8)
    shift = max(found.start - starts[first] - room // 2, 0) if found else 0
    shift = 0 if found and found.stop - starts[first] <= room else shift
    lines: list[Text] = []
    for number in range(top, min(top + height, len(starts))):
        begin = starts[number] + shift
        end = starts[number + 1] - 1 if number + 1 < len(starts) else len(text)
        line = Text(printable(text[begin : max(min(end, begin + room), begin)]))
        if found:
            low, high = max(found.start - begin, 0), min(found.stop, end) - begin
            if low < high:
                line.stylize("bold reverse", low, high)
        lines.append(Text(f"{number + 1:>{digits}}  ", "dim").append_text(line))
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def printable(text: str) -> str:
    """The text with a mark for each character that would move the cursor or speak to the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
