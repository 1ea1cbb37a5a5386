"""How commands end: what a person could have caused ends in one line and an exit code, never in a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.designer.cli.commands import COMMANDS
from contraflow.designer.format import file


def not_schedules(folder: Path) -> dict[str, Path]:
    contents = {
        "empty": b"",
        "not JSON": b"{",
        "not UTF-8": b"\xff\xfe\x00" * 1000,
        "not an object": b"[]",
        "nested too deeply": b"[" * 100_000,
    }
    paths = {"missing": folder / "missing", "a directory": folder, "100 MB": folder / "large"}
    for name, content in contents.items():
        paths[name] = folder / name.replace(" ", "-")
        paths[name].write_bytes(content)
    with paths["100 MB"].open("wb") as large:
        large.truncate(100_000_000)
    return paths


@pytest.mark.parametrize("command", ["check", "simulate", "show", "run", "verify"])
def test_what_is_no_schedule_is_said_in_one_line(
    contraflow: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    for path in not_schedules(tmp_path).values():
        result = contraflow(command, path)
        assert (result.code, result.out) == (2, ""), path
        assert result.err.startswith(f"contraflow {command}: {path}")
        assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("chek x", "'check'"),
        ("new", "gpipe"),
        ("new seq1fb", "'seq1f1b'"),
        ("new seq1f1b --devcies 3", "--devices"),
        ("new seq1f1b --devices few", "'few'"),
        ("new seq1f1b --devices 0", "--devices"),
        ("new seq1f1b --split evne", "even"),
        ("new seq1f1b --split 512,,384", "512,,384"),
        ("new seq1f1b --split 512,0", "at least 1"),
        ("new seq1f1b --split 512,384 --sequence 900", "896"),
        ("new seq1f1b --layers 8,8", "4 stages"),
        ("new seq1f1b --sequence 3", "3 tokens"),
        ("new seq1f1b --sequence 99999999999999999999", "large"),
        ("new seq1f1b --microbatches 100000000", "actions"),
        ("new seq1f1b --split compute --multiple 0", "multiples"),
        ("new bsipipe --devices 3", "2 or 4"),
        ("new bsipipe --budget 1", "the least is 2"),
        ("new bsipipe --budget nan", "nan"),
        ("new bsipipe --costs llama3-8b-h10", "'llama3-8b-h100'"),
        ("new bsipipe --costs nowhere.toml", "nowhere.toml"),
        ("new interleaved-1f1b --microbatches 6", "4 or 8"),
        ("new gpipe -o nowhere/out.json", "nowhere/out.json"),
        ("new gpipe -o .", "cannot be written"),
        ("check", "FILE"),
        ("check a b", "(b)"),
        ("compare a", "two files"),
        ("simulate a --cap much", "'much'"),
        ("simulate a --cap -1", "-1"),
        ("design", "terminal"),
        ("run", "FILE"),
        ("run a --step 3", "--steps"),
        ("run a --steps 0", "'--steps': 0"),
        ("verify a --model lama", "'llama'"),
        ("verify a --dtype float46", "'float64'"),
        ("verify a --random -1", "'--random': -1"),
    ],
)
def test_a_slip_is_said_in_one_line(
    contraflow: Callable[..., Any], tmp_path: Path, line: str, hint: str
) -> None:
    result = contraflow(*line.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("contraflow")
    assert hint in result.err
    assert result.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_costs_that_do_not_fit_name_the_file(contraflow: Callable[..., Any]) -> None:
    contraflow("new", "1f1b", "--layers", "1,1,1,1", "-o", "small.json")
    result = contraflow("simulate", "small.json", "--costs", "llama3-8b-h100")
    assert result.code == 2
    assert result.err.startswith("contraflow simulate: small.json: ")


def test_ctrl_c_ends_quietly(
    contraflow: Callable[..., Any], seq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(file, "read_bytes", interrupted)
    assert contraflow("check", seq) == (130, "", "")


def test_a_missing_package_is_named(
    contraflow: Callable[..., Any], seq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    result = contraflow("show", seq)
    assert result.code == 3
    assert "rich" in result.err
    assert result.err.count("\n") == 1


def test_a_fault_of_ours_is_not_hidden(
    contraflow: Callable[..., Any], seq: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "read_bytes", lambda path: None)
    with pytest.raises((AttributeError, TypeError)):
        contraflow("check", seq)


# The process itself: its streams, and what it loads.


def process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "contraflow.designer.cli", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


def test_a_reader_that_goes_away_is_no_error(seq: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    running = process("show", str(seq), stdout=write)
    os.close(write)
    assert running.communicate(timeout=60)[1] == ""
    assert running.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["check", "show"])
def test_a_full_disk_is_said_in_one_line(seq: Path, command: str) -> None:
    with open("/dev/full", "w") as full:
        running = process(command, str(seq), stdout=full)
        said = running.communicate(timeout=60)[1]
    assert running.returncode == 2
    assert said.count("\n") == 1


def test_help_loads_nothing_slow() -> None:
    code = (
        "import sys\n"
        "from contraflow.designer.cli import main\n"
        "main(['--help'])\n"
        "slow = {'torch', 'textual', 'rich', 'typer', 'dataclasses', 'contraflow.designer.design'}\n"
        "print(*slow & set(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == "\n"
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(contraflow: Callable[..., Any], name: str) -> None:
    shown = contraflow(name, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: contraflow {name}")
