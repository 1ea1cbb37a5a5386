"""PyTorch's CSV, both ways: the same schedule comes back, through PyTorch's loader too; slips are told in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from contraflow.designer.design import Design, make
from contraflow.designer.format.check import check
from contraflow.designer.format.fault import InvalidScheduleError, NotAScheduleError
from contraflow.designer.format.schedule import Action, Direction, Layout, Schedule, parse_token
from contraflow.designer.generators import GENERATORS
from contraflow.designer.interchange import InexpressibleError
from contraflow.designer.interchange.torch_csv import dumps, loads

ONE_COPY = [name for name, generator in GENERATORS.items() if generator.directions == 1]
TWO_COPIES = [name for name in GENERATORS if name not in ONE_COPY]


def design(name: str, devices: int = 4) -> Design:
    return Design(name, devices, 8, 2 if GENERATORS[name].cuts else None, sequence=64)


def by_hand(rows: str, **layout: Any) -> Schedule:
    """A schedule from its actions, one line for each device; all in one direction."""
    program = tuple(tuple(filter(None, map(parse_token, row.split()))) for row in rows.strip().splitlines())
    home = {action.stage: device for device, actions in enumerate(program) for action in actions}
    count = 1 + max(action.microbatch or 0 for actions in program for action in actions)
    k = 1 + max(action.subsequence or 0 for actions in program for action in actions)
    placement = tuple(home[stage] for stage in range(len(home)))
    direction = Direction("down", placement, tuple(range(count)))
    given = {"sequences": (4 * k,) * count, "splits": ((4,) * k,) * count, **layout}
    return Schedule("by hand", Layout(len(program), directions=(direction,), **given), program)


def straightened(schedule: Schedule) -> Schedule:
    """The same with one copy of each stage, equal lengths, and the last stage's forwards in ascending order."""
    layout = schedule.layout
    k = len(layout.splits[0])
    placement = layout.directions[0].placement
    assume(set(placement) == set(range(layout.num_devices)))
    direction = replace(layout.directions[0], microbatches=tuple(range(layout.num_microbatches)))
    count = layout.num_microbatches
    even = replace(layout, sequences=(2 * k,) * count, splits=((2,) * k,) * count, directions=(direction,))
    wanted = Schedule(schedule.name, even, ((),) * layout.num_devices)
    return replace(wanted, program=_in_waves(wanted, schedule))


def _in_waves(wanted: Schedule, drawn: Schedule) -> tuple[tuple[Action, ...], ...]:
    """A valid program: all forwards, then all backwards as `drawn` cuts and reduces them."""
    layout = wanted.layout
    cut = {(action.stage, action.microbatch) for row in drawn.program for action in row if action.kind == "I"}
    programs: list[list[Action]] = [[] for _ in wanted.program]
    travellers = [(m, q) for m, split in enumerate(layout.splits) for q in range(len(split))]
    for m, q in travellers:
        for stage in range(layout.num_stages):
            programs[layout.device_of(stage, m)].append(layout.action(stage, "F", m, q))
    for m, q in reversed(travellers):
        for stage in reversed(range(layout.num_stages)):
            for kind in ("I", "W") if (stage, m) in cut else ("B",):
                programs[layout.device_of(stage, m)].append(layout.action(stage, kind, m, q))  # type: ignore[arg-type]
    reduced = {action.stage for row in drawn.program for action in row if action.kind == "REDUCE_GRAD"}
    for stage in sorted(reduced):
        programs[layout.device_of(stage, 0)].append(Action(stage, "REDUCE_GRAD"))
    return tuple(map(tuple, programs))


# The same comes back.


@pytest.mark.parametrize("name", ONE_COPY)
def test_a_generated_schedule_comes_back(name: str) -> None:
    schedule = make(design(name))
    assert loads(*dumps(schedule)).schedule == schedule


@given(...)
def test_any_schedule_that_can_be_said_comes_back(drawn: Schedule) -> None:
    schedule = straightened(drawn)
    assert check(schedule) == []
    back = loads(*dumps(schedule))
    assert (back.schedule, back.notes) == (schedule, ())


