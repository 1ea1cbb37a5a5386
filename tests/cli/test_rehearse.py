"""`contraflow rehearse`: measured against predicted, as a person and a script see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.engine import launch
from contraflow.engine.ping import Flight
from contraflow.engine.rehearse import Flights, Played, Script


@pytest.fixture
def two(contraflow: Callable[..., Any], tmp_path: Path) -> Path:
    """0F0 1F0 1B0 0B0, of 4 tokens: 6 on the unit clock."""
    knobs = ["--devices", 2, "--microbatches", 1, "--sequence", 4]
    assert contraflow("new", "1f1b", *knobs, "-o", "two.json").code == 0
    return tmp_path / "two.json"


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[Script]:
    """Instead of processes: lanes of 5 and 7 ms and half a ms for each token, and as many runs as are asked for."""
    scripts: list[Script] = []

    def run(
        work: Any, arguments: dict[str, Any], num: int, on_report: Callable[[Any], None], **_: Any
    ) -> None:
        scripts.append(arguments["script"])
        on_report(Flights({(0, 1): Flight(0.005, 0.0005), (1, 0): Flight(0.007, 0.0005)}))
        for number in range(scripts[-1].repeat):
            on_report(Played((0.7 + number / 10, 0.4)))

    monkeypatch.setattr(launch, "run", run)
    return scripts


@pytest.mark.parametrize(
    ("flags", "actions", "delays"),
    [
        ("", 0.6, 0.0),
        ("--scale 20ms --delay 30ms", 0.12, 0.06),
        ("--delay 30ms --delay 1-0:50ms", 0.6, 0.08),
        ("--delay 0-1:2s", 0.6, 2.0),
        ("--costs work:llama3-8b --scale .5s", 3.0, 0.0),
    ],
)
def test_the_prediction_counts_actions_lanes_and_delays(
    contraflow: Callable[..., Any], two: Path, staged: list[Script], flags: str, actions: float, delays: float
) -> None:
    found = contraflow("rehearse", two, "--json", *flags.split())
    assert found.code == 0
    predicted = actions + delays + 0.005 + 0.007 + 2 * 4 * 0.0005
    assert found.json["predicted_s"] == pytest.approx(predicted)
    assert found.json["measured_s"] == 0.7
    assert found.json["error"] == pytest.approx(0.7 / predicted - 1)
    assert found.json["speedup"] == pytest.approx(actions / 0.7)
    assert sum(staged[0].delays.values()) == pytest.approx(delays)
    assert staged[0].seconds["B"][0] == pytest.approx(actions / 3)


def test_the_median_of_several_runs_device_by_device(
    contraflow: Callable[..., Any], two: Path, staged: list[Script]
) -> None:
    found = contraflow("rehearse", two, "--repeat", 3, "--json").json
    assert found["runs_s"] == pytest.approx([0.7, 0.8, 0.9])
    assert found["measured_s"] == pytest.approx(0.8)
    first, last = found["devices"]
    # Device 1 ends with 1B0; device 0 a message and 0B0 later.
    assert (first["predicted_s"], first["measured_s"]) == pytest.approx((0.616, 0.8))
    assert (last["predicted_s"], last["measured_s"]) == pytest.approx((0.407, 0.4))
    assert last["error"] == pytest.approx(0.4 / 0.407 - 1)


def test_costs_in_seconds_are_their_own_scale(
    contraflow: Callable[..., Any], two: Path, staged: list[Script]
) -> None:
    for scale in ([], ["--scale", 2]):
        assert contraflow("rehearse", two, "--costs", "llama3-8b-h100", "--json", *scale).code == 0
    own, doubled = (played.seconds["F"] for played in staged)
    assert doubled == pytest.approx([2 * seconds for seconds in own])
    priced = contraflow("simulate", two, "--costs", "llama3-8b-h100", "--json").json
    assert sum(own) + sum(staged[0].seconds["B"]) == pytest.approx(
        sum(device["busy"] for device in priced["devices"])
    )


def test_a_rehearsal_in_words(contraflow: Callable[..., Any], two: Path, staged: list[Script]) -> None:
    said = contraflow("rehearse", two, "--repeat", 3)
    assert said.code == 0
    assert [line.split() for line in said.out.splitlines()[:3]] == [
        ["device", "predicted", "measured", "error"],
        ["0", "616", "ms", "800", "ms", "+29.9", "%"],
        ["1", "407", "ms", "400", "ms", "-1.7", "%"],
    ]
    assert "700 ms to 900 ms" in said.out
    assert "0.750x one device" in said.out
    assert "a message takes 5 ms to 7 ms" in said.err
    assert "3 %" not in said.err


def test_actions_that_are_too_short_for_3_percent_are_told(
    contraflow: Callable[..., Any], two: Path, staged: list[Script]
) -> None:
    said = contraflow("rehearse", two, "--scale", "11ms", "--json")
    assert said.json["shortest_action_s"] == pytest.approx(0.011)
    assert "below 12 ms an error of 3 % cannot be kept" in said.err


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        ("--scale 0ms", "nothing to play"),
        ("--scale 2", "a time such as 100ms"),
        ("--scale 100ms --costs llama3-8b-h100", "a factor such as 2"),
        ("--scale 10m", "'10m'"),
        ("--delay 20", "'20' is not a time"),
        ("--delay 0:20ms", "'0' is not a lane such as 2-3"),
        ("--delay 0-2:20ms", "device 0 sends nothing to device 2; the lanes are 0-1, 1-0"),
        ("--repeat 0", "less than 1"),
        ("--values 0", "less than 1"),
        ("--costs chalk", "'chalk'"),
    ],
)
def test_slips_end_in_one_line(
    contraflow: Callable[..., Any], two: Path, staged: list[Script], flags: str, hint: str
) -> None:
    said = contraflow("rehearse", two, *flags.split())
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("contraflow rehearse: ")
    assert hint in said.err
    assert said.err.count("\n") == 1
    assert not staged


def test_faults_and_torchrun_with_another_number_of_processes(
    contraflow: Callable[..., Any], broken: Path, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert contraflow("rehearse", broken).code == 1
    assert contraflow("rehearse", "nowhere.json").code == 2
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    said = contraflow("rehearse", two)
    assert (said.code, said.out) == (2, "")
    assert "3 processes" in said.err


@pytest.mark.processes
def test_real_processes_take_at_least_what_must_be(contraflow: Callable[..., Any]) -> None:
    knobs = ["--devices", 2, "--microbatches", 2, "--subsequences", 2, "--sequence", 64]
    contraflow("new", "bsipipe", *knobs, "--ranks", "1,0", "-o", "mirrored.json")
    free = contraflow("simulate", "mirrored.json", "--json").json
    found = contraflow(
        "rehearse",
        "mirrored.json",
        "--scale",
        "20ms",
        "--values",
        8,
        "--repeat",
        2,
        "--delay",
        "5ms",
        "--json",
    )
    assert found.code == 0
    answer = json.loads(found.out.splitlines()[-1])
    assert {(lane["source"], lane["target"], lane["delay_s"]) for lane in answer["lanes"]} == {
        (0, 1, 0.005),
        (1, 0, 0.005),
    }
    assert all(lane["latency_s"] > 0 for lane in answer["lanes"])
    assert len(answer["runs_s"]) == 2
    assert min(answer["runs_s"]) >= 0.02 * free["makespan"]
    assert answer["predicted_s"] > 0.02 * free["makespan"]
    assert answer["alone_s"] == pytest.approx(0.02 * sum(device["busy"] for device in free["devices"]))
    assert len(answer["devices"]) == 2
    assert answer["measured_s"] == pytest.approx(sum(answer["runs_s"]) / 2)
