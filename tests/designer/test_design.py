"""Knobs to schedule to what is shown: what both front ends do, and what they are told instead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer import costs, splits
from contraflow.designer.costs.presets import MODELS
from contraflow.designer.costs.unit import unit
from contraflow.designer.design import (
    Design,
    DesignError,
    carried,
    efforts,
    from_knobs,
    knobs,
    make,
    parted,
    preview,
)
from contraflow.designer.format import file
from contraflow.designer.format.check import check
from contraflow.designer.format.fault import InvalidScheduleError
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.generators import GENERATORS

IN_TURN = st.builds(
    Design,
    generator=st.sampled_from(sorted(GENERATORS)),
    devices=st.integers(1, 4),
    microbatches=st.integers(1, 5),
    subsequences=st.none() | st.integers(1, 4),
    stages_per_device=st.none() | st.integers(1, 3),
    sequence=st.integers(1, 5000),
    split=st.sampled_from(["even", "compute", "time"])
    | st.lists(st.integers(1, 99), min_size=1, max_size=4).map(tuple),
    multiple=st.sampled_from([1, 128]),
    layers=st.none() | st.lists(st.integers(0, 3), max_size=4).map(tuple),
    unit_microbatches=st.integers(0, 3),
    budget=st.none() | st.floats(0, 9),
    costs=st.none() | st.sampled_from(["unit", "work:gpt-7b", "llama3-8b-h100"]),
)


def sent(design: Design, ways: str | None) -> Design:
    """The design with its microbatches sent so, where there are two directions."""
    if ways is None or design.kind.directions == 1:
        return design
    return replace(design, directions=ways[: design.microbatches])


DESIGNS = st.builds(sent, IN_TURN, st.none() | st.text("01", min_size=5, max_size=5))


def assert_one_line(error: Exception) -> None:
    assert str(error)
    assert "\n" not in str(error)


@given(DESIGNS)
def test_knobs_give_a_valid_schedule_or_one_line(design: Design) -> None:
    try:
        schedule = make(design)
    except DesignError as error:
        assert_one_line(error)
        return
    assert check(schedule) == []
    text = file.dumps(schedule)
    assert file.parse(text) == (schedule, [])
    assert from_knobs(json.loads(text)["design"]) == design
    assert carried(schedule) == design
    assert not parted(schedule, design)


@given(DESIGNS)
def test_knobs_are_read_back_from_their_provenance(design: Design) -> None:
    assert from_knobs(json.loads(json.dumps(knobs(design)))) == design


def test_the_knobs_at_rest_are_seq1f1b_in_four_subsequences() -> None:
    schedule = make(Design())
    assert schedule.name == "seq1f1b p4 m4 k4"
    assert schedule.layout.splits == ((8192,) * 4,) * 4
    assert make(Design(generator="1f1b")).layout.splits == ((32768,),) * 4
    assert make(Design(generator="bsipipe")).layout.num_stages == 8


def test_an_edited_program_has_parted_from_its_knobs() -> None:
    design = Design(generator="1f1b", devices=2)
    schedule = make(design)
    assert not parted(replace(schedule, name="mine", layout=replace(schedule.layout, ranks=(1, 0))), design)
    (first, second, *rest), other = schedule.program
    assert parted(replace(schedule, program=((second, first, *rest), other)), design)
    assert parted(schedule, Design(generator="no such"))


@pytest.mark.parametrize("name", [name for name, kind in GENERATORS.items() if kind.directions == 2])
def test_other_directions_only_rename_the_microbatches_of_a_balanced_order(name: str) -> None:
    base = make(Design(name, microbatches=8))
    other = make(Design(name, microbatches=8, directions="00110110"))
    assert check(other) == []
    assert [way.microbatches for way in other.layout.directions] == [(0, 1, 4, 7), (2, 3, 5, 6)]
    assert make(replace(carried(other) or Design(), microbatches=None)).program == other.program
    renamed = {old: new for way in (0, 1) for old, new in zip(*both(base, other, way), strict=True)}
    assert other.program == tuple(
        tuple(action._replace(microbatch=renamed[action.microbatch]) for action in program)
        for program in base.program
    )


def both(base: Schedule, other: Schedule, way: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The microbatches of a direction in two schedules."""
    return base.layout.directions[way].microbatches, other.layout.directions[way].microbatches


