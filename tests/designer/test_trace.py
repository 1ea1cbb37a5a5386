"""Trace files: what is written is read back, what is spoiled is refused in words, and Perfetto's rules are kept."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contraflow.designer import costs
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import Design, make, preview
from contraflow.designer.export import perfetto
from contraflow.designer.format.lowering import TIED
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Action, Schedule
from contraflow.designer.format.trace import Delivery, Offset, Span, Times, Trace, dumps, load, loads
from contraflow.designer.overlay import predicted

MACHINE = costs.named("llama3-1b-h100")


def jittered(times: Times, rng: Random) -> Times:
    """The same actions and messages at other times."""

    def later(*values: float) -> list[float]:
        return sorted(value * rng.uniform(1, 1.5) + rng.random() * 1e-3 for value in values)

    return Times(
        tuple(Span(span.device, span.action, *later(span.begin, span.end)) for span in times.spans),
        tuple(
            Delivery(*d[:4], d.sent, rng.choice((None, *later(d.sent))), *later(d.awaited, d.taken))
            for d in times.deliveries
        ),
    )


def traced(schedule: Schedule, seed: int = 0) -> Trace:
    """As if a run of the schedule had been measured."""
    rng = Random(seed)
    expected = predicted(preview(schedule, unit).timeline)
    measured = jittered(expected, rng)
    shared = Delivery(0, 0, "tied weights", Action(TIED, "REDUCE_GRAD"), 1.0, None, 1.5, 2.0)
    return Trace(
        schedule,
        rng.randint(1, 99),
        "a bench",
        replace(measured, deliveries=(*measured.deliveries, shared)),
        tuple(Offset(rng.random(), rng.random()) for _ in schedule.program),
        rng.choice((None, ModelShape())),
        rng.choice((None, expected)),
        "priced so",
    )


@given(schedule=..., seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_a_trace_is_read_back(schedule: Schedule, seed: int) -> None:
    trace = traced(schedule, seed)
    assert loads(dumps(trace)) == trace
    assert loads(dumps(trace, perfetto.picture(trace)).encode()) == trace


def small() -> Trace:
    return traced(make(Design("bsipipe", devices=2, subsequences=2)), 1)


def test_tracks_do_not_overlap_and_show_every_action_and_message() -> None:
    trace = replace(small(), predicted=small().measured)
    events = json.loads(dumps(trace, perfetto.picture(trace)))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names.values()) == ["measured", "predicted"]
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    for track in tracks.values():
        for before, behind in pairwise(track):
            # Perfetto counts nanoseconds.
            assert round(1000 * (before["ts"] + before["dur"])) <= round(1000 * behind["ts"])
    for number, name in names.items():
        shown = [event for (process, _), track in tracks.items() if process == number for event in track]
        by_kind = {
            kind: [event for event in shown if event["cat"] == kind] for kind in ("F", "send", "receive")
        }
        times = trace.measured if name == "measured" else small().measured
        assert len(by_kind["F"]) == sum(span.action.kind == "F" for span in times.spans)
        assert len(by_kind["send"]) == len(by_kind["receive"]) == len(times.deliveries)


def test_a_prediction_alone_is_a_file_for_perfetto() -> None:
    shown = preview(make(Design("1f1b", devices=2)), MACHINE)
    events = json.loads(perfetto.dumps(shown))["traceEvents"]
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(shown.makespan * 1e6, abs=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"contraflow.trace/1"', '"contraflow.trace/2"', 'not an object with "format"'),
        ('"step"', '"stop"', "'step' is missing"),
        ('"measured"', '"weighed"', "'measured' is missing"),
        ('[0, "0F0.0"', '[0, "0F0.0x"', "'0F0.0x' is no action"),
        ('[0, "0F0.0"', '[1, "0F0.0"', "are not those of its program"),
        ('[0, "0F0.0"', '[null, "0F0.0"', "None is no device"),
        ('[0, "0F0.0"', '[9, "0F0.0"', "are not those of its program"),
        ('"offsets": [[', '"offsets": [[NaN, 0], [', "nan is no time"),
        ('"offsets": [[', f'"offsets": [[{10**400}, 0], [', "too large"),
        ('[0, 0, "tied weights"', '[0, 7, "tied weights"', "no lane 0->7"),
        ('[0, 0, "tied weights"', '[0, 0, "tied wait"', "no lane 0->0 for tied wait"),
        ('"devices": 2', '"devices": 3', "its schedule has faults"),
    ],
)
def test_a_spoiled_trace_is_answered_in_one_line(old: str, new: str, reason: str) -> None:
    text = dumps(small())
    assert old in text
    with pytest.raises(ValueError, match="mine is not a trace: ") as caught:
        loads(text.replace(old, new, 1), "mine")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_answered_in_one_line(tmp_path: Any) -> None:
    for path in (tmp_path, tmp_path / "nowhere", "a\0b"):
        with pytest.raises(ValueError, match=r"cannot be read|names no file") as caught:
            load(path)
        assert "\n" not in str(caught.value)


def answer(text: bytes) -> str:
    try:
        loads(text)
    except ValueError as error:
        return str(error)
    return "read"


def test_a_mutated_trace_is_read_or_refused_in_one_line() -> None:
    trace = small()
    text = dumps(trace, perfetto.picture(trace)).encode()
    rng, answers = Random(0), []
    junk = [b"null", b"-1", b"1e999", b"[]", b"{}", b'"', b"", b"9" * 400, b"\xff", b"[" * 50_000]
    for _ in range(400):
        spoiled = bytearray(text)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(spoiled) // 2)
            spoiled[place : place + rng.randint(0, 4)] = rng.choice(junk)
        answers.append(answer(bytes(spoiled)))
    assert not any("\n" in said for said in answers)
    assert {"read", "refused"} <= {said if said == "read" else "refused" for said in answers}
