"""`contraflow new`: knobs in, a schedule file out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.designer.generators import GENERATORS


@pytest.mark.parametrize("generator", GENERATORS)
def test_what_new_prints_is_a_valid_schedule(
    contraflow: Callable[..., Any], generator: str, tmp_path: Path
) -> None:
    made = contraflow("new", generator)
    assert (made.code, made.err) == (0, "")
    (tmp_path / "made.json").write_text(made.out)
    checked = contraflow("check", "made.json")
    assert checked.code == 0
    assert "valid" in checked.out
    assert checked.err == ""


def test_output_is_replaced_whole_and_stdout_stays_empty(
    contraflow: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "out.json").write_text("old")
    made = contraflow("new", "gpipe", "-o", "out.json")
    assert (made.code, made.out) == (0, "")
    assert "out.json" in made.err
    assert (tmp_path / "out.json").read_text() == contraflow("new", "gpipe").out
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize(
    ("flags", "splits"),
    [
        (["--sequence", "10", "--subsequences", "4"], [3, 3, 2, 2]),
        (["--split", "512,384,128"], [512, 384, 128]),
        # Seq1F1B's equal compute for LLaMA-3-8B, the default model (2406.03488, section 3.4).
        (["--split", "compute"], [11008, 8448, 7040, 6272]),
        (["--split", "compute", "--sequence", "131072"], [55552, 30848, 24192, 20480]),
    ],
)
def test_split(contraflow: Callable[..., Any], flags: list[str], splits: list[int]) -> None:
    made = contraflow("new", "seq1f1b", *flags).json
    assert made["splits"] == splits
    assert made["sequence"] == sum(splits)


def test_defaults_of_new(contraflow: Callable[..., Any]) -> None:
    made = contraflow("new", "bsipipe").json
    placements = [direction["placement"] for direction in made["directions"]]
    assert placements == [[0, 1, 2, 3, 3, 2, 1, 0], [3, 2, 1, 0, 0, 1, 2, 3]]
    assert [direction["microbatches"] for direction in made["directions"]] == [[0, 2], [1, 3]]
    assert made["design"] == {
        "generator": "bsipipe",
        "devices": 4,
        "sequence": 32768,
        "split": "even",
        "multiple": 128,
        "unit_microbatches": 1,
    }


@pytest.mark.parametrize(("budget", "makespan"), [([], 12.375), (["--budget", "2"], 12.75)])
def test_budget(contraflow: Callable[..., Any], budget: list[str], makespan: float) -> None:
    contraflow("new", "bsipipe", *budget, "-o", "made.json")
    assert contraflow("simulate", "made.json", "--json").json["makespan"] == makespan


def test_layers_reach_the_file(contraflow: Callable[..., Any]) -> None:
    assert contraflow("new", "1f1b", "--layers", "7,9,9,7").json["layers"] == [7, 9, 9, 7]


def test_directions_reach_the_file(contraflow: Callable[..., Any]) -> None:
    made = contraflow("new", "bsipipe", "--directions", "00011").json
    assert [way["microbatches"] for way in made["directions"]] == [[0, 1, 2], [3, 4]]
    assert made["microbatches"] == 5
    assert contraflow("new", "chimera", "--directions", "alternate").out == contraflow("new", "chimera").out
    refused = contraflow("new", "1f1b", "--directions", "0101")
    assert (refused.code, refused.out) == (2, "")
    assert "1f1b sends all microbatches one way: --directions is for chimera" in refused.err
    described = {entry["name"]: entry["knobs"] for entry in contraflow("new", "--list", "--json").json}
    assert [name for name, knobs in described.items() if "--directions" in knobs] == [
        name for name, kind in GENERATORS.items() if kind.directions == 2
    ]


def test_a_knob_that_changes_nothing_is_pointed_out(contraflow: Callable[..., Any]) -> None:
    made = contraflow("new", "gpipe", "--budget", "3")
    assert made.code == 0
    assert "--budget" in made.err


def test_list_names_every_generator_and_its_knobs(contraflow: Callable[..., Any]) -> None:
    listed = contraflow("new", "--list")
    described = {entry["name"]: entry for entry in contraflow("new", "--list", "--json").json}
    assert list(described) == list(GENERATORS)
    assert all(name in listed.out for name in GENERATORS)
    assert "--budget" in described["bsipipe"]["knobs"]
    assert described["gpipe"]["knobs"] == []


def test_layers_and_ranks_that_fit_the_costs(contraflow: Callable[..., Any]) -> None:
    flags = ["--devices", 8, "--subsequences", 2, "--sequence", 8192, "--costs", "llama3-8b-h100"]
    made = contraflow("new", "bsipipe", *flags, "--layers", "balanced", "--ranks", "fold").json
    assert sum(made["layers"]) == 32
    assert made["layers"][0] + made["layers"][-1] < 4, "the head is worth a layer or more"
    assert sorted(made["ranks"]) == list(range(8))
    listed = contraflow("new", "1f1b", "--layers", "9,9,8,6", "--ranks", "3,2,1,0").json
    assert (listed["layers"], listed["ranks"]) == ([9, 9, 8, 6], [3, 2, 1, 0])


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--layers", "evenly"], "no layers 'evenly'; there are balanced, and lists such as 7,9,9,7"),
        (["--layers", "balanced", "--costs", "unit"], "unit knows no model to balance"),
        (["--ranks", "1,2,3,4"], "--ranks lists each of 0 to 3 once"),
        (["--ranks", "spiral"], "no mapping 'spiral'"),
    ],
)
def test_layers_and_ranks_that_are_none(
    contraflow: Callable[..., Any], flags: list[str], reason: str
) -> None:
    made = contraflow("new", "seq1f1b", *flags)
    assert (made.code, made.out) == (2, "")
    assert reason in made.err