@pytest.mark.parametrize("name", ["bsipipe", "bsipipe-zb"])
@pytest.mark.parametrize("directions", ["0000", "01111", "1", "1000000"])
def test_list_scheduled_orders_take_any_directions(name: str, directions: str) -> None:
    schedule = make(Design(name, subsequences=2, directions=directions))
    shown = preview(schedule, unit)
    assert schedule.layout.num_microbatches == len(directions)
    assert schedule.layout.direction_of == tuple(map(int, directions))
    assert shown.peak <= 2.5


def test_a_quick_answer_is_tried_first_only_where_the_best_takes_long() -> None:
    quick, best = efforts(Design("bsipipe"))
    assert quick < best
    design = Design("bsipipe", devices=8, microbatches=8, subsequences=4)
    first, last = (preview(make(design, effort), unit) for effort in (quick, best))
    assert last.makespan <= first.makespan
    assert make(design, best) == make(design)
    assert len(efforts(Design("seq1f1b"))) == 1


def test_a_file_without_knobs_of_ours_carries_none() -> None:
    schedule = make(Design(generator="1f1b", devices=2))
    assert carried(replace(schedule, design=None)) is None
    assert carried(replace(schedule, design={"by": "hand"})) is None
    assert carried(replace(schedule, design={"generator": "1f1b", "devices": "two"})) is None


@pytest.mark.parametrize(
    ("split", "model_costs", "lengths"),
    [
        ("even", None, (8192, 8192, 8192, 8192)),
        ("compute", None, splits.equal_compute(32768, 4, MODELS["llama3-8b"])),
        ("compute", "unit", splits.equal_compute(32768, 4, MODELS["llama3-8b"])),
        ("compute", "work:gpt-7b", splits.equal_compute(32768, 4, MODELS["gpt-7b"])),
        ("compute", "llama3-1b-a100", splits.equal_compute(32768, 4, MODELS["llama3-1b"])),
        ("time", None, splits.equal_time(32768, 4, costs.named("llama3-8b-h100"), 4, 4)),
        ("time", "llama3-1b-a100", splits.equal_time(32768, 4, costs.named("llama3-1b-a100"), 4, 4)),
        ((30000, 2768), None, (30000, 2768)),
    ],
)
def test_a_split_is_of_the_model_that_is_named(
    split: str | tuple[int, ...], model_costs: str | None, lengths: tuple[int, ...]
) -> None:
    assert make(Design(split=split, costs=model_costs)).layout.splits[0] == lengths


def test_a_split_of_equal_compute_is_of_a_model_file_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "my-own-model.toml"
    path.write_text('[model]\npreset = "gpt-7b"\n[hardware]\npreset = "h100"\n')
    lengths = splits.equal_compute(32768, 4, MODELS["gpt-7b"])
    for name in (str(path), f"work:{path}"):
        assert make(Design(split="compute", costs=name)).layout.splits[0] == lengths


