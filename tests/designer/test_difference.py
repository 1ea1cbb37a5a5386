"""Differences of programs: they turn one into the other, and no smaller set of moves would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.design import Design, make
from contraflow.designer.difference import Difference, Place, difference
from contraflow.designer.format.random_program import shuffled
from contraflow.designer.format.schedule import Action, Schedule, parse_token

SCHEDULES = st.from_type(Schedule)


@given(SCHEDULES)
def test_a_schedule_does_not_differ_from_itself(schedule: Schedule) -> None:
    found = difference(schedule, schedule)
    assert found == Difference({}, (), (), ())
    assert found.same_program


def applied(before: Schedule, after: Schedule, found: Difference) -> list[list[Action]]:
    """`before` with what is removed and moved taken out, and what is added and moved put in its place."""
    taken = {(place.device, action) for place, action in found.removed}
    taken |= {(move.before.device, move.action) for move in found.moved}
    programs = [
        [action for action in program if (device, action) not in taken]
        for device, program in enumerate(before.program)
    ]
    programs += [[] for _ in range(len(after.program) - len(programs))]
    put = [*found.added, *((move.after, move.action) for move in found.moved)]
    for place, action in sorted(put):
        programs[place.device].insert(place.position, action)
    return programs[: len(after.program)]


@given(SCHEDULES, SCHEDULES, st.booleans(), st.integers(0, 2**32))
def test_the_difference_turns_one_program_into_the_other(
    before: Schedule, other: Schedule, alike: bool, seed: int
) -> None:
    after = shuffled(before, Random(seed)) if alike else other
    found = difference(before, after)
    assert applied(before, after, found) == [list(program) for program in after.program]
    back = difference(after, before)
    assert len(back.added) == len(found.removed)
    assert len(back.removed) == len(found.added)
    assert len(back.moved) == len(found.moved)


def in_one_row(tokens: Sequence[str]) -> Schedule:
    base = make(Design("gpipe", devices=1, microbatches=4))
    return replace(base, program=(tuple(filter(None, map(parse_token, tokens))),))


@given(st.permutations(["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2"]))
def test_no_fewer_moves_would_do(tokens: list[str]) -> None:
    before = ["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2"]
    moved = difference(in_one_row(before), in_one_row(tokens)).moved
    kept = len(tokens) - len(moved)
    longest = max(
        count
        for count in range(1, len(tokens) + 1)
        for chosen in combinations(tokens, count)
        if [before.index(token) for token in chosen] == sorted(before.index(token) for token in chosen)
    )
    assert kept == longest


def test_places_and_fields_by_hand() -> None:
    before = make(Design("gpipe", devices=2, microbatches=2, sequence=8))
    first, second = before.program
    swapped = replace(before, name="mine", program=((first[1], first[0], *first[2:]), second))
    found = difference(before, swapped)
    assert found.fields == {"name": (before.name, "mine")}
    [move] = found.moved
    assert {move.before, move.after} == {Place(0, 0), Place(0, 1)}
    one_less = replace(before, program=(first, second[:-1]))
    assert difference(before, one_less).removed == ((Place(1, 3), second[-1]),)
    assert difference(one_less, before).added == ((Place(1, 3), second[-1]),)
    elsewhere = replace(before, program=((*first, second[-1]), second[:-1]))
    [move] = difference(before, elsewhere).moved
    assert (str(move.action), move.before, move.after) == (str(second[-1]), Place(1, 3), Place(0, 4))
