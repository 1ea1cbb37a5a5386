"""`contraflow recover`: what a crash left behind, listed, written and discarded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Two sessions that crashed, the second later and with a file."""
    import os

    folder = tmp_path / "journals"
    folder.mkdir()
    first = {"knobs": {"generator": "1f1b", "devices": 2}, "file": None}
    second = {"knobs": {"generator": "gpipe", "devices": 3}, "file": "/somewhere/my\x1b[31mfile.json"}
    for name, entries, when in (("a", [first], 1000), ("b", [first, second], 2000)):
        path = folder / f"{name}.journal"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        os.utime(path, (when, when))
    return folder


def test_all_is_listed_the_newest_first(contraflow: Callable[..., Any], journals: Path) -> None:
    for flags in ([], ["--list"]):
        found = contraflow("recover", *flags, "--journals", journals)
        assert found.code == 0
        first, second = found.out.splitlines()
        assert first.startswith("  1  ")
        assert first.endswith("gpipe, 2 unsaved changes of /somewhere/my?[31mfile.json")
        assert second.endswith("1f1b, 1 unsaved change in no file yet")
        assert "contraflow recover N -o FILE" in found.err
    listed = contraflow("recover", "--journals", journals, "--json").json
    assert [entry["name"] for entry in listed] == ["gpipe", "1f1b"]
    assert [entry["changes"] for entry in listed] == [2, 1]


def test_work_is_written_before_its_journal_goes(
    contraflow: Callable[..., Any], journals: Path, tmp_path: Path
) -> None:
    refused = contraflow("recover", 1, "-o", "no/such/folder.json", "--journals", journals)
    assert refused.code == 2
    assert "cannot be written" in refused.err
    assert (journals / "b.journal").exists()
    found = contraflow("recover", 1, "-o", "mine.json", "--journals", journals)
    assert (found.code, found.out) == (0, "")
    assert (tmp_path / "mine.json").read_text() == contraflow("new", "gpipe", "--devices", 3).out
    assert [path.name for path in journals.iterdir()] == ["a.journal"]
    # To stdout it may go nowhere: the journal stays.
    printed = contraflow("recover", 1, "--journals", journals)
    assert printed.out == contraflow("new", "1f1b", "--devices", 2).out
    assert (journals / "a.journal").exists()


def test_work_is_discarded_one_by_one_or_all(contraflow: Callable[..., Any], journals: Path) -> None:
    found = contraflow("recover", 2, "--discard", "--journals", journals)
    assert (found.code, found.err) == (0, "discarded 1\n")
    assert [path.name for path in journals.iterdir()] == ["b.journal"]
    assert contraflow("recover", "--discard", "--journals", journals, "--json").json == {"discarded": 1}
    assert contraflow("recover", "--journals", journals).err == "nothing unsaved was left behind\n"


def test_the_users_own_folder_is_looked_in(
    contraflow: Callable[..., Any], journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platformdirs.user_state_path", lambda *_, **__: journals.parent)
    assert len(contraflow("recover", "--json").json) == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["3"], "there is no 3: 2 was left behind"),
        (["0"], "0 is less than 1"),
        (["-o", "x.json"], "name what to recover by its number"),
        (["1", "--discard", "-o", "x.json"], "--discard or -o, not both"),
    ],
)
def test_slips(contraflow: Callable[..., Any], journals: Path, arguments: list[str], reason: str) -> None:
    found = contraflow("recover", *arguments, "--journals", journals)
    assert (found.code, found.out) == (2, "")
    assert reason in found.err
    assert len(list(journals.iterdir())) == 2