@pytest.mark.parametrize(
    ("design", "reason"),
    [
        (Design(generator="1f2b"), "no generator '1f2b'; did you mean '1f1b'?"),
        (Design(generator=""), "no generator ''"),
        (Design(devices=0), "--devices is 0; at least 1"),
        (Design(microbatches=-1), "--microbatches is -1; at least 1"),
        (Design(sequence=0), "--sequence is 0; at least 1"),
        (Design(subsequences=0), "--subsequences is 0; at least 1"),
        (Design(stages_per_device=0), "--stages-per-device is 0; at least 1"),
        (Design(sequence=3), "a sequence of 3 tokens cannot be cut in 4 subsequences"),
        (Design(split="uneven"), "no split 'uneven'"),
        (Design(split=(1, 2)), "--split adds up to 3 tokens where --sequence has 32768"),
        (Design(split=(32768, 0)), "--split lists 0 tokens"),
        (Design(split=()), "--split lists 0 tokens"),
        (Design(split=(32767, 1), subsequences=3), "--split lists 2 lengths where --subsequences asks for 3"),
        (Design(split="compute", multiple=0), "multiples of at least 1 token, not 0"),
        (Design(split="compute", costs="times.json"), "times.json cannot be read"),
        (Design(split="compute", costs="llama3-8b-h1000"), "did you mean 'llama3-8b-h100'"),
        (Design(costs="nothing"), "no cost model 'nothing'"),
        (Design(layers=(32,)), "--layers lists 1 counts for 4 stages"),
        (
            Design(generator="bsipipe", layers=(32,), costs="work:gpt-7b"),
            "--layers lists 1 counts for 8 stages",
        ),
        (
            Design(generator="bsipipe", layers=(1,) * 8, costs="llama3-8b-h100"),
            "add up to 8, the model has 32",
        ),
        (Design(layers=(1, 2, -3, 4)), "--layers lists -3"),
        (Design(generator="bsipipe", devices=3), "use 2 or 4, or seq1f1b"),
        (Design(generator="bsipipe", budget=float("inf")), "--budget is inf"),
        (Design(budget=float("nan")), "--budget is nan"),
        (Design(directions="0101"), "seq1f1b sends all microbatches one way: --directions is for chimera, "),
        (Design("bsipipe", directions="012"), "--directions is '012'; a digit for each microbatch"),
        (Design("bsipipe", directions="down"), "--directions is 'down'"),
        (
            Design("bsipipe", microbatches=3, directions="0101"),
            "--directions lists 4 microbatches where --microbatches asks for 3",
        ),
        (
            Design("chimera", directions="0001"),
            "chimera sends half of the microbatches each way, not 3 down and 1 up: use --directions with as many 0 "
            "as 1, or bsipipe",
        ),
        (Design("bitpipe", directions="0111"), "not 1 down and 3 up"),
        (Design("dualpipe", directions="111111"), "not 0 down and 6 up"),
        (Design(devices=10**6, microbatches=10**6), "at most 1000000 are made"),
    ],
)
def test_knobs_that_give_none_are_answered_in_one_line(design: Design, reason: str) -> None:
    with pytest.raises(DesignError) as caught:
        make(design)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"devices": "four"}, "$.design: devices is 'four', where a whole number belongs"),
        ({"devices": True}, "$.design: devices is True"),
        ({"devices": None}, "$.design: devices is None"),
        ({"split": 3}, "$.design: split is neither a word nor a list of whole numbers"),
        ({"split": [4, "0"]}, "$.design: split is neither"),
        ({"layers": [1, "2"]}, "$.design: layers is neither"),
        ({"ranks": {"0": 1}}, "$.design: ranks is neither"),
        ({"budget": [2]}, "$.design: budget is [2], where a number belongs"),
        ({"generator": 1}, "$.design: generator is 1"),
        ({"sequence": 10**40}, "$.design: sequence is 1000"),
    ],
)
def test_provenance_of_a_wrong_type_is_answered_with_its_knob(values: dict[str, object], reason: str) -> None:
    with pytest.raises(DesignError) as caught:
        from_knobs(values)
    assert reason in str(caught.value)


def test_unknown_provenance_is_passed_over() -> None:
    assert from_knobs({"generator": "gpipe", "by": "hand", "budget": None}) == Design(generator="gpipe")


def test_a_preview_shows_the_worst_device_and_the_whole_step() -> None:
    schedule = make(Design(generator="1f1b", devices=4, microbatches=8))
    shown = preview(schedule, costs.named("llama3-8b-h100"))
    assert shown.peak == max(curve.peak for curve in shown.curves) == 4
    assert shown.step > shown.makespan == shown.timeline.makespan
    assert preview(schedule, unit).step == preview(schedule, unit).makespan == 33


def test_reductions_count_where_they_are_priced() -> None:
    schedule = make(Design(generator="bsipipe"))
    model = costs.named("llama3-8b-h100")
    shown = preview(schedule, model)
    free = preview(schedule, lambda layout: replace(model(layout), reduction=[0.0] * layout.num_stages))
    assert shown.makespan > free.makespan
    assert [use.busy for use in shown.timeline.devices] == [use.busy for use in free.timeline.devices]
    assert len(shown.timeline.graph.actions) > len(shown.graph.actions) == schedule.num_actions


def test_a_schedule_with_faults_has_no_preview() -> None:
    schedule = make(Design())
    broken: Schedule = replace(schedule, program=schedule.program[1:])
    with pytest.raises(InvalidScheduleError, match="has 3 entries for 4 devices"):
        preview(broken, unit)


def test_provenance_of_an_unknown_generator_is_none_and_hinders_nothing() -> None:
    schedule = replace(make(Design(devices=2)), design={"generator": "of another time", "devices": 2})
    assert carried(schedule) is None
    shown = preview(schedule, costs.named("unit"))
    assert sum(shown.explanation.idle[0].by_cause().values()) == pytest.approx(shown.timeline.devices[0].idle)
