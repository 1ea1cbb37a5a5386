"""Spoiled files: each is refused in words, or is valid and runs; nothing in between."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

import pytest

from contraflow.designer import costs
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, make, preview
from contraflow.designer.format import file
from contraflow.designer.format.check import examine
from contraflow.designer.format.fault import NotAScheduleError
from contraflow.designer.format.lowering import lower
from contraflow.designer.format.random_program import random_schedule
from contraflow.designer.generators import GENERATORS

MACHINE = costs.named("llama3-1b-h100")

JUNK: list[Any] = [
    None, True, 0, 1, 2, -1, 3, 1.5, 10**12, 10**25, "", "0F0", "x", "\x00", "ключ", "\u2028", [], [[]], [0], [1, 1],
    [[1], [2]], {}, {"a": {}}, [{}], ["0F0"], [None],
]  # fmt: skip


@cache
def made(generator: str) -> str:
    """A small schedule of a generator, with the knobs that made it."""
    return file.dumps(make(Design(generator, devices=2, subsequences=2 if GENERATORS[generator].cuts else 1)))


def spoiled(rng: Random) -> str | bytes:
    """A random or a generator's schedule after one to three slips: of bytes, tokens, values, fields or orders."""
    if rng.random() < 0.5:
        schedule = random_schedule(rng, max_stages=3, max_microbatches=2, max_subsequences=2)
        document = json.loads(file.dumps(schedule))
    else:
        document = json.loads(made(rng.choice(list(GENERATORS))))
    for _ in range(rng.randint(1, 3)):
        if isinstance(document, dict):
            rng.choice((spoil_value, spoil_value, spoil_tokens, spoil_tokens, spoil_fields))(document, rng)
    text = json.dumps(document)
    return spoiled_bytes(text.encode(), rng) if rng.random() < 0.3 else text


def spoil_value(document: Any, rng: Random) -> None:
    """Puts junk, or a small number, somewhere."""
    target = document
    while True:
        keys = list(target) if isinstance(target, dict) else range(len(target))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(target[key], dict | list) and target[key] and rng.random() < 0.8:
            target = target[key]
            continue
        target[key] = deepcopy(rng.choice(JUNK)) if rng.random() < 0.6 else rng.randint(-1, 5)
        return


def spoil_fields(document: dict[str, Any], rng: Random) -> None:
    key = rng.choice(list(document))
    if rng.random() < 0.5:
        del document[key]
    else:
        document[rng.choice((key.upper(), key + "s", "layers", "ranks", "design"))] = deepcopy(
            rng.choice(JUNK)
        )


def spoil_tokens(document: dict[str, Any], rng: Random) -> None:
    """Moves, swaps, drops, doubles or rewrites actions, within a device or across two."""
    program = document.get("program")
    if not isinstance(program, list) or not program:
        return
    lists = []
    for lines in program:
        words = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
        lists.append(" ".join(words).split(" "))
    here, there = rng.choice(lists), rng.choice(lists)
    place, other = rng.randrange(len(here)), rng.randrange(len(there))
    slip = rng.randrange(6)
    if slip == 0:
        there.insert(other, here.pop(place))
    elif slip == 1:
        here[place], there[other] = there[other], here[place]
    elif slip == 2:
        del here[place]
    elif slip == 3:
        there.insert(other, here[place])
    elif slip == 4:
        rng.shuffle(here)
    else:
        here[place] = here[place].replace(rng.choice("FBIW.01"), rng.choice("FBIWR.0129 x"))
    document["program"] = [[" ".join(tokens)] for tokens in lists]


def spoiled_bytes(text: bytes, rng: Random) -> bytes:
    spoiled = bytearray(text)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(spoiled))
        slip = rng.randrange(4)
        if slip == 0:
            spoiled[place] = rng.randrange(256)
        elif slip == 1:
            del spoiled[place : place + rng.randint(1, 5)]
        elif slip == 2:
            spoiled[place:place] = spoiled[place : place + rng.randint(1, 20)]
        else:
            spoiled[place] = rng.choice(b'0123456789[]{}",:.FBIW ')
        if not spoiled:
            break
    return bytes(spoiled)


def assert_one_line(what: object) -> None:
    assert str(what)
    assert "\n" not in str(what)


def outcome(text: str | bytes) -> str:
    try:
        schedule, faults = examine(text)
    except NotAScheduleError as error:
        assert_one_line(error)
        return "no schedule"
    if faults:
        for fault in faults:
            assert_one_line(fault)
        return "faults"
    assert schedule is not None
    shown = preview(schedule, unit)
    assert shown.makespan > 0
    for use, idle in zip(shown.timeline.devices, shown.explanation.idle, strict=True):
        assert sum(idle.by_cause().values()) == pytest.approx(use.idle, abs=1e-9)
    if schedule.layout.layers is None:
        assert preview(schedule, MACHINE).peak_bytes > 0
    lower(schedule)
    lower(schedule, tied=True)
    assert file.parse(file.dumps(schedule)) == (schedule, [])
    return "valid"


@pytest.mark.parametrize("block", range(6))
def test_a_spoiled_file_is_refused_in_words_or_runs(block: int) -> None:
    seen = set()
    for seed in range(block * 500, block * 500 + 500):
        text = spoiled(Random(seed))
        try:
            seen.add(outcome(text))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text!r}") from error
    assert seen == {"no schedule", "faults", "valid"}
