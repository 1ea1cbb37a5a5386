"""What the interface decides before it draws: knobs, drafts, undo, and where the eye is."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contraflow.designer.design import Design
from contraflow.designer.generators import GENERATORS
from contraflow.designer.tui import session as sessions
from contraflow.designer.tui.knobs import KNOBS, Knob, costs_choices
from contraflow.designer.tui.session import Draft, Picture, Refusal, Session, answer
from contraflow.designer.tui.typed import Slip
from contraflow.designer.tui.view import (
    Place,
    bar_at,
    columns,
    described,
    heights,
    most_zoom,
    neighbour,
    step,
)

BY_NAME = {knob.name: knob for knob in KNOBS}


def picture(design: Design) -> Picture:
    found = answer(Draft(design))
    assert isinstance(found, Picture)
    return found


def answered(session: Session) -> Session:
    return sessions.answered(session, answer(session.draft))


def test_every_field_of_a_design_has_a_knob() -> None:
    assert [knob.name for knob in KNOBS if knob.name not in {field.name for field in fields(Design)}] == []
    assert {field.name for field in fields(Design)} == set(BY_NAME)


VALUES = """
    0 1 3 -1 1.5 1e99 nan inf 999999999999 99999999999999 32k 4,4 512,384,128 0,1 even compute time unit work:
    work:llama3-8b llama3-8b-h100 x.toml .json ☃ ² ١ \0
"""
typed = st.one_of(st.sampled_from(VALUES.split()), st.text(max_size=6))


def value_typed(knob: Knob, design: Design, text: str) -> Design:
    """The design after typing; the same one where that was a slip, which is told in one line."""
    try:
        return knob.typed(design, text)
    except Slip as slip:
        message = str(slip)
    assert "\n" not in message
    return design


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from(KNOBS), st.one_of(typed, st.sampled_from([-1, 1, 0]))), max_size=5),
    st.sampled_from(sorted(GENERATORS)),
)
def test_whatever_is_turned_or_typed_has_an_answer(
    turns: list[tuple[Knob, str | int]], generator: str
) -> None:
    design = BY_NAME["generator"].typed(Design(), generator)
    for knob, value in turns:
        if value == 0:
            design = knob.rested(design) if knob.rested else design
        elif isinstance(value, int):
            design = knob.turned(design, value) if knob.turned else design
        else:
            design = value_typed(knob, design, value)
        for each in KNOBS:
            assert isinstance(each.shown(design), str)
            each.applies(design)
    draft = Draft(design)
    # Larger ones are answered just as well, only more slowly.
    if draft.size < 2000 or draft.size > 10**6:
        found = answer(draft)
        assert isinstance(found, Picture) or ("\n" not in found.message and "--" not in found.message)


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_what_a_knob_shows_can_be_typed(knob: Knob) -> None:
    design = Design(
        generator="bsipipe",
        split="compute",
        layers=(4,) * 8,
        budget=3.5,
        costs="work:gpt-7b",
        directions="0110",
    )
    assert knob.shown(knob.typed(design, knob.shown(design))) == knob.shown(design)


@pytest.mark.parametrize("name", [name for name, _ in costs_choices()])
def test_every_cost_model_on_offer_prices(name: str) -> None:
    picture(Design(costs=name))


def test_another_generator_puts_knobs_it_lacks_to_rest() -> None:
    design = Design(generator="bsipipe", subsequences=8, unit_microbatches=2, budget=5.0)
    for name in GENERATORS:
        turned = BY_NAME["generator"].typed(design, name)
        assert turned.generator == name
        assert turned.kind.cuts or turned.num_subsequences == 1
        picture(turned)


def test_an_answer_to_an_older_draft_changes_nothing() -> None:
    session = answered(sessions.started(Draft(Design())))
    late = answer(session.draft)
    turned = sessions.turned(session, "devices", Design(devices=5))
    assert sessions.answered(turned, late) is turned
    assert turned.waiting
    assert not answered(turned).waiting


def test_a_refusal_keeps_the_last_picture() -> None:
    session = answered(sessions.started(Draft(Design(generator="bsipipe"))))
    refused = answered(sessions.turned(session, "devices", Design(generator="bsipipe", devices=3)))
    assert refused.picture is session.picture
    assert refused.stale
    assert not refused.waiting
    assert "pairs" in refused.refusal


@given(st.lists(st.sampled_from(["+", "-", "undo", "redo"]), max_size=30))
def test_undo_is_an_inverse(moves: list[str]) -> None:
    session = sessions.started(Draft(Design()))
    devices = BY_NAME["devices"].turned
    assert devices is not None
    for move in moves:
        if move in ("undo", "redo"):
            session = (sessions.undone if move == "undo" else sessions.redone)(session)
            continue
        turned = sessions.turned(session, "devices", devices(session.draft.design, 1 if move == "+" else -1))
        if turned.draft is not session.draft:
            assert sessions.undone(turned).draft is session.draft
            assert sessions.redone(sessions.undone(turned)).draft is turned.draft
        session = turned
    while session.past:
        session = sessions.undone(session)
    assert session.draft.design == Design()
    assert not session.dirty


@given(st.integers(1, 200), st.integers(0, 200))
def test_lines_are_shared_as_far_as_they_go(devices: int, lines: int) -> None:
    chart, memory = heights(devices, lines)
    assert (chart, memory) == (1, 1) or devices * (chart + memory) <= lines


@given(
    st.sampled_from(
        [Design(), Design(generator="bsipipe"), Design(costs="gpt-7b-a100"), Design(microbatches=40)]
    ),
    st.integers(1, 300),
)
def test_zoom_runs_from_everything_to_legible(design: Design, width: int) -> None:
    drawn = picture(design).chart
    assert columns(drawn, step(drawn, width, 0)) <= width
    steps = [step(drawn, width, zoom) for zoom in range(most_zoom(drawn, width) + 1)]
    assert steps == sorted(steps, reverse=True)
    assert drawn.shortest / steps[-1] >= 8


def test_what_is_pointed_at_is_told_in_words() -> None:
    drawn = picture(Design()).chart
    assert described(drawn, Place(0, 2.0)) == "device 0: idle, 1.75 to 3.25"
    assert described(drawn, Place(3, 14.0)) == "device 3: idle, 12.75 to 14.25"
    assert described(drawn, Place(0, 0.3)).startswith("device 0: 0F0.1  0.25 to 0.5, forward of stage 0")


@given(st.integers(0, 3), st.floats(0, 20))
def test_the_bar_at_a_time_runs_then(device: int, time: float) -> None:
    bars = picture(Design()).chart.bars[device]
    running = [
        bar
        for bar, (start, end) in enumerate(zip(bars.starts, bars.ends, strict=True))
        if start <= time < end
    ]
    assert [bar_at(bars, time)] == (running or [-1])


def test_the_cursor_visits_every_bar_both_ways() -> None:
    bars = picture(Design()).chart.bars[1]
    count = len(bars.starts)
    for by, start, visited in [(1, 0.0, range(count)), (-1, 14.0, reversed(range(count)))]:
        time, seen = start, []
        for _ in range(count):
            time = neighbour(bars, time, by)
            seen.append(bar_at(bars, time))
        assert seen == list(visited)


def test_a_refusal_speaks_of_knobs_not_of_options() -> None:
    found = answer(Draft(Design(generator="gpipe", stages_per_device=2)))
    assert isinstance(found, Refusal)
    assert "use stages per device 1" in found.message
