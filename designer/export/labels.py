"""What bars of a picture say, as far as they have room; and how much room words take where no font is at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contraflow.designer.format.schedule import Action

from .chart import Chart, State

NEARLY_ALL = 0.9
"""Of the bars have room for a form before a chart uses it."""

_NARROW, _WIDE = frozenset(" .,:;'|!()[]-/·ijlftrI"), frozenset("mwMW%@&")


class Labels(NamedTuple):
    """For each state the number of the longest form (see `forms`) that its bars use; without one they are bare."""

    form: Mapping[State, int]
    key: str
    """How to read them, in words; empty where there are none."""


def width_of(words: str) -> float:
    """Width in a sans-serif font, whichever it is, as a multiple of its size: rather too wide than too narrow."""
    return sum(
        0.34 if letter in _NARROW
        else 0.9 if letter in _WIDE
        else 0.63 if letter.isdigit()
        else 0.7 if letter.isupper() or ord(letter) > 255
        else 0.57
        for letter in words
    )  # fmt: skip


def wrapped(words: str, room: float) -> list[str]:
    """Lines of at most `room` times the font's size; a word that is longer is broken."""
    lines, line, used = [""], "", 0.0
    for word in words.split():
        wide = width_of(word)
        if line and used + width_of(" ") + wide <= room:
            line, used = f"{line} {word}", used + width_of(" ") + wide
        else:
            lines.append(line)
            while width_of(word) > room and len(word) > 1:
                most = next(
                    end for end in range(len(word), 0, -1) if end == 1 or width_of(word[:end]) <= room
                )
                lines.append(word[:most])
                word = word[most:]
            line, used = word, width_of(word)
    return [line for line in [*lines, line] if line] or [""]


def forms(action: Action) -> tuple[str, str, str, str]:
    """`3F1.0`, `F1.0`, `1.0`, `1`: with the stage, without it, without the kind, the microbatch alone."""
    token = str(action)
    behind = token[len(str(action.stage)) :]
    return token, behind, behind[1:], str(action.microbatch)


def labels(drawn: Chart, size: float, step: float) -> Labels:
    """What the bars have room for, letters being `size` high where `step` is the time of one unit of that."""
    actions = drawn.preview.timeline.graph.actions
    fitting: dict[State, list[int]] = {}
    count: dict[State, int] = {}
    seen: dict[tuple[object, ...], float] = {}
    for bars in drawn.bars:
        for node, length, number in zip(bars.nodes, bars.lengths, bars.looks, strict=True):
            state = drawn.looks[number].state
            count[state] = count.get(state, 0) + 1
            fits = fitting.setdefault(state, [0, 0, 0, 0])
            for form, words in enumerate(forms(actions[node])):
                shape = (form, actions[node].kind, *map(len, words.split(".")))
                if shape not in seen:
                    seen[shape] = needed(words, size)
                if seen[shape] <= length / step:
                    fits[form] += 1
    everywhere = next(
        (form for form in (0, 1) if all(fitting[s][form] >= NEARLY_ALL * count[s] for s in count)), None
    )
    if everywhere is not None:
        chosen = dict.fromkeys(count, everywhere)
    else:
        chosen = {
            state: form
            for state in count
            for form in (3, 2)
            if fitting[state][form] >= NEARLY_ALL * count[state]
        }
    return Labels(chosen, _key(actions, set(chosen.values())))


def label(action: Action, form: int, size: float, width: float) -> str:
    """The form, or a shorter one that fits, or nothing."""
    return next((words for words in forms(action)[form:] if needed(words, size) <= width), "")


def needed(words: str, size: float) -> float:
    """The width of the narrowest bar that takes these words."""
    return width_of(words) * size + 0.15 * size


def _key(actions: Sequence[Action], chosen: set[int]) -> str:
    if not chosen:
        return ""
    cut = any(action.subsequence is not None for action in actions)
    if min(chosen) >= 2:
        if not cut or min(chosen) == 3:
            return "in bars: microbatch"
        return "in bars: microbatch" + (
            ", with .subsequence where it fits" if max(chosen) == 3 else ".subsequence"
        )
    example = "1.0" if cut else "1"
    words = f"forward, microbatch{'.subsequence' if cut else ''} {example}"
    return f"2F{example}: stage 2, {words}" if 0 in chosen else f"F{example}: {words}"
