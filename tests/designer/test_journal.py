"""Unsaved work outlives a crash, a torn line, a full disk and whatever else may lie in the folder."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contraflow.designer import journal
from contraflow.designer.design import Design, make
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.journal import Journal, discard, lost

DESIGNS = (Design("1f1b", devices=2), Design("gpipe", devices=3), Design("bsipipe", directions="0011"))


def crashed(folder: Path, written: Journal, name: str = "old") -> Path:
    """What a session that is no more would have left behind: the same lines, held by nobody."""
    [path] = folder.glob("*.journal")
    copy = folder / f"{name}.journal"
    shutil.copy(path, copy)
    written.close()
    assert not path.exists()
    return copy


def test_the_last_state_is_found_after_a_crash(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    for design in DESIGNS:
        assert written.note(design, tmp_path / "mine.schedule.json") is None
    schedule = make(DESIGNS[0])
    assert written.note(schedule) is None
    crashed(tmp_path, written)
    [left] = lost(tmp_path)
    assert (left.work, left.file, left.count, left.name) == (schedule, None, 4, schedule.name)
    assert left.schedule() == schedule
    assert discard(left)
    assert lost(tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


def test_knobs_are_noted_as_knobs_with_their_file(tmp_path: Path) -> None:
    written = Journal(tmp_path / "made" / "for it")
    written.note(DESIGNS[2], Path("mine.schedule.json"))
    crashed(tmp_path / "made" / "for it", written)
    [left] = lost(tmp_path / "made" / "for it")
    assert left.work == DESIGNS[2]
    assert left.file == Path.cwd() / "mine.schedule.json"
    assert left.schedule() == make(DESIGNS[2])


def test_nothing_is_left_of_sessions_that_ended_or_saved(tmp_path: Path) -> None:
    ended = Journal(tmp_path)
    assert ended.saved() is None
    ended.close()
    assert list(tmp_path.iterdir()) == []
    ended.note(DESIGNS[0])
    ended.close()
    assert list(tmp_path.iterdir()) == []
    saved = Journal(tmp_path)
    saved.note(DESIGNS[0])
    saved.saved()
    crashed(tmp_path, saved)
    assert lost(tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


def test_what_came_after_saving_is_unsaved(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    written.note(DESIGNS[0])
    written.saved()
    written.note(DESIGNS[1])
    crashed(tmp_path, written)
    [left] = lost(tmp_path)
    assert (left.work, left.count) == (DESIGNS[1], 1)


def test_sessions_at_work_are_left_alone_and_do_not_disturb_one_another(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    first.note(DESIGNS[0])
    second.note(DESIGNS[1])
    assert lost(tmp_path) == ()
    assert len(list(tmp_path.iterdir())) == 2
    second.saved()
    assert lost(tmp_path) == ()
    first.close()
    [path] = tmp_path.iterdir()
    assert b"gpipe" in path.read_bytes()
    second.close()


def test_a_process_that_dies_leaves_its_work_behind(tmp_path: Path) -> None:
    code = f"""
        import os
        from pathlib import Path
        from contraflow.designer.design import Design
        from contraflow.designer.journal import Journal, lost
        folder = Path({str(tmp_path)!r})
        Journal(folder).note(Design("gpipe", devices=3))
        Journal(folder).note(Design("1f1b", devices=2))
        assert lost(folder) == (), "this process holds both"
        os._exit(9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=120)
    assert done.returncode == 9
    assert {left.work for left in lost(tmp_path)} == {DESIGNS[0], DESIGNS[1]}


def test_a_torn_last_line_costs_itself_alone(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    written.note(DESIGNS[0])
    written.note(make(DESIGNS[1]))
    copy = crashed(tmp_path, written)
    whole = copy.read_bytes()
    for length in (len(whole) - 1, len(whole) - 100, whole.index(b"\n") + 1):
        copy.write_bytes(whole[:length])
        [left] = lost(tmp_path)
        assert (left.work, left.count) == (DESIGNS[0], 1)
    copy.write_bytes(whole[:20])
    assert lost(tmp_path) == ()
    assert copy.exists(), "what cannot be read is not thrown away"


def test_a_full_disk_is_told_and_the_session_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Journal(tmp_path)
    written.note(DESIGNS[0])
    write = os.write
    sizes = iter([10])

    def full(handle: int, data: bytes) -> int:
        size = next(sizes, None)
        if size is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data[:size])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        said = written.note(DESIGNS[1])
        assert said is not None
        assert said.endswith("No space left on device")
        assert str(tmp_path) in said
    assert written.note(DESIGNS[2]) is None
    copy = crashed(tmp_path, written)
    assert len(copy.read_bytes().splitlines()) == 2
    [left] = lost(tmp_path)
    assert (left.work, left.count) == (DESIGNS[2], 2)


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    written = Journal(tmp_path / "file")
    said = written.note(DESIGNS[0])
    assert said is not None
    assert "Not a directory" in said or "File exists" in said
    assert written.saved() is None
    written.close()
    assert lost(tmp_path / "file") == lost(tmp_path / "nowhere") == ()


def test_a_journal_that_somebody_removed_begins_anew(tmp_path: Path) -> None:
    written = Journal(tmp_path)
    written.note(DESIGNS[0])
    shutil.rmtree(tmp_path)
    assert written.note(DESIGNS[1]) is None
    crashed(tmp_path, written)
    [left] = lost(tmp_path)
    assert left.work == DESIGNS[1]


def test_a_long_journal_begins_anew_with_the_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LONGEST", 1000)
    written = Journal(tmp_path)
    schedule = make(Design("1f1b", microbatches=16))
    for _ in range(5):
        assert written.note(schedule) is None
        [path] = tmp_path.iterdir()
        assert path.stat().st_size < 8000
    crashed(tmp_path, written)
    [left] = lost(tmp_path)
    assert left.work == schedule


HOSTILE = (
    b"",
    b"\n\n",
    b"\x00\xff\xfe\n",
    b"[" * 100_000 + b"\n",
    b'{"knobs": {"generator": "none such"}}\n',
    b'{"knobs": {"generator": "1f1b", "devices": "two"}}\n',
    b'{"knobs": 3, "schedule": {}}\n',
    b'{"schedule": "{}"}\n',
    b'{"schedule": "not JSON", "file": 7}\n',
    json.dumps({"schedule": '{"format": "contraflow.schedule/1"}'}).encode() + b"\n",
    b'"saved"\n',
    b"17\n",
)


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_journals_are_passed_over_and_stay(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hostile.journal"
    path.write_bytes(content)
    assert lost(tmp_path) == ()
    assert path.exists()
    # What is good before them is found all the same.
    good = json.dumps({"knobs": {"generator": "1f1b", "devices": 2}, "file": None}).encode()
    path.write_bytes(good + b"\n" + content)
    [left] = lost(tmp_path)
    assert (left.work, left.file, left.count) == (DESIGNS[0], None, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(st.binary() | st.sampled_from(HOSTILE)).map(b"".join))
def test_no_journal_raises(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "any.journal").write_bytes(content)
    assert lost(tmp_path) == ()


def test_what_is_no_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "folder.journal").mkdir()
    (tmp_path / "link.journal").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.journal")
    assert lost(tmp_path) == ()


@given(schedule=st.from_type(Schedule))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_schedule_comes_back_as_it_was(tmp_path: Path, schedule: Schedule) -> None:
    written = Journal(tmp_path)
    written.note(schedule)
    crashed(tmp_path, written)
    [left] = lost(tmp_path)
    assert left.work == schedule
    assert discard(left)