def test_a_reduction_placed_by_hand_comes_back_to_its_place() -> None:
    schedule = by_hand("0F0 1F0 1B0 1REDUCE_GRAD 0B0 0REDUCE_GRAD")
    csv, meta = dumps(schedule)
    assert csv == "0F0,1F0,1B0,0B0\n"
    assert loads(csv, meta).schedule == schedule


def test_layers_ranks_and_the_names_of_directions_come_back() -> None:
    schedule = by_hand("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", layers=(3, 1), ranks=(1, 0))
    ways = (Direction("even", (0, 1), (0,)), Direction("odd", (0, 1), (1,)))
    schedule = replace(schedule, layout=replace(schedule.layout, directions=ways), design={"a": [1]})
    csv, meta = dumps(schedule)
    assert csv.splitlines()[0].startswith("1F0"), "row = rank, and rank 0 plays device 1"
    assert loads(csv, meta).schedule == schedule


def test_cells_and_side_car_as_they_are_documented() -> None:
    # seq1f1b at P=2 M=2 k=2, by hand: subsequence q of microbatch m goes by 2 m + q.
    csv, text = dumps(make(Design("seq1f1b", 2, 2, 2, sequence=64)))
    assert csv == "0F0,0F1,0F2,0B1,0F3,0B0,0B3,0B2\n1F0,1F1,1B1,1F2,1B0,1F3,1B3,1B2\n"
    meta = json.loads(text)
    assert (meta["microbatches"], meta["subsequences"], meta["sequence"]) == (2, 2, 64)
    assert meta["torch"] == {
        "n_microbatches": 4,
        "microbatch_index": "microbatch * 2 + subsequence",
        "stage_index_to_group_rank": [0, 1],
        "stages_of_rank": [[0], [1]],
    }


def test_without_a_side_car_microbatches_travel_whole() -> None:
    schedule = make(design("seq1f1b"))
    back = loads(dumps(schedule)[0], sequence=96, name="some/where.csv").schedule
    assert back.name == "where"
    assert back.layout.uncut
    assert back.layout.sequences == (96,) * 16
    assert back.layout.directions[0].placement == schedule.layout.directions[0].placement
    assert list(map(str, back.program[3][:4])) == ["3F0", "3F1", "3B1", "3F2"]


# What cannot be said.


@pytest.mark.parametrize("name", TWO_COPIES)
def test_two_copies_of_a_stage_are_refused(name: str) -> None:
    with pytest.raises(InexpressibleError, match="two copies of a stage: stage 0 is on devices"):
        dumps(make(design(name)))


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(InexpressibleError, match=r"have 3 to 4 tokens.* that 3 divides, such as 9$"):
        dumps(make(Design("seq1f1b", 2, 2, 3, sequence=10)))
    schedule = by_hand("0F0 0F1 0B0 0B1", sequences=(4, 8), splits=((4,), (8,)))
    assert check(schedule) == []
    with pytest.raises(InexpressibleError, match="microbatches have 4 to 8 tokens"):
        dumps(schedule)


def test_forwards_that_would_get_each_others_losses_are_refused() -> None:
    # PyTorch keeps the losses in the order in which they come, and looks them up by microbatch.
    schedule = by_hand("0F1 0F0 0B0 0B1\n1F1 1F0 1B0 1B1")
    assert check(schedule) == []
    with pytest.raises(InexpressibleError, match=r"wrong losses.* 1F1 comes before 1F0; .*ascending"):
        dumps(schedule)


# What PyTorch's own loader, lowering and dump make of it.

Dump = Callable[[str, str], str]


