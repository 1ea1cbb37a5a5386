"""`contraflow import`: PyTorch's CSV in, a schedule file out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.designer.format.check import load
from contraflow.designer.interchange.torch_csv import dumps

Contraflow = Callable[..., Any]


@pytest.fixture
def csv(seq: Path) -> Path:
    """What an export of `seq` leaves: seq.csv, and seq.csv.meta.json beside it."""
    path = seq.with_name("seq.csv")
    rows, meta = dumps(load(seq))
    path.write_text(rows)
    path.with_name("seq.csv.meta.json").write_text(meta)
    return path


def test_with_its_side_car_the_same_file_comes_back(contraflow: Contraflow, csv: Path, seq: Path) -> None:
    done = contraflow("import", csv, "--meta", f"{csv}.meta.json", "-o", "back.json")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == ["back.json: seq1f1b p4 m4 k2, 64 actions"]
    assert (csv.parent / "back.json").read_text() == seq.read_text()


def test_without_it_the_assumptions_are_told(contraflow: Contraflow, csv: Path) -> None:
    done = contraflow("import", csv)
    assert done.code == 0
    assert (done.json["name"], done.json["sequence"], done.json["splits"]) == ("seq", 1024, [1024])
    assert done.json["microbatches"] == 8
    assert "1024 tokens (--sequence)" in done.err
    assert f"--meta {csv}.meta.json would tell" in done.err
    assert contraflow("import", csv, "--sequence", 96).json["splits"] == [96]


def test_what_is_left_out_is_told(contraflow: Contraflow, tmp_path: Path) -> None:
    (tmp_path / "comms.csv").write_text("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    done = contraflow("import", "comms.csv", "-o", "out.json", "--json")
    assert done.json == {"file": "out.json", "name": "comms", "actions": 4}
    assert "4 sends and receives are left out" in done.err


def test_every_slip_is_told_with_its_place_and_nothing_is_written(
    contraflow: Contraflow, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("0F0,0b0,0F1.0\n1F0,0F2\n")
    done = contraflow("import", "bad.csv", "-o", "out.json")
    assert (done.code, done.out) == (1, "")
    lines = done.err.splitlines()
    assert lines[0].startswith("contraflow import: bad.csv, ranks and columns counted from 0: ")
    places = [line.split(":")[0] for line in lines[1:]]
    assert places == ["rank 0, column 1", "rank 0, column 2", "rank 1, column 1"]
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"{}", b"a,b\n", b"\n\n"])
def test_what_is_no_csv_is_refused_in_one_line(
    contraflow: Contraflow, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "in.csv").write_bytes(content)
    for done in (
        contraflow("import", "in.csv"),
        contraflow("import", tmp_path),
        contraflow("import", "none"),
    ):
        assert (done.code, done.out) == (2, "")
        assert len(done.err.splitlines()) == 1


def test_sequence_beside_a_side_car_is_a_slip(contraflow: Contraflow, csv: Path) -> None:
    done = contraflow("import", csv, "--meta", f"{csv}.meta.json", "--sequence", 8)
    assert done.code == 2
    assert "--sequence" in done.err
    assert contraflow("import", csv, "--sequence", 0).code == 2
