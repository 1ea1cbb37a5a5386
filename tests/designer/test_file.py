"""Schedule files: what is written is read back, in one canonical text."""

import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.costs.unit import unit
from contraflow.designer.design import preview
from contraflow.designer.format import file
from contraflow.designer.format.check import load
from contraflow.designer.format.fault import InvalidScheduleError, NotAScheduleError
from contraflow.designer.format.schedule import Action, Direction, Layout, Schedule, parse_token

DATA = Path(__file__).parent.parent / "data"

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def actions(line: str) -> tuple[Action, ...]:
    return tuple(filter(None, map(parse_token, line.split())))


SMALL = Schedule(
    "small",
    Layout(
        num_devices=2,
        sequences=(6, 4),
        splits=((4, 2), (4,)),
        directions=(Direction("down", (0, 1), (0,)), Direction("up", (1, 0), (1,))),
        layers=(2, 0),
        ranks=(1, 0),
    ),
    (
        actions("0F0.0 0F0.1 1F1 1I1 0B0.1 0B0.0 0REDUCE_GRAD 1W1"),
        actions("0F1 1F0.0 1F0.1 1B0.1 1B0.0 0B1 0REDUCE_GRAD"),
    ),
    {"generator": "hand", "split": [4, 2]},
)

SMALL_TEXT = """\
{
  "format": "contraflow.schedule/1",
  "name": "small",
  "devices": 2,
  "microbatches": 2,
  "sequence": [6, 4],
  "splits": [[4, 2], [4]],
  "layers": [2, 0],
  "directions": [
    {"name": "down", "placement": [0, 1], "microbatches": [0]},
    {"name": "up", "placement": [1, 0], "microbatches": [1]}
  ],
  "program": [
    [
      "0F0.0 0F0.1 1F1 1I1 0B0.1 0B0.0 0REDUCE_GRAD 1W1"
    ],
    [
      "0F1",
      "1F0.0 1F0.1 1B0.1 1B0.0 0B1 0REDUCE_GRAD"
    ]
  ],
  "ranks": [1, 0],
  "design": {"generator": "hand", "split": [4, 2]}
}
"""


def test_the_canonical_text_is_this_one() -> None:
    assert file.dumps(SMALL) == SMALL_TEXT
    assert file.parse(SMALL_TEXT) == (SMALL, [])


@given(...)
def test_what_is_written_is_read_back(schedule: Schedule) -> None:
    text = file.dumps(schedule)
    assert file.parse(text) == (schedule, [])
    assert file.parse(text.encode()) == (schedule, [])


@given(name=st.text(), direction=st.text(), design=st.dictionaries(st.text(), JSON, max_size=3))
def test_words_and_provenance_are_read_back(name: str, direction: str, design: dict[str, object]) -> None:
    directions = tuple(replace(entry, name=direction) for entry in SMALL.layout.directions)
    schedule = replace(SMALL, name=name, design=design, layout=replace(SMALL.layout, directions=directions))
    assert file.parse(file.dumps(schedule)) == (schedule, [])


@pytest.mark.parametrize(
    ("order", "lines"),
    [
        ("0F0.0 0F0.1 0F1.0 0B0.1 0F1.1", ["0F0.0 0F0.1", "0F1.0 0B0.1 0F1.1"]),
        ("0F0 0F1 0B0 0F2 0B1 0F3 0F4", ["0F0 0F1 0B0", "0F2 0B1", "0F3 0F4"]),
        ("0F0 0I0 0REDUCE_GRAD 0F1", ["0F0 0I0 0REDUCE_GRAD", "0F1"]),
        ("0F0 1REDUCE_GRAD 0F1", ["0F0 1REDUCE_GRAD 0F1"]),
        (" ".join(f"0W{m}" for m in range(17)), [" ".join(f"0W{m}" for m in range(16)), "0W16"]),
        ("", []),
    ],
)
def test_a_line_begins_before_every_new_microbatch_and_after_16_actions(order: str, lines: list[str]) -> None:
    assert json.loads(file.dumps(replace(SMALL, program=(actions(order),))))["program"] == [lines]


@given(schedule=st.from_type(Schedule), breaks=st.randoms(use_true_random=False))
def test_line_breaks_carry_no_meaning(schedule: Schedule, breaks) -> None:
    document = json.loads(file.dumps(schedule))
    for device, order in enumerate(schedule.program):
        lines: list[str] = []
        for action in order:
            if lines and breaks.random() < 0.7:
                lines[-1] += f" {action}"
            else:
                lines.append(str(action))
        document["program"][device] = lines
    assert file.parse(json.dumps(document, indent=1)) == (schedule, [])


def test_the_longest_microbatch_may_differ_from_the_others_in_length_alone() -> None:
    layout = replace(SMALL.layout, sequences=(8, 8), splits=((4, 4), (8,)))
    document = json.loads(file.dumps(replace(SMALL, layout=layout)))
    assert (document["sequence"], document["splits"]) == ([8, 8], [[4, 4], [8]])
    alike = json.loads(file.dumps(replace(SMALL, layout=replace(layout, splits=((4, 4), (4, 4))))))
    assert (alike["sequence"], alike["splits"]) == (8, [4, 4])


@pytest.mark.parametrize(
    ("name", "makespan", "peak"),
    [
        ("seq1f1b-p4-m4-k2", 16.5, 2.5),
        ("bsipipe-p2-m2-k2", 6.0, 2.0),
        ("bsipipe-p4-m4-k4-a2.5", 12.375, 2.5),
        ("bsipipe-zb-p4-m4-k4", 12.125, 2.25),
    ],
)
def test_a_file_that_contraflow_did_not_write_is_read_and_shows_its_figures(
    name: str, makespan: float, peak: float
) -> None:
    schedule = load(DATA / f"{name}.schedule.json")
    shown = preview(schedule, unit)
    assert (shown.makespan, shown.peak) == (makespan, peak)
    assert "differ in length" not in shown.timeline.prices.caption
    assert file.parse(file.dumps(schedule)) == (schedule, [])


