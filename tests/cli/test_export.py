"""What `contraflow export` writes, where, and what it says of wishes that it cannot fulfil."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest


def test_text_is_what_show_shows(contraflow: Callable[..., Any], seq: Path, tmp_path: Path) -> None:
    shown = contraflow("show", seq)
    assert contraflow("export", seq, "--to", "text").out == shown.out
    saved = contraflow("export", seq, "--to", "text", "-o", "out.txt")
    assert saved.code == 0
    assert "out.txt" in saved.err
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == shown.out


def test_text_in_a_file_has_no_colours(
    contraflow: Callable[..., Any], seq: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    contraflow("export", seq, "--to", "text", "--ascii", "--width", 100, "-o", "out.txt")
    text = (tmp_path / "out.txt").read_bytes()
    assert text.isascii()
    assert b"\x1b" not in text
    assert 80 < max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("to", ["svg", "html"])
def test_pictures_go_to_a_file_or_to_stdout(
    contraflow: Callable[..., Any], seq: Path, tmp_path: Path, to: str
) -> None:
    printed = contraflow("export", seq, "--to", to)
    saved = contraflow("export", seq, "--to", to, "-o", "out")
    assert (printed.code, saved.code, saved.out) == (0, 0, "")
    assert (tmp_path / "out").read_text(encoding="utf-8") == printed.out
    assert "makespan 16.5" in printed.out


def test_svg_is_as_wide_as_asked_and_priced_by_the_costs(contraflow: Callable[..., Any], seq: Path) -> None:
    root = ElementTree.fromstring(
        contraflow("export", seq, "--to", "svg", "--width", 85, "--costs", "llama3-8b-h100").out
    )
    assert root.get("width") == "85mm"
    assert "llama3-8b-h100" in "".join(root.itertext())
    narrow = contraflow("export", seq, "--to", "svg", "--width", 20)
    assert narrow.code == 2
    assert "60 millimetres" in narrow.err


def test_torch_csv_has_a_side_car(contraflow: Callable[..., Any], seq: Path, tmp_path: Path) -> None:
    assert contraflow("export", seq, "--to", "torch-csv", "-o", "out.csv").code == 0
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["0F0", "1F0", "2F0", "3F0"]
    meta = json.loads((tmp_path / "out.csv.meta.json").read_text())
    assert (meta["microbatches"], meta["subsequences"]) == (4, 2)
    unplaced = contraflow("export", seq, "--to", "torch-csv")
    assert unplaced.code == 2
    assert "-o OUT" in unplaced.err


def test_torch_csv_refuses_two_copies_and_leaves_no_file(
    contraflow: Callable[..., Any], tmp_path: Path
) -> None:
    contraflow("new", "bsipipe", "-o", "two.schedule.json")
    refused = contraflow("export", "two.schedule.json", "--to", "torch-csv", "-o", "out.csv")
    assert refused.code == 2
    assert "two copies" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["two.schedule.json"]


@pytest.mark.parametrize("to", ["png", "megatron-layout"])
def test_formats_to_come_are_said_not_to_be_there(contraflow: Callable[..., Any], seq: Path, to: str) -> None:
    answer = contraflow("export", seq, "--to", to)
    assert answer.code == 2
    assert f"{to} is not in this version; there are text, svg, html, perfetto, torch-csv" in answer.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "svgg"], "none of text, svg, html, perfetto, torch-csv"),
        ([], "--to"),
        (["--to", "svg", "-o", "nowhere/out.svg"], "nowhere/out.svg cannot be written"),
        (["--to", "svg", "--costs", "nothing"], "nothing"),
    ],
)
def test_a_slip_is_one_line(
    contraflow: Callable[..., Any], seq: Path, arguments: list[str], words: str
) -> None:
    answer = contraflow("export", seq, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err
    assert answer.err.count("\n") == 1


def test_a_broken_file_is_not_drawn(contraflow: Callable[..., Any], broken: Path, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    for to in ("text", "svg", "html", "torch-csv"):
        assert contraflow("export", broken, "--to", to, "-o", "out").code == 1
    assert set(tmp_path.iterdir()) == before
