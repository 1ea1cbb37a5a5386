"""What diff says, to people and to programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_diff_of_a_file_with_itself_is_silent(contraflow: Callable[..., Any], seq: Path) -> None:
    found = contraflow("diff", seq, seq)
    assert (found.code, found.out) == (0, "")


def test_diff_names_what_moved(contraflow: Callable[..., Any], seq: Path) -> None:
    document = json.loads(seq.read_text())
    tokens = " ".join(document["program"][3]).split()
    place = tokens.index("3B0.0")
    tokens[place : place + 2] = tokens[place + 1], tokens[place]
    document["program"][3] = [" ".join(tokens)]
    document["name"] = "mine"
    later = seq.with_name("later.json")
    later.write_text(json.dumps(document))
    found = contraflow("diff", seq, later)
    assert found.code == 1
    assert "name: " in found.out
    assert [line for line in found.out.splitlines() if line.startswith(">")] == [
        f"> {tokens[place]}  device 3, action {place + 1} -> action {place}"
    ]
    assert "0 added, 0 removed, 1 moved" in found.err
    answer = contraflow("diff", seq, later, "--json").json
    assert answer["fields"] == {"name": {"before": "seq1f1b p4 m4 k2", "after": "mine"}}
    assert [move["action"] for move in answer["moved"]] == [tokens[place]]
    assert [len(answer[name]) for name in ("makespans", "bubbles", "peak_activations")] == [2, 2, 2]
    assert answer["clock"] == "unit"


def test_diff_of_other_shapes(contraflow: Callable[..., Any], seq: Path) -> None:
    contraflow("new", "1f1b", "--devices", 2, "-o", "1f1b.json")
    answer = contraflow("diff", "1f1b.json", seq, "--json").json
    assert answer["fields"]["devices"] == {"before": 2, "after": 4}
    assert len(answer["added"]) == 64
    assert len(answer["removed"]) == 16


def test_another_cut_of_the_same_program_shows_what_that_costs(
    contraflow: Callable[..., Any], seq: Path
) -> None:
    contraflow("new", "seq1f1b", "--split", "20480,12288", "-o", "cut.json")
    found = contraflow("diff", seq, "cut.json")
    assert found.code == 1
    assert found.out.startswith("splits: 16384,16384 -> 20480,12288\n")
    assert "\ndesign, split: even -> 20480,12288\n" in found.out
    assert "the programs are the same" in found.err
    [first, second] = [line.split() for line in found.out.splitlines() if line.startswith(("seq ", "cut."))]
    assert float(second[1]) > float(first[1]) == 16.5


def test_a_new_name_is_a_difference_without_figures(contraflow: Callable[..., Any], seq: Path) -> None:
    document = json.loads(seq.read_text())
    seq.with_name("named.json").write_text(json.dumps(document | {"name": "mine"}))
    found = contraflow("diff", seq, "named.json")
    assert (found.code, found.out) == (1, "name: seq1f1b p4 m4 k2 -> mine\n")


def test_every_field_shows_where_it_differs_and_fits_the_terminal(
    contraflow: Callable[..., Any], seq: Path
) -> None:
    contraflow("new", "1f1b", "--microbatches", 40, "-o", "40.json")
    contraflow("new", "1f1b", "--microbatches", 43, "-o", "43.json")
    contraflow("new", "bsipipe", "-o", "bsi.json")
    long = contraflow("diff", "40.json", "43.json").out
    assert "direction 0, microbatches: ...39 -> ...39,40,41,42\n" in long
    other = contraflow("diff", seq, "bsi.json").out
    assert "direction 1, name: none -> up\ndirection 1, placement: none -> 3,2,1,0,0,1,2,3\n" in other
    assert "design, generator: seq1f1b -> bsipipe\n" in other
    for line in (long + other).splitlines():
        assert len(line) <= 120
        before, arrow, after = line.partition(": ")[2].partition(" -> ")
        assert before != after or not arrow


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (("1f1b", "--devices", 2), "different numbers of devices (4, 2)"),
        (("seq1f1b", "--microbatches", 8), "different numbers of tokens (131072, 262144)"),
    ],
)
def test_diff_says_where_the_figures_do_not_compare(
    contraflow: Callable[..., Any], seq: Path, other: tuple[object, ...], reason: str
) -> None:
    contraflow("new", *other, "-o", "other.json")
    assert reason in contraflow("diff", seq, "other.json").err
