"""`contraflow search`: what it writes, whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pytest

from contraflow.designer.costs.unit import unit
from contraflow.designer.design import preview
from contraflow.designer.format.check import load

pytest.importorskip("ortools", reason="search is an optional extra")


def test_a_better_program_is_written_and_told(contraflow: Callable[..., Any]) -> None:
    contraflow("new", "terapipe", "--devices", 2, "--subsequences", 2, "-o", "start.json")
    told = contraflow("search", "start.json", "--cap", 1.5, "--seconds", 20, "-o", "found.json")
    assert told.code == 0
    found = preview(load(Path("found.json")), unit)
    # seq1f1b's: 3M + 3(P-1)/k.
    assert found.makespan == 13.5
    assert found.peak <= 1.5
    assert "makespan 13.5" in told.err
    assert "proven to be the least" in told.err
    assert contraflow("check", "found.json").code == 0


def test_without_an_output_the_program_goes_to_stdout(contraflow: Callable[..., Any], tmp_path: Path) -> None:
    contraflow("new", "gpipe", "--devices", 2, "-o", "start.json")
    told = contraflow("search", "start.json", "--cap", 2, "--seconds", 20)
    (tmp_path / "found.json").write_text(told.out)
    assert preview(load(tmp_path / "found.json"), unit).peak == 2


def test_as_json(contraflow: Callable[..., Any]) -> None:
    contraflow("new", "gpipe", "--devices", 2, "--microbatches", 3, "-o", "start.json")
    told = contraflow("search", "start.json", "--cap", 2, "--seconds", 20, "-o", "found.json", "--json").json
    assert told["before"] == told["makespan"] == told["bound"] == 12
    assert told["optimal"]
    assert told["peak_activation"] == 2


def test_slips(contraflow: Callable[..., Any], seq: Path) -> None:
    for arguments, words in (
        (["--cap", "0.25"], "no program was found that keeps within 0.25 whole microbatches"),
        (["--cap", "70GiB"], "knows of no bytes"),
        (["--free", "nothing"], "no knob 'nothing' to free"),
        (["--seconds", "0"], "0 is less than 1"),
        (["--costs", "nothing"], "no cost model 'nothing'"),
        (["-o", "missing/found.json"], "missing/found.json cannot be written"),
    ):
        told = contraflow("search", seq, *arguments)
        assert told.code in (1, 2)
        assert words in told.err
        assert "Traceback" not in told.err


@pytest.mark.processes
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_at_any_moment_it_leaves_nothing_or_a_program_no_worse(
    contraflow: Callable[..., Any], tmp_path: Path, end: signal.Signals
) -> None:
    contraflow("new", "bsipipe", "--devices", 8, "--subsequences", 8, "--budget", 2, "-o", "start.json")
    before = preview(load(Path("start.json")), unit)
    draw, out = Random(int(end)), tmp_path / "found.json"
    command = [sys.executable, "-P", "-m", "contraflow.designer.cli", "search", "start.json", "--cap", "2"]
    for _ in range(2):
        out.unlink(missing_ok=True)
        child = subprocess.Popen(
            [*command, "--seconds", "100", "-o", str(out)],
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        sleep(draw.uniform(0.5, 6))
        child.send_signal(end)
        _, said = child.communicate(timeout=60)
        assert b"Traceback" not in said
        if out.exists():
            found = preview(load(out), unit)
            assert found.makespan <= before.makespan
            assert found.peak <= 2