def test_a_file_with_unequal_subsequences_says_so_with_its_figures() -> None:
    schedule = load(DATA / "seq1f1b-p2-m3-k4-unequal.schedule.json")
    assert schedule.layout.splits == ((400, 304, 200, 120),) * 3
    assert "differ in length" in preview(schedule, unit).timeline.prices.caption


def test_every_data_file_is_valid() -> None:
    assert len([load(path) for path in DATA.glob("*.schedule.json")]) == 5


def test_writing_replaces_the_whole_file_and_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "a.schedule.json"
    path.write_text("an old and longer text " * 1000)
    path.chmod(0o640)
    file.write(SMALL, path)
    assert path.read_text() == SMALL_TEXT
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.schedule.json"
    file.write(SMALL, path)
    unwritable = replace(SMALL, name="half a character: \ud83d")
    with pytest.raises(UnicodeEncodeError):
        file.write(unwritable, path)
    assert path.read_text() == SMALL_TEXT
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="No such file"):
        file.write(SMALL, tmp_path / "missing" / "a.schedule.json")


def test_a_token_is_matched_whole() -> None:
    assert parse_token("3F1.0") == Action(3, "F", 1, 0)
    assert parse_token("0W12") == Action(0, "W", 12)
    assert parse_token("10REDUCE_GRAD") == Action(10, "REDUCE_GRAD")
    for token in ("3F1.0x", "x3F1", "3f1", "03F1", "3F01", "3F1.00", "3F", "F1", "3F1.", "3F-1", "3F1 ", "3F1\n", "",
                  "3R1", "3REDUCE_GRAD1", "3reduce_grad", "٣F1", "3F1.0.0", "3 F1", "+3F1", "3F1_0"):  # fmt: skip
        assert parse_token(token) is None, token


@given(
    st.integers(0, 10**9 - 1),
    st.sampled_from("FBIW"),
    st.integers(0, 10**9 - 1),
    st.none() | st.integers(0, 10**9 - 1),
)
def test_a_token_reads_as_it_is_written(
    stage: int, kind: str, microbatch: int, subsequence: int | None
) -> None:
    action = Action(stage, kind, microbatch, subsequence)  # type: ignore[arg-type]
    assert parse_token(str(action)) == action


NOT_SCHEDULES = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t ", "is empty"),
    "binary": (bytes(range(256)), "not UTF-8"),
    "utf-16": ("{}".encode("utf-16"), "not UTF-8"),
    "words": (b"hello", "not JSON"),
    "cut short": (SMALL_TEXT[:200].encode(), "not JSON"),
    "two documents": (SMALL_TEXT.encode() * 2, "not JSON"),
    "a list": (b"[1, 2]", "holds a list"),
    "a string": (b'"schedule"', "holds a string"),
    "a number": (b"1", "holds a whole number"),
    "null": (b"null", "holds null"),
    "not a number": (SMALL_TEXT.replace("[6, 4]", "[6, NaN]").encode(), "NaN"),
    "minus infinity": (SMALL_TEXT.replace("[6, 4]", "[6, -Infinity]").encode(), "-Infinity"),
    "more than a float": (SMALL_TEXT.replace('"hand"', "1e999").encode(), "1e999"),
    "ten thousand digits": (SMALL_TEXT.replace("[6, 4]", "9" * 10000).encode(), "not JSON"),
    "half a character": (SMALL_TEXT.replace("hand", r"\ud83d").encode(), "not UTF-8"),
    "a deep list": (b"[" * 100000, "nested too deeply"),
    "a deep object": (b'{"design": ' * 900 + b"{}" + b"}" * 900, "nested too deeply"),
    "a deep design": (SMALL_TEXT.replace('"hand"', "[" * 90 + "]" * 90).encode(), "nested too deeply"),
}


@pytest.mark.parametrize("kind", NOT_SCHEDULES)
def test_what_is_no_schedule_at_all_is_told_in_one_line(kind: str, tmp_path: Path) -> None:
    content, reason = NOT_SCHEDULES[kind]
    path = tmp_path / "a.schedule.json"
    path.write_bytes(content)
    with pytest.raises(NotAScheduleError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert reason in message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 250


def test_what_is_no_file_is_told_in_one_line(tmp_path: Path) -> None:
    too_large = tmp_path / "large.schedule.json"
    with too_large.open("wb") as handle:
        handle.truncate(file.MAX_BYTES + 1)
    for path, reason in (
        (tmp_path / "missing.schedule.json", "No such file"),
        (tmp_path, "is a directory"),
        (Path("/dev/null"), "neither a file nor a pipe"),
        (Path("a\0b"), "names no file"),
        (Path("a" * 5000), "cannot be read"),
        (too_large, "64 MiB"),
    ):
        with pytest.raises(NotAScheduleError, match=reason) as caught:
            load(path)
        assert "\n" not in str(caught.value)


def test_a_schedule_may_come_through_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(SMALL_TEXT,))
    writer.start()
    assert load(path) == SMALL
    writer.join()


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.schedule.json"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL_TEXT.encode())
    assert load(path) == SMALL


def test_an_invalid_file_is_refused_with_all_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "a.schedule.json"
    path.write_text(SMALL_TEXT.replace("0F0.1 ", "").replace("[2, 0]", "[2]"))
    with pytest.raises(InvalidScheduleError) as caught:
        load(path)
    assert {fault.rule for fault in caught.value.faults} == {"missing", "layers"}
    for fault in caught.value.faults:
        assert str(fault) in str(caught.value)
