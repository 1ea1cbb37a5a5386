"""What explain says, to people and to programs."""

from __future__ import annotations

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
    assert "waited for 2F0.0 on device 2, whose message was here at 1.5  <- last" in told
    assert "its device was idle before it for 1.5: start-up 1.5" in told
    assert "float 0: critical, any delay" in told
    assert told.index("2F0.0 of device 2") < told.index("1F0.0 of device 1") < told.index("0F0.0 of device 0")
    found = contraflow("explain", seq, "3F0.0", "--json").json
    assert (found["device"], found["position"], found["start"], found["float"]) == (3, 0, 1.5, 0)
    assert found["critical"] is True
    assert found["idle_before"] == {"start-up": 1.5}
    assert found["waits"] == [{"action": "2F0.0", "device": 2, "until": 1.5, "last": True}]
    assert [link["waited_for"] for link in found["chain"]] == ["2F0.0", "1F0.0", "0F0.0"]


def test_messages_are_told_apart_from_computes(contraflow: Callable[..., Any], seq: Path) -> None:
    told = contraflow("explain", seq, "1F0.0", "--costs", "llama3-8b-h100")
    assert told.out.startswith("1F0.0: device 1, action 0, from 0.")
    assert "(ended " in told.out
    assert max(map(len, told.out.splitlines())) <= 80
    causes = contraflow("explain", seq, "--costs", "llama3-8b-h100", "--json").json["idle"]
    assert any(entry["communication"] > 0 for entry in causes)
    assert any(entry["imbalance"] > 0 for entry in causes)


def test_what_a_device_idled_for_before_an_action(contraflow: Callable[..., Any], seq: Path) -> None:
    told = contraflow("explain", seq, "0B0.1").out
    # From 2.5 on 0F2.1 is ready, and would be a third whole microbatch where device 0 never holds more than 2.5.
    assert "its device was idle before it for 3: memory gate 3" in told
    assert "idle before it" not in contraflow("explain", seq, "0F2.0").out
    assert contraflow("explain", seq, "0F2.0", "--json").json["idle_before"] == {}


def test_every_row_of_the_table_adds_up_as_shown(contraflow: Callable[..., Any]) -> None:
    contraflow("new", "bsipipe", "--microbatches", 8, "-o", "bsi.json")
    table = contraflow("explain", "bsi.json", "--costs", "llama3-8b-h100").out.splitlines()
    idle = contraflow("explain", "bsi.json", "--costs", "llama3-8b-h100", "--json").json["idle"]
    [head] = [number for number, line in enumerate(table) if line.startswith("device  idle (s)")]
    rounded_apart = 0
    for number, causes in enumerate(idle):
        device, *cells = table[head + 1 + number].split()
        total, *parts = map(float, cells)
        assert (device, total) == (str(number), round(sum(causes.values()), 2))
        assert sum(parts) == pytest.approx(total)
        assert parts == pytest.approx([*causes.values()], abs=0.01)
        rounded_apart += round(sum(round(value, 2) for value in causes.values()), 2) != total
    assert rounded_apart, "no row tests anything"


def test_a_long_chain_fits_the_terminal_and_counts_what_it_leaves_out(
    contraflow: Callable[..., Any],
) -> None:
    contraflow("new", "bsipipe", "--microbatches", 8, "-o", "bsi.json")
    told = contraflow("explain", "bsi.json", "3B1.0", "--costs", "llama3-8b-h100").out
    assert "s: a delay up to that costs nothing" in told
    found = contraflow("explain", "bsi.json", "3B1.0", "--costs", "llama3-8b-h100", "--json").json
    assert (found["float"] > 0, found["critical"]) == (True, False)
    assert " in a row\n" in told
    assert max(map(len, told.splitlines())) <= 80


def test_a_message_that_queued_is_told_apart_from_its_flight(contraflow: Callable[..., Any]) -> None:
    # Links so slow that messages wait for one another.
    contraflow("new", "seq1f1b", "--subsequences", 4, "-o", "four.json")
    Path("slow.toml").write_text(
        '[model]\npreset = "llama3-8b"\n[hardware]\npreset = "h100"\nbandwidth = 2e8\n'
    )
    told = contraflow("explain", "four.json", "1F0.3", "--costs", "slow.toml")
    assert "its message queued for" in told.out, told.err
    assert "behind that of 0F0.2, then took" in told.out
    assert "0F0.3's message queued behind that of 0F0.2" in told.out


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
    nowhere = contraflow("explain", "bsi.json", "d1:3REDUCE_GRAD", *costs)
    assert "runs on device 0 and device 3, not on 'd1'" in nowhere.err


def test_a_reduction_that_is_not_on_the_timeline(contraflow: Callable[..., Any], seq: Path) -> None:
    contraflow("new", "bsipipe", "--microbatches", 2, "-o", "bsi.json")
    for file, token, reason in (
        ("bsi.json", "d3:3REDUCE_GRAD", "takes no time with --costs unit"),
        (seq, "3REDUCE_GRAD", "stage 3 runs on device 3 alone"),
        (seq, "4REDUCE_GRAD", "there is no stage 4: seq1f1b p4 m4 k2 has stages 0 to 3"),
    ):
        found = contraflow("explain", file, token)
        assert (found.code, found.out) == (2, "")
        assert reason in found.err


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