@pytest.fixture
def through_torch(tmp_path: Path) -> Dump:
    """Takes a CSV through PyTorch's loader and back out of it, in one of its variants; no process group is needed."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

    def passed(csv: str, variant: str) -> str:
        (tmp_path / "in.csv").write_text(csv)
        cells = [cell for row in csv.splitlines() for cell in row.split(",")]
        actions = [action for cell in cells if (action := parse_token(cell))]
        stage = SimpleNamespace(
            num_stages=1 + max(action.stage for action in actions),
            group_size=len(csv.splitlines()),
            group_rank=0,
        )
        count = 1 + max(action.microbatch or 0 for action in actions)
        runtime = schedules._PipelineScheduleRuntime([stage], count)
        runtime._load_csv(str(tmp_path / "in.csv"))
        runtime._dump_csv(str(tmp_path / "out.csv"), format=variant)
        return (tmp_path / "out.csv").read_text()

    return passed


@pytest.mark.parametrize("variant", ["compute_only", "compute_comms"])
@pytest.mark.parametrize("name", ONE_COPY)
def test_pytorch_loads_what_we_write_and_we_read_what_it_dumps(
    name: str, variant: str, through_torch: Dump
) -> None:
    schedule = make(design(name))
    csv, meta = dumps(schedule)
    dumped = through_torch(csv, variant)
    assert ("SEND_F" in dumped) == ("REDUCE_GRAD" in dumped) == (variant == "compute_comms")
    assert loads(dumped, meta).schedule == schedule


@pytest.mark.parametrize(
    "name",
    [
        "ScheduleLoopedBFS",
        "ScheduleInterleaved1F1B",
        "ScheduleInterleavedZeroBubble",
        "ScheduleZBVZeroBubble",
        "ScheduleDualPipeV",
    ],
)
def test_pytorchs_own_schedules_are_read(name: str, tmp_path: Path) -> None:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    both = [
        SimpleNamespace(num_stages=8, group_size=4, group_rank=0, submod=schedules.torch.nn.Identity())
        for _ in range(2)
    ]
    made = getattr(schedules, name)(both, 8, loss_fn=lambda output, target: output)
    read = {}
    for variant in ("compute_only", "compute_comms"):
        made._dump_csv(str(tmp_path / "own.csv"), format=variant)
        read[variant] = loads((tmp_path / "own.csv").read_bytes())
    layout = read["compute_only"].schedule.layout
    assert (layout.num_devices, layout.num_stages, layout.num_microbatches) == (4, 8, 8)
    assert read["compute_only"].schedule == read["compute_comms"].schedule
    assert any("sends and receives" in note for note in read["compute_comms"].notes)
    pairs = [note for note in read["compute_only"].notes if "pairs" in note]
    assert bool(pairs) == (name == "ScheduleDualPipeV")


# What PyTorch's variants say beside the compute.


def program(csv: str | bytes) -> list[str]:
    return [" ".join(map(str, actions)) for actions in loads(csv).schedule.program]


def test_idle_cells_blanks_and_empty_rows_at_the_end_say_nothing() -> None:
    assert program("0F0, ,,0B0,\r\n,1F0,1B0\r\n\r\n\n") == ["0F0 0B0", "1F0 1B0"]
    assert program("0F0,0B0\n".encode("utf-8-sig")) == ["0F0 0B0"]


def test_an_overlapped_pair_becomes_its_forward_and_its_backward() -> None:
    read = loads("0F0,0F1,(0F2;0B0)OVERLAP_F_B,( 0F3 ; 0I1 )OVERLAP_F_B,0W1,0B2,0B3\n")
    assert [" ".join(map(str, read.schedule.program[0]))] == ["0F0 0F1 0F2 0B0 0F3 0I1 0W1 0B2 0B3"]
    assert read.notes == (
        "2 overlapped pairs are written one action after the other: the format has no pairs yet",
    )


def test_sends_receives_and_unsharding_are_left_out_and_counted() -> None:
    read = loads("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0RESHARD\n1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RESHARD\n")
    assert list(map(len, read.schedule.program)) == [2, 2]
    assert [note.split(" are ")[0] for note in read.notes] == [
        "4 sends and receives",
        "4 UNSHARD and RESHARD",
    ]


def test_reductions_stay_exactly_where_they_were_placed_on_purpose() -> None:
    assert program("0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD\n") == ["0F0 1F0 1B0 0B0"]
    later = "0F0,1F0,1B0,0B0,1REDUCE_GRAD,0REDUCE_GRAD\n"
    assert program(later) == ["0F0 1F0 1B0 0B0 1REDUCE_GRAD 0REDUCE_GRAD"]
    with pytest.raises(InvalidScheduleError, match=r"0REDUCE_GRAD waits for 0B1 \(rank 0, column 4\)"):
        loads("0F0,0F1,0B0,0REDUCE_GRAD,0B1\n")


# Slips. Each is told with its place, and all of them at once.

META = json.loads(dumps(by_hand("0F0.0 0F0.1 0B0.1 0B0.0"))[1])


def faults(csv: str, meta: Any = None) -> list[str]:
    with pytest.raises(InvalidScheduleError) as raised:
        loads(csv, None if meta is None else json.dumps(meta), name="in.csv", meta_name="in.meta.json")
    assert str(raised.value).startswith("in.csv, ranks and columns counted from 0: ")
    return list(map(str, raised.value.faults))


@pytest.mark.parametrize(
    "cell",
    ["0f0", "0F", "F0", "00F0", "0F00", "-1F0", "0F0x", "0F0 0F1", "0X0", "0REDUCE_GRAD0", "0SEND_F", "0UNSHARD1",
     "(0F0;)OVERLAP_F_B", "(0F0;1B0)", "(0F0;x)OVERLAP_F_B", "((0F0;1B0)OVERLAP_F_B;1F0)OVERLAP_F_B", "1" * 50 + "F0",
     "０F0"],
)  # fmt: skip
def test_a_cell_that_is_no_action(cell: str) -> None:
    (fault,) = faults(f"0F0,0B0,{cell}\n")
    assert fault.startswith("rank 0, column 2: '")
    assert "is no action; one is written like 0F0" in fault


def test_a_suffix_that_pytorch_would_drop() -> None:
    (fault,) = faults("0F0,0B0,0F0.1\n")
    assert "rank 0, column 2: '0F0.1' has a suffix, which PyTorch would drop" in fault


@pytest.mark.parametrize(
    ("csv", "said"),
    [
        ("0F0,0B0\n\n1F0,1B0\n", ["rank 1: has no actions"]),
        ("0F0,0B0\n0SEND_F0\n", ["rank 1: has no actions"]),
        ("0F0,0B0\n0F1,1F0,0B1\n", ["rank 1, column 0: 0F1 runs stage 0, which rank 0 runs"]),
        (
            "0F0,0B0,0F3,0B3,7F0\n",
            ["the rows: stage 1 (and 5 more) is missing", "the rows: microbatch 1 (and 1 more) is missing"],
        ),
        ("999999999F999999999\n", ["stage 0 (and 999999998 more)", "microbatch 0 (and 999999998 more)"]),
        ("0F0,,0F0,0B0\n", ["rank 0, column 2: 0F0 stands twice: already rank 0, column 0"]),
        ("0F0,0I0\n", ["rank 0: 0W0 is missing, though 0I0 stands without its W"]),
        ("0F0,0F1,0B0\n", ["rank 0: 0B1 is missing"]),
        (
            ",0F0,0B0\n1B0,,1F0\n",
            ["rank 1, column 0: no order can run this: 1B0 waits for 1F0 (rank 1, column 2)"],
        ),
    ],
)
def test_a_slip_in_the_rows(csv: str, said: list[str]) -> None:
    for found, words in zip(faults(csv), said, strict=True):
        assert words in found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "contraflow.torch-csv/2"}, "$.format: "),
        ({"subsequence": 2}, "$.subsequence: unknown field"),
        ({"name": None}, "$.name: is null"),
        ({"sequence": [8]}, "$.sequence: is a list"),
        ({"subsequences": 0}, "$.subsequences: is 0"),
        ({"subsequences": 3}, "$.subsequences: is 3, which does not divide the sequence of 8 tokens"),
        ({"sequence": 10**18, "subsequences": 10**18}, "more than the rows have actions"),
        ({"microbatches": "1"}, "$.microbatches: is a string"),
        ({"layers": [1, 2]}, "$.layers: has 2 entries for 1 stages"),
        ({"ranks": [1]}, "$.ranks: is not a permutation"),
        ({"ranks": [[]]}, "$.ranks[0]: is a list"),
        ({"design": 1}, "$.design: "),
        ({"directions": []}, "$.directions: is empty"),
        ({"reductions": [[0, 0]]}, "$.reductions[0]: has 2 numbers"),
        ({"reductions": [[1, 0, 0]]}, "$.reductions[0]: names device 1"),
        ({"reductions": 1}, "$.reductions: is a whole number"),
    ],
)
def test_a_slip_in_the_side_car(change: dict[str, Any], said: str) -> None:
    found = faults("0F0,0F1,0B1,0B0\n", {**META, **change})
    assert any(fault.startswith("in.meta.json, $") and said in fault for fault in found), found


def test_rows_and_side_car_that_do_not_belong_together() -> None:
    (fault,) = faults("0F0,0F1,0B0,0B1\n", META)
    assert "rank 0, column 2: no order can run this: 0B0.0 waits for 0B0.1 (rank 0, column 3)" in fault
    (fault, _) = faults("0F0,0F1,0B1,0B0,,0F2,0B2\n", META)
    assert fault == "rank 0, column 5: 0F1.0 names microbatch 1 of 0..0"
    moved = {**META, "directions": [{"name": "down", "placement": [1], "microbatches": [0]}]}
    assert any(
        "rank 0, column 0: 0F0.0 belongs on device 1" in fault for fault in faults("0F0,0F1,0B1,0B0", moved)
    )


def test_a_side_car_that_places_stages_beyond_the_rows() -> None:
    ways = [{"name": "down", "placement": [0, 5], "microbatches": [0]}]
    found = faults("0F0,0F1,0B1,0B0", {**META, "directions": ways})
    assert "in.meta.json, $.directions[0].placement[1]: names device 5 of 0..0" in found


def test_faults_of_rows_and_side_car_are_told_together() -> None:
    found = faults("0F0,x\n", {**META, "subsequences": 3})
    assert [fault.split(":")[0] for fault in found] == ["rank 0, column 1", "in.meta.json, $.subsequences"]


def test_faults_stop_being_listed_where_nobody_reads_on() -> None:
    found = faults("0F0,0B0\n" + ",y\n" * 5000)
    assert len(found) == 101
    assert found[100] == "$: more faults of this kind (token) are not listed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b" \r\n,,\n", "its cells are not actions"),
        (b"\xff\xfe0\x00", "not UTF-8"),
        (b"\x89PNG\r\n", "not UTF-8"),
        (b'{"format": "contraflow.schedule/1"}', "is JSON"),
        (b"rank,step\n0,1\n", "not actions such as 0F0"),
        (b"0F0\n" + b"\n" * 500 + b"1F0", "line 502 follows on 500 rows without an action"),
        (b"0F0," + b"x" * 200_000, "line 1: field larger"),
    ],
)
def test_what_is_no_csv_of_pytorchs(text: bytes, said: str) -> None:
    with pytest.raises(NotAScheduleError, match=r"in\.csv") as raised:
        loads(text, name="in.csv")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"0F0,0B0", b"\xff", b"[" * 100_000])
def test_what_is_no_side_car(text: bytes) -> None:
    with pytest.raises(NotAScheduleError, match=r"in\.meta\.json is no side-car"):
        loads("0F0,0B0", text, meta_name="in.meta.json")


CELLS = st.sampled_from(
    ["0F0", "0B0", "0F1", "0B1", "1F0", "1B0", "1I0", "1W0", "1F1", "1B1", "2F0", "0REDUCE_GRAD", "9F9", "0SEND_F0",
     "0UNSHARD", "(0F1;0B0)OVERLAP_F_B", "0F0.1", "", " ", '"', "\x00", "x", ";"]
)  # fmt: skip
ROWS = st.lists(st.lists(CELLS, max_size=6).map(",".join), max_size=4)
TEXTS = st.one_of(st.binary(), st.text().map(str.encode), ROWS.map("\n".join).map(str.encode))
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 5), st.just(2**70), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)
METAS = st.one_of(
    st.none(),
    st.binary(),
    st.dictionaries(st.sampled_from([*META, "layers", "ranks", "reductions"]), JUNK, max_size=3).map(
        lambda change: json.dumps({**META, **change}).encode()
    ),
)


@given(TEXTS, METAS)
@example(b"0F0,0B0\n0REDUCE_GRAD", None)
@example(b"0REDUCE_GRAD", json.dumps({**META, "reductions": [[0, 5, 0]]}).encode())
def test_whatever_is_read_ends_in_a_valid_schedule_or_in_words(text: bytes, meta: bytes | None) -> None:
    try:
        read = loads(text, meta)
    except (NotAScheduleError, InvalidScheduleError) as error:
        assert str(error)  # noqa: PT017 - which of the two, and what they say, is for the tests above
    else:
        assert check(read.schedule) == []
