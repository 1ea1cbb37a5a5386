"""What check, simulate, compare and show say of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# check


def test_check_names_every_fault_with_its_place(contraflow: Callable[..., Any], broken: Path) -> None:
    checked = contraflow("check", broken)
    assert checked.code == 1
    assert [line.split(":")[0] for line in checked.out.splitlines()] == ["device 3, action 3", "device 3"]
    assert "2 faults" in checked.err

    answer = contraflow("check", broken, "--json")
    assert answer.code == 1
    assert not answer.json["valid"]
    assert [set(fault) for fault in answer.json["faults"]] == [{"rule", "where", "action", "message"}] * 2
    assert [fault["action"] for fault in answer.json["faults"]] == ["3F1.0x", "3F1.0"]


def test_check_of_a_valid_file(contraflow: Callable[..., Any], seq: Path) -> None:
    assert contraflow("check", seq).out.startswith(f"{seq} is valid")
    assert contraflow("check", seq, "--json").json == {"valid": True, "faults": []}


def test_check_says_when_program_and_knobs_have_parted(contraflow: Callable[..., Any], seq: Path) -> None:
    document = json.loads(seq.read_text())
    document["ranks"] = [3, 2, 1, 0]
    seq.write_text(json.dumps(document))
    assert contraflow("check", seq).err == ""
    document["design"]["microbatches"] = 5
    seq.write_text(json.dumps(document))
    checked = contraflow("check", seq)
    assert checked.code == 0
    assert "knobs" in checked.err


# simulate


def test_simulate_in_json(contraflow: Callable[..., Any], seq: Path) -> None:
    figures = contraflow("simulate", seq, "--json").json
    assert figures["makespan"] == 16.5
    assert figures["bubble"] == pytest.approx(1 - 12 / 16.5)
    assert figures["peak_activation"] == 2.5
    assert figures["actions"] == 64
    assert figures["clock"] == "unit"
    assert [device["peak_activation"] for device in figures["devices"]] == [2.5, 2.0, 1.5, 1.0]
    assert [device["busy"] for device in figures["devices"]] == [12.0] * 4
    assert [device["idle"] for device in figures["devices"]] == [4.5] * 4
    assert [device["first"] for device in figures["devices"]] == [0.0, 0.5, 1.0, 1.5]
    assert figures["devices"][0]["last"] == 16.5


def test_simulate_in_words_states_its_assumptions(contraflow: Callable[..., Any], seq: Path) -> None:
    shown = contraflow("simulate", seq)
    assert "makespan 16.5" in shown.out
    assert "B = 2" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    for device, peak in enumerate(["2.5", "2.0", "1.5", "1.0"]):
        assert any(
            line.split()[:1] + line.split()[-1:] == [str(device), peak] for line in shown.out.splitlines()
        )


def test_simulate_on_a_machine_is_in_seconds(contraflow: Callable[..., Any], seq: Path) -> None:
    figures = contraflow("simulate", seq, "--costs", "llama3-8b-h100", "--json").json
    assert figures["clock"] == "seconds"
    assert figures["step"] > figures["makespan"] > figures["devices"][0]["busy"]
    assert "busy (ms)" in contraflow("simulate", seq, "--costs", "llama3-1b-b200").out


@pytest.mark.parametrize(("cap", "over"), [("2.5", []), ("2", [0]), ("1.5", [0, 1])])
def test_cap(contraflow: Callable[..., Any], seq: Path, cap: str, over: list[int]) -> None:
    shown = contraflow("simulate", seq, "--cap", cap)
    assert shown.code == (1 if over else 0)
    assert [device for device in range(4) if f"device {device}" in shown.err] == over
    assert contraflow("simulate", seq, "--cap", cap, "--json").json["over_cap"] == over


def test_a_cap_in_bytes_is_held_against_the_bytes_of_a_model(
    contraflow: Callable[..., Any], seq: Path
) -> None:
    shown = contraflow("simulate", seq, "--cap", "70GiB")
    assert (shown.code, shown.out) == (2, "")
    assert "unit knows of no bytes: a cap in bytes needs --costs MODEL-HARDWARE" in shown.err
    figures = contraflow("simulate", seq, "--costs", "llama3-1b-h100", "--json").json
    held = [device["peak_bytes"] for device in figures["devices"]]
    assert figures["peak_bytes"] == max(held)
    for over, cap in (([], max(held)), ([held.index(max(held))], 0.999 * max(held))):
        shown = contraflow("simulate", seq, "--costs", "llama3-1b-h100", "--cap", f"{cap + 1:.0f}B", "--json")
        assert (shown.code, shown.json["over_cap"]) == (bool(over), over)
    words = contraflow("simulate", seq, "--costs", "llama3-1b-h100", "--cap", "0.5 GiB").err
    assert "over the cap of 0.5 GiB: device 0 (" in words


@pytest.mark.parametrize(
    "cap", ["70GB", "70gib", "70 GiB", "71680MiB", "70000 mb", "73400320KiB", "75161927680B"]
)
def test_bytes_may_be_written_in_many_ways(contraflow: Callable[..., Any], seq: Path, cap: str) -> None:
    shown = contraflow("simulate", seq, "--costs", "gpt-1.3b-h200", "--cap", cap, "--json")
    assert 70e9 <= shown.json["cap"] <= 70 * 2**30


@pytest.mark.parametrize("cap", ["70G", "GiB", "7.0.1GiB", "-1GiB", "70 PiB", "inf GiB", "1e3GiB"])
def test_a_cap_that_is_none_is_a_slip(contraflow: Callable[..., Any], seq: Path, cap: str) -> None:
    assert contraflow("simulate", seq, "--cap", cap).code == 2


def test_faults_end_a_simulation(contraflow: Callable[..., Any], broken: Path) -> None:
    shown = contraflow("simulate", broken, "--json")
    assert (shown.code, shown.out) == (1, "")
    assert "3F1.0x" in shown.err


# compare


def test_compare_is_relative_to_the_first(contraflow: Callable[..., Any], seq: Path) -> None:
    contraflow("new", "1f1b", "-o", "1f1b.schedule.json")
    # Flags may stand between the files.
    rows = contraflow("compare", "1f1b.schedule.json", "--json", seq)
    assert (rows.code, rows.err) == (0, "")
    assert [row["makespan"] for row in rows.json] == [21.0, 16.5]
    assert [row["speedup"] for row in rows.json] == [1.0, pytest.approx(21 / 16.5)]
    table = contraflow("compare", "1f1b.schedule.json", seq).out.splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["1f1b", "seq"]
    assert "1.273x" in table[2]


def test_compare_shows_the_second_copy_of_the_weights(contraflow: Callable[..., Any], seq: Path) -> None:
    contraflow("new", "bsipipe", "-o", "bsi.json")
    assert [row["weights"] for row in contraflow("compare", seq, "bsi.json", "--json").json] == [1, 2]


def test_compare_warns_of_unequal_work(contraflow: Callable[..., Any], seq: Path) -> None:
    contraflow("new", "1f1b", "--microbatches", 8, "-o", "longer.json")
    assert "131072, 262144" in contraflow("compare", seq, "longer.json").err
    contraflow("new", "1f1b", "--devices", 8, "-o", "wider.json")
    assert "devices (4, 8)" in contraflow("compare", seq, "wider.json").err
    assert not contraflow("compare", seq, "wider.json", "--costs", "llama3-8b-h100").err


def test_compare_tries_the_mappings_of_devices_to_ranks(
    contraflow: Callable[..., Any], tmp_path: Path
) -> None:
    contraflow("new", "bsipipe", "--devices", 8, "--subsequences", 2, "--sequence", 4096, "-o", "bsi.json")
    model = tmp_path / "two-nodes.toml"
    model.write_text('[model]\npreset = "llama3-8b"\n[hardware]\npreset = "h100"\ngpus_per_node = 4\n')
    rows = contraflow("compare", "bsi.json", "--ranks", "linear,fold", "--costs", model, "--json").json
    assert [row["ranks"] for row in rows] == [list(range(8)), [0, 1, 4, 5, 6, 7, 2, 3]]
    assert rows[0]["bytes_between_nodes"] > rows[1]["bytes_between_nodes"] > 0
    assert rows[1]["speedup"] > 1
    table = contraflow("compare", "bsi.json", "--ranks", "linear,fold,best", "--costs", model).out
    assert "between" in table
    assert "bsi.json, best" in table
    assert max(map(len, table.splitlines())) <= 80
    refused = contraflow("compare", "bsi.json", "--ranks", "fold")
    assert (refused.code, refused.out) == (2, "")
    assert "knows no nodes" in refused.err


# show


@pytest.mark.parametrize("width", [80, 200])
def test_show_keeps_to_its_width(contraflow: Callable[..., Any], seq: Path, width: int) -> None:
    lines = contraflow("show", seq, "--width", width).out.splitlines()
    assert width - 2 <= max(map(len, lines)) <= width


def test_show_in_ascii(contraflow: Callable[..., Any], seq: Path) -> None:
    shown = contraflow("show", seq, "--ascii")
    assert shown.out.isascii()
    assert "16.5" in shown.out


@pytest.mark.parametrize("turned_off", ["--mono", "NO_COLOR"])
def test_colours_are_for_terminals_that_want_them(
    contraflow: Callable[..., Any], seq: Path, monkeypatch: pytest.MonkeyPatch, turned_off: str
) -> None:
    assert "\x1b" not in contraflow("show", seq).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" in contraflow("show", seq).out
    if turned_off == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    flags = [turned_off] if turned_off.startswith("--") else []
    assert "\x1b" not in contraflow("show", seq, *flags).out
