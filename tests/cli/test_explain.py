"""What explain and diff say, to people and to programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_idle_time_by_cause(contraflow: Callable[..., Any], seq: Path) -> None:
    found = contraflow("explain", seq, "--json").json
    assert [sum(causes.values()) for causes in found["idle"]] == pytest.approx([4.5] * 4)
    assert [causes["start-up"] for causes in found["idle"]] == [0, 0.5, 1, 1.5]
    assert found["critical"][0] == {"device": 0, "action": "0F0.0"}
    assert found["critical"][-1]["action"] == "0B3.0"
    table = contraflow("explain", seq).out
    assert "memory gate" in table
    assert "critical path" in table
    assert max(map(len, table.splitlines())) <= 80


def test_one_action(contraflow: Callable[..., Any], seq: Path) -> None:
    told = contraflow("explain", seq, "3F0.0").out
    assert told.startswith("3F0.0: device 3, action 0, from 1.5 to 2")
    assert "waited for 2F0.0 on device 2, whose message was here at 1.5  <- the last" in told
    assert "its device was idle before it for 1.5" in told
    assert "float 0: any delay" in told
    assert told.index("2F0.0 of device 2") < told.index("1F0.0 of device 1") < told.index("0F0.0 of device 0")
    found = contraflow("explain", seq, "3F0.0", "--json").json
    assert (found["device"], found["position"], found["start"], found["float"]) == (3, 0, 1.5, 0)
    assert found["critical"] is True
    assert found["waits"] == [{"action": "2F0.0", "device": 2, "until": 1.5, "last": True}]
    assert [link["waited_for"] for link in found["chain"]] == ["2F0.0", "1F0.0", "0F0.0"]


def test_messages_are_told_apart_from_computes(contraflow: Callable[..., Any], seq: Path) -> None:
    told = contraflow("explain", seq, "1F0.0", "--costs", "llama3-8b-h100")
    assert told.out.startswith("1F0.0: device 1, action 0, from 0.")
    assert "which ended at" in told.out
    causes = contraflow("explain", seq, "--costs", "llama3-8b-h100", "--json").json["idle"]
    assert any(entry["communication"] > 0 for entry in causes)
    assert any(entry["imbalance"] > 0 for entry in causes)


def test_a_reduction_is_named_with_its_device(contraflow: Callable[..., Any]) -> None:
    contraflow("new", "bsipipe", "--microbatches", 2, "-o", "bsi.json")
    costs = ["--costs", "llama3-8b-h100"]
    unsure = contraflow("explain", "bsi.json", "3REDUCE_GRAD", *costs)
    assert (unsure.code, unsure.out) == (2, "")
    assert "name one of d0:3REDUCE_GRAD, d3:3REDUCE_GRAD" in unsure.err
    assert contraflow("explain", "bsi.json", "d3:3REDUCE_GRAD", *costs).out.startswith(
        "3REDUCE_GRAD: device 3"
    )
    assert contraflow("explain", "bsi.json", "d3:3REDUCE_GRAD", *costs, "--json").json["device"] == 3


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("9F9", "no action '9F9'"),
        ("3F0", "did you mean 3F0.0?"),
        ("", "no action ''"),
        ("d1:3F0.0", "3F0.0 runs on device 3, not on 'd1'"),
        ("ключ", "no action"),
    ],
)
def test_an_action_that_is_none(contraflow: Callable[..., Any], seq: Path, action: str, reason: str) -> None:
    found = contraflow("explain", seq, action)
    assert (found.code, found.out) == (2, "")
    assert reason in found.err


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
    assert len(answer["makespans"]) == 2


def test_diff_of_other_shapes(contraflow: Callable[..., Any], seq: Path) -> None:
    contraflow("new", "1f1b", "--devices", 2, "-o", "1f1b.json")
    answer = contraflow("diff", "1f1b.json", seq, "--json").json
    assert answer["fields"]["devices"] == {"before": 2, "after": 4}
    assert len(answer["added"]) == 64
    assert len(answer["removed"]) == 16
