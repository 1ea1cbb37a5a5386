"""Every rule of a schedule file has a case that breaks it: what is said, where, and of which token."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.format.check import HEADER_RULES, RULES, examine
from contraflow.designer.format.fault import MAX_FAULTS_PER_RULE, Fault
from contraflow.designer.format.file import parse
from contraflow.designer.format.graph import build
from contraflow.designer.format.schedule import Schedule

VALID: dict[str, Any] = {
    "format": "contraflow.schedule/1",
    "name": "two ways, cut and whole, B and I + W",
    "devices": 2,
    "microbatches": 2,
    "sequence": [6, 4],
    "splits": [[4, 2], [4]],
    "layers": [1, 0],
    "directions": [
        {"name": "down", "placement": [0, 1], "microbatches": [0]},
        {"name": "up", "placement": [1, 0], "microbatches": [1]},
    ],
    "program": [
        ["0F0.0 0F0.1 1F1 1I1 1W1", "1REDUCE_GRAD 0B0.1 0B0.0 0REDUCE_GRAD"],
        ["0F1 1F0.0 1F0.1 1B0.1 1B0.0 1REDUCE_GRAD 0B1 0REDUCE_GRAD"],
    ],
    "ranks": [1, 0],
    "design": {"generator": "hand"},
}

Document = dict[str, Any]
Edit = Callable[[Document], None]
Expected = tuple[str, str, str | None, str]
"""Rule, place, token, and words of the message."""


def at(path: str, value: Any) -> Edit:
    """Puts `value` at a place such as `directions.0.placement`."""

    def edit(document: Document) -> None:
        target: Any = document
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in parents:
            target = target[part]
        target[last] = value

    return edit


def without(path: str) -> Edit:
    def edit(document: Document) -> None:
        target: Any = document
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in parents:
            target = target[part]
        del target[last]

    return edit


def token(device: int, old: str, new: str) -> Edit:
    """Puts `new`, which may be several tokens or none, in the place of the token `old`."""

    def edit(document: Document) -> None:
        tokens = " ".join(document["program"][device]).split(" ")
        place = tokens.index(old)
        tokens[place : place + 1] = [new] if new else []
        document["program"][device] = [" ".join(tokens)]

    return edit


def edits(*parts: Edit) -> Edit:
    def edit(document: Document) -> None:
        for part in parts:
            part(document)

    return edit


def faults_of(edit: Edit) -> list[Fault]:
    document = copy.deepcopy(VALID)
    edit(document)
    return examine(json.dumps(document))[1]


def missing(*tokens: str, device: int) -> list[Expected]:
    return [("missing", f"device {device}", name, f"{name} is missing") for name in tokens]


def agrees(fault: Fault, expected: Expected) -> bool:
    rule, where, action, words = expected
    return (fault.rule, fault.where, fault.action) == (rule, where, action) and words in fault.message


def assert_exactly(faults: Iterable[Fault], expected: list[Expected]) -> None:
    faults = list(faults)
    for entry in expected:
        assert any(agrees(fault, entry) for fault in faults), (entry, [*map(str, faults)])
    for fault in faults:
        assert any(agrees(fault, entry) for entry in expected), str(fault)


CASES: dict[str, tuple[Edit, list[Expected]]] = {
    # Tokens.
    "a letter too many": (
        token(0, "0F0.1", "0F0.1x"),
        [("token", "device 0, action 1", "0F0.1x", "'0F0.1x' is no action"), *missing("0F0.1", device=0)],
    ),
    "a small letter": (
        token(1, "0F1", "0f1"),
        [("token", "device 1, action 0", "0f1", "is no action"), *missing("0F1", device=1)],
    ),
    "a leading zero": (
        token(1, "1B0.0", "01B0.0"),
        [("token", "device 1, action 4", "01B0.0", "is no action"), *missing("1B0.0", device=1)],
    ),
    "two spaces": (
        token(1, "0B1", " 0B1"),
        [
            (
                "token",
                "device 1, action 6",
                "",
                "empty token in $.program[1][0]: actions are separated by single",
            )
        ],
    ),
    "a space at the end": (
        at("program.0.0", "0F0.0 0F0.1 1F1 1I1 1W1 "),
        [("token", "device 0, action 5", "", "empty token in $.program[0][0]")],
    ),
    "a line break for a space": (
        at("program.0.0", "0F0.0 0F0.1 1F1 1I1\n1W1"),
        [
            ("token", "device 0, action 3", "1I1\n1W1", r"'1I1\n1W1' is no action"),
            ("missing", "device 0", "1B1", "1B1 is missing"),
        ],
    ),
    "an empty string": (
        at("program.0", ["0F0.0 0F0.1 1F1 1I1 1W1", "", "1REDUCE_GRAD 0B0.1 0B0.0 0REDUCE_GRAD"]),
        [("token", "$.program[0][1]", None, "is an empty string")],
    ),
    "a number beyond all bounds": (
        token(0, "1F1", "99999999999999999999F1"),
        [
            ("token", "device 0, action 2", "99999999999999999999F1", "is no action"),
            *missing("1F1", device=0),
        ],
    ),
    # Suffixes.
    "a suffix that lacks": (
        token(0, "0F0.0", "0F0"),
        [("suffix", "device 0, action 0", "0F0", "needs a suffix .0 to .1: microbatch 0 has 2 subsequences")],
    ),
    "a suffix too much": (
        token(0, "1F1", "1F1.0"),
        [("suffix", "device 0, action 2", "1F1.0", "has a suffix, but microbatch 1 travels whole")],
    ),
    # Ranges.
    "a stage that is none": (
        token(0, "1W1", "1W1 2F1"),
        [("range", "device 0, action 5", "2F1", "names stage 2 of 0..1")],
    ),
    "a microbatch that is none": (
        token(1, "0F1", "0F1 0F2"),
        [("range", "device 1, action 1", "0F2", "names microbatch 2 of 0..1")],
    ),
    "a subsequence that is none": (
        token(0, "0F0.1", "0F0.1 0F0.2"),
        [("range", "device 0, action 2", "0F0.2", "names subsequence 2 of 0..1 of microbatch 0")],
    ),
    "a reduction of a stage that is none": (
        token(0, "0REDUCE_GRAD", "0REDUCE_GRAD 2REDUCE_GRAD"),
        [("range", "device 0, action 9", "2REDUCE_GRAD", "names stage 2 of 0..1")],
    ),
    # Completeness.
    "a forward that stands twice": (
        token(0, "0F0.1", "0F0.1 0F0.1"),
        [("duplicate", "device 0, action 2", "0F0.1", "stands twice: already device 0, action 1")],
    ),
    "a forward that lacks": (token(1, "1F0.1", ""), missing("1F0.1", device=1)),
    "a backward that lacks": (token(1, "0B1", ""), missing("0B1", device=1)),
    "an I without its W": (
        token(0, "1W1", ""),
        [("pairing", "device 0", "1W1", "1W1 is missing, though 1I1 stands without its W")],
    ),
    "a W without its I": (
        token(0, "1I1", ""),
        [("pairing", "device 0", "1I1", "1I1 is missing, though 1W1 stands without its I")],
    ),
    "a B beside an I": (
        token(0, "1W1", "1W1 1B1"),
        [
            (
                "duplicate",
                "device 0, action 5",
                "1B1",
                "stands beside 1I1 (device 0, action 3): a backward is either",
            )
        ],
    ),
    "a W beside a B": (
        token(1, "1B0.1", "1B0.1 1W0.1"),
        [("pairing", "device 1, action 4", "1W0.1", "is too much beside 1B0.1, a full B")],
    ),
    "an action on another device": (
        edits(token(0, "1W1", ""), token(1, "1B0.0", "1B0.0 1W1")),
        [("device", "device 1, action 5", "1W1", "belongs on device 0, where direction 'up' places stage 1")],
    ),
    # Lengths and layers.
    "a split that does not add up": (
        at("splits.0", [4, 3]),
        [("splits", "$.splits[0]", None, "adds up to 7, the sequence has 6 tokens")],
    ),
    "a common split that does not add up": (
        edits(at("sequence", 6), at("splits", [4, 3]), without("program")),
        [
            ("missing-field", "$.program", None, "is missing"),
            ("program", "$.program", None, "has 0 entries for 2 devices"),
            ("splits", "$.splits", None, "adds up to 7, the sequence has 6 tokens"),
            *missing(
                *(f"{s}{k}{m}.{q}" for s, m in ((0, 0), (1, 1)) for q in (0, 1) for k in "FB"), device=0
            ),
            *missing(
                *(f"{s}{k}{m}.{q}" for s, m in ((1, 0), (0, 1)) for q in (0, 1) for k in "FB"), device=1
            ),
        ],
    ),
    "one split for sequences of two lengths": (
        edits(
            at("sequence", [4, 5]),
            at("splits", [[4], [4]]),
            at("program.0", ["0F0 1F1 1I1 1W1 1REDUCE_GRAD 0B0 0REDUCE_GRAD"]),
            at("program.1", ["0F1 1F0 1B0 1REDUCE_GRAD 0B1 0REDUCE_GRAD"]),
        ),
        [("splits", "$.splits[1]", None, "adds up to 4, the sequence has 5 tokens")],
    ),
    "a split without subsequences": (
        at("splits.1", []),
        [("range", "$.splits[1]", None, "is empty")],
    ),
    "a subsequence without tokens": (
        at("splits.0", [6, 0]),
        [("range", "$.splits[0][1]", None, "is 0, where at least 1 belongs")],
    ),
    "a sequence without tokens": (
        at("sequence", [6, 0]),
        [("range", "$.sequence[1]", None, "is 0, where at least 1 belongs")],
    ),
    "too few sequences": (
        at("sequence", [6]),
        [("count", "$.sequence", None, "has 1 entries for 2 microbatches")],
    ),
    "too many splits": (
        at("splits", [[4, 2], [4], [4]]),
        [("count", "$.splits", None, "has 3 entries for 2 microbatches")],
    ),
    "one split for sequences of their own": (
        at("splits", [4, 2]),
        [
            ("type", "$.splits[0]", None, "is a whole number, where a list of whole numbers belongs"),
            ("type", "$.splits[1]", None, "is a whole number, where a list of whole numbers belongs"),
        ],
    ),
    "a split for each where the sequence is one": (
        at("sequence", 6),
        [
            ("type", "$.splits[0]", None, "is a list, where a whole number belongs"),
            ("type", "$.splits[1]", None, "is a list, where a whole number belongs"),
        ],
    ),
    "layers for another number of stages": (
        at("layers", [1, 1, 1]),
        [("layers", "$.layers", None, "has 3 entries for 2 stages")],
    ),
    "fewer layers than none": (
        at("layers", [1, -1]),
        [("range", "$.layers[1]", None, "is -1, where at least 0 belongs")],
    ),
    # Directions.
    "a placement on a device that is none": (
        at("directions.1.placement", [1, 2]),
        [
            ("placement", "$.directions[1].placement[1]", None, "names device 2 of 0..1"),
            ("device", "device 0, action 2", "1F1", "belongs on device 2"),
            ("device", "device 0, action 3", "1I1", "belongs on device 2"),
            ("device", "device 0, action 4", "1W1", "belongs on device 2"),
            ("device", "device 0, action 5", "1REDUCE_GRAD", "stage 1 is not held: it is on device 1 and 2"),
            ("reductions", "device 2", "1REDUCE_GRAD", "is missing, though device 1 has it"),
        ],
    ),
    "directions of different depth": (
        at("directions.1.placement", [1, 0, 1]),
        [("placement", "$.directions", None, "place 2, 3 stages; all directions have the same number")],
    ),
    "a direction without stages": (
        at("directions.1.placement", []),
        [("placement", "$.directions[1].placement", None, "is empty")],
    ),
    "no direction at all": (at("directions", []), [("range", "$.directions", None, "is empty")]),
    "a device without a stage": (
        edits(at("devices", 3), lambda document: document["program"].append([]), at("ranks", [2, 1, 0])),
        [("placement", "$.directions", None, "no direction places a stage on device 2")],
    ),
    "a microbatch that travels nowhere": (
        at("directions.1.microbatches", []),
        [("partition", "$.directions", None, "microbatch 1 stands in no direction")],
    ),
    "a microbatch that travels both ways": (
        at("directions.0.microbatches", [0, 1]),
        [
            (
                "partition",
                "$.directions[1].microbatches[0]",
                None,
                "microbatch 1 already stands in $.directions[0].microbatches[1]",
            )
        ],
    ),
    "a microbatch that is listed twice": (
        at("directions.1.microbatches", [1, 1]),
        [
            (
                "partition",
                "$.directions[1].microbatches[1]",
                None,
                "already stands in $.directions[1].microbatches[0]",
            )
        ],
    ),
    "a microbatch that is none, in a direction": (
        at("directions.1.microbatches", [1, 2]),
        [("partition", "$.directions[1].microbatches[1]", None, "names microbatch 2 of 0..1")],
    ),
    # Devices and ranks.
    "a program for too few devices": (
        without("program.1"),
        [
            ("program", "$.program", None, "has 1 entries for 2 devices"),
            *missing("1F0.0", "1F0.1", "1B0.0", "1B0.1", "0F1", "0B1", device=1),
            (
                "reductions",
                "device 1",
                "0REDUCE_GRAD",
                "is missing, though device 0 has it: on all copies or on none",
            ),
            (
                "reductions",
                "device 1",
                "1REDUCE_GRAD",
                "is missing, though device 0 has it: on all copies or on none",
            ),
        ],
    ),
    "a program for too many devices": (
        lambda document: document["program"].append([]),
        [("program", "$.program", None, "has 3 entries for 2 devices")],
    ),
    "ranks that are no permutation": (
        at("ranks", [1, 1]),
        [("ranks", "$.ranks", None, "is not a permutation of 0..1")],
    ),
    "ranks for another number of devices": (
        at("ranks", [1, 0, 2]),
        [("ranks", "$.ranks", None, "is not a permutation of 0..1")],
    ),
    # Reductions.
    "reductions in opposite orders": (
        edits(
            token(0, "1REDUCE_GRAD", ""),
            token(0, "0REDUCE_GRAD", "0REDUCE_GRAD 1REDUCE_GRAD"),
        ),
        [
            (
                "reductions",
                "device 0, action 7",
                "0REDUCE_GRAD",
                "comes before 1REDUCE_GRAD here and behind it on device 1 (device 1, action 7): "
                "devices name the stages they share in one order",
            )
        ],
    ),
    "a reduction on one of two copies": (
        token(1, "1REDUCE_GRAD", ""),
        [
            (
                "reductions",
                "device 1",
                "1REDUCE_GRAD",
                "is missing, though device 0 has it: on all copies or on none",
            )
        ],
    ),
    "a reduction that stands twice": (
        token(0, "0REDUCE_GRAD", "0REDUCE_GRAD 0REDUCE_GRAD"),
        [("duplicate", "device 0, action 9", "0REDUCE_GRAD", "stands twice: already device 0, action 8")],
    ),
    "a reduction before the last B": (
        edits(token(0, "0REDUCE_GRAD", ""), token(0, "0B0.0", "0REDUCE_GRAD 0B0.0")),
        [
            (
                "cycle",
                "device 0, action 7",
                "0REDUCE_GRAD",
                "0REDUCE_GRAD waits for 0B0.0 (device 0, action 8)",
            )
        ],
    ),
    "a reduction before the last W": (
        edits(token(0, "1REDUCE_GRAD", ""), token(0, "1W1", "1REDUCE_GRAD 1W1")),
        [("cycle", "device 0, action 4", "1REDUCE_GRAD", "1REDUCE_GRAD waits for 1W1 (device 0, action 5)")],
    ),
    "a reduction where the stage is not held": (
        edits(
            at("directions", [{"name": "down", "placement": [0, 1], "microbatches": [0, 1]}]),
            at("program.0", ["0F0.0 0F0.1 0F1 0B0.1 0B0.0 0B1 1REDUCE_GRAD"]),
            at("program.1", ["1F0.0 1F0.1 1F1 1B0.1 1B0.0 1B1 1REDUCE_GRAD"]),
        ),
        [("device", "device 0, action 6", "1REDUCE_GRAD", "stage 1 is not held: it is on device 1")],
    ),
    # Order.
    "a backward before its forward": (
        edits(token(0, "1F1", ""), token(0, "1I1", "1I1 1F1")),
        [
            (
                "cycle",
                "device 0, action 2",
                "1I1",
                "1I1 waits for 1F1 (device 0, action 3), which comes after 1I1 there",
            )
        ],
    ),
    # Fields.
    "a field that is unknown": (
        at("ranking", [0, 1]),
        [("unknown-field", "$.ranking", None, "unknown field; known are format, name,")],
    ),
    "a field that is unknown, in a direction": (
        at("directions.0.device", 3),
        [("unknown-field", "$.directions[0].device", None, "known are name, placement, microbatches")],
    ),
    "a field whose name would disturb a terminal": (
        at("a\n\x1b[31m", 1),
        [("unknown-field", r'$["a\n\u001b[31m"]', None, "unknown field")],
    ),
    "another version": (
        at("format", "contraflow.schedule/2"),
        [("version", "$.format", None, '"contraflow.schedule/2" is not contraflow.schedule/1')],
    ),
    "a version that is a number": (
        at("format", 1),
        [("version", "$.format", None, "1 is not contraflow.schedule/1")],
    ),
}


def test_the_example_is_valid() -> None:
    assert faults_of(lambda document: None) == []


@pytest.mark.parametrize("case", CASES)
def test_a_planted_fault_is_told_with_its_place_and_nothing_else(case: str) -> None:
    edit, expected = CASES[case]
    assert_exactly(faults_of(edit), expected)


def broken(case: str) -> Schedule | None:
    document = copy.deepcopy(VALID)
    CASES[case][0](document)
    return parse(json.dumps(document))[0]


def test_every_rule_has_a_case_that_breaks_it() -> None:
    schedules = [schedule for schedule in map(broken, CASES) if schedule is not None]
    for header_rule in HEADER_RULES:
        assert any(list(header_rule(schedule)) for schedule in schedules), header_rule
    for rule in RULES:
        assert any(list(rule(schedule, build(schedule))) for schedule in schedules), rule


TOGETHER = [
    "a letter too many", "a suffix too much", "an I without its W", "a W beside a B", "a backward that lacks",
    "a split that does not add up", "layers for another number of stages", "ranks that are no permutation",
    "a program for too many devices", "a reduction that stands twice", "a reduction before the last B",
    "a field that is unknown", "another version", "a microbatch that is none, in a direction",
]  # fmt: skip


@given(st.lists(st.sampled_from(TOGETHER), min_size=2, unique=True))
def test_several_faults_are_told_at_once(cases: list[str]) -> None:
    faults = faults_of(edits(*(CASES[case][0] for case in cases)))
    told = {(fault.rule, fault.action) for fault in faults}
    for case in cases:
        for rule, _, action, _ in CASES[case][1]:
            assert (rule, action) in told, (case, [*map(str, faults)])


FIELDS: dict[str, tuple[type, ...]] = {
    "format": (), "name": (str,), "devices": (int,), "microbatches": (int,), "sequence": (int, list),
    "splits": (list,), "layers": (list,), "directions": (list,), "program": (list,), "ranks": (list,),
    "design": (dict,), "sequence.0": (int,), "splits.0": (list,), "splits.0.0": (int,), "layers.0": (int,),
    "directions.0": (dict,), "directions.0.name": (str,), "directions.0.placement": (list,),
    "directions.0.placement.0": (int,), "directions.0.microbatches": (list,), "directions.0.microbatches.0": (int,),
    "program.0": (list,), "program.0.0": (str,), "ranks.0": (int,),
}  # fmt: skip


def path(field: str) -> str:
    return "$" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in field.split("."))


@pytest.mark.parametrize("field", FIELDS)
def test_a_value_of_a_wrong_type_is_told_with_its_path(field: str) -> None:
    for value in (None, True, 1.5, 7, "seven", [], {}, [None]):
        if type(value) not in FIELDS[field] or value == [None]:
            faults = faults_of(at(field, value))
            assert any(fault.where.startswith(path(field)) for fault in faults), (value, [*map(str, faults)])


@pytest.mark.parametrize("field", [field for field in FIELDS if "0" not in field])
def test_a_field_that_lacks_is_told(field: str) -> None:
    told = [(fault.rule, fault.where) for fault in faults_of(without(field))]
    optional = field in ("layers", "ranks", "design")
    assert (("missing-field", path(field)) in told) is not optional
    assert bool(told) is not optional


@pytest.mark.parametrize("field", ["name", "placement", "microbatches"])
def test_a_field_that_lacks_in_a_direction_is_told(field: str) -> None:
    told = [(fault.rule, fault.where) for fault in faults_of(without(f"directions.1.{field}"))]
    assert ("missing-field", f"$.directions[1].{field}") in told


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"devices": 2', '"devices": 2, "devices": 2', "$.devices"),
        ('"name": "up"', '"name": "up", "name": "down"', "$.directions[1].name"),
        ('"generator": "hand"', '"a": [{"b": 1, "b": 1}]', "$.design.a[0].b"),
    ],
)
def test_a_field_that_stands_twice_is_told(old: str, new: str, where: str) -> None:
    text = json.dumps(VALID)
    assert text.count(old) == 1
    faults = examine(text.replace(old, new))[1]
    assert_exactly(faults, [("duplicate-field", where, None, "stands twice")])


@pytest.mark.parametrize(
    ("edit", "where"),
    [
        (at("devices", 10**12), "$.devices"),
        (at("devices", 10**18), "$.devices"),
        (at("devices", 10**4000), "$.devices"),
        (at("microbatches", 10**9), "$.microbatches"),
        (at("sequence", [10**4000, 4]), "$.sequence[0]"),
        (at("sequence", [-(10**4000), 4]), "$.sequence[0]"),
        (at("ranks", [10**18, 0]), "$.ranks"),
        (at("directions.0.microbatches", [10**15]), "$.directions[0].microbatches[0]"),
        (at("directions.0.placement", [0, 10**15]), "$.directions[0].placement[1]"),
        (edits(at("microbatches", 1000), at("sequence", 10**6), at("splits", [1] * 10**6)), "$.program"),
        (
            edits(
                at("microbatches", 1000),
                at("sequence", 1000),
                at("splits", [1] * 1000),
                at(
                    "directions",
                    [{"name": "deep", "placement": [0, 1] * 10**5, "microbatches": [*range(1000)]}],
                ),
            ),
            "$.program",
        ),
        (at("splits", [[0] * 10**6, [4]]), "$.splits[0][0]"),
        (at("layers", [-1] * 10**6), "$.layers[0]"),
        (at("program.0", ["x " * 10**5]), "device 0, action 0"),
        (at("program", [[]] * 10**5), "$.program"),
        (at("program.0", ["0REDUCE_GRAD " * 10**5]), "device 0, action 1"),
    ],
)
def test_a_file_that_promises_or_repeats_far_too_much_is_told_so_at_once(edit: Edit, where: str) -> None:
    faults = faults_of(edit)
    assert where in [fault.where for fault in faults]
    assert len(faults) < 10 * MAX_FAULTS_PER_RULE
    assert all(len(str(fault)) < 300 for fault in faults)


def test_faults_of_a_kind_are_counted_out() -> None:
    faults = faults_of(at("program.0", ["x " * 150 + "x"]))
    of_tokens = [fault for fault in faults if fault.rule == "token"]
    assert len(of_tokens) == MAX_FAULTS_PER_RULE + 1
    assert of_tokens[-1].message == "more faults of this kind (token) are not listed"
    assert [
        fault for fault in faults_of(at("program.0", ["x " * 99 + "x"])) if "not listed" in fault.message
    ] == []
