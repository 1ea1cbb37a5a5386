"""`contraflow run --trace` and `contraflow overlay`, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.designer import costs
from contraflow.designer.design import Design, make, preview
from contraflow.designer.format import file
from contraflow.designer.format.trace import Trace, dumps, load
from contraflow.designer.overlay import predicted

SCHEDULE = make(Design("bsipipe", devices=2, microbatches=2, subsequences=2, sequence=64))
PRESET = "llama3-1b-h100"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """The schedule as a file."""
    path = tmp_path / "two.json"
    file.write(SCHEDULE, path)
    return path


@pytest.fixture
def traced(two: Path) -> Path:
    """A trace that is exactly as a preset predicts, and says nothing of that."""
    times = predicted(preview(SCHEDULE, costs.named(PRESET)).timeline)
    path = two.with_name("trace.json")
    path.write_text(dumps(Trace(SCHEDULE, 3, "a bench", times, ())))
    return path


@pytest.mark.processes
def test_a_traced_run_is_laid_over_its_prediction(contraflow: Callable[..., Any], two: Path) -> None:
    Path("tiny.toml").write_text(
        "[model]\nhidden = 32\nheads = 2\nkv_heads = 1\nffn = 48\n[run]\ntimeout = 30\n"
    )
    said = contraflow("run", two, "--config", "tiny.toml", "--steps", 3, "--trace", "t.json", "--json")
    assert said.code == 0
    assert "t.json: step " in said.err
    *steps, end = map(json.loads, said.out.splitlines())
    trace = load("t.json")
    assert steps[trace.step - 1]["step_s"] == min(step["step_s"] for step in steps[1:])
    assert trace.measured.makespan < steps[trace.step - 1]["step_s"]
    found = contraflow("overlay", two, "t.json", "--json").json
    assert found["makespan"]["predicted"] == pytest.approx(trace.predicted.makespan if trace.predicted else 0)
    assert found["makespan"]["predicted"] < end["predicted_s"]
    assert found["makespan"]["measured"] == pytest.approx(trace.measured.makespan)
    assert "before the run" in found["assumptions"]
    assert len(found["worst"]) == 10
    excesses = [abs(entry["measured"] - entry["predicted"]) for entry in found["worst"]]
    assert excesses == sorted(excesses, reverse=True)
    shown = contraflow("overlay", two, "t.json", "--worst", 1)
    assert shown.code == 0
    assert found["worst"][0]["action"] in shown.out
    assert found["worst"][1]["action"] not in shown.out.partition("Idle")[0].partition("farthest")[2]


def test_prices_of_ones_own(contraflow: Callable[..., Any], two: Path, traced: Path) -> None:
    said = contraflow("overlay", two, traced)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"contraflow overlay: {traced} carries no prediction; name --costs\n"
    found = contraflow("overlay", two, traced, "--costs", PRESET, "--json").json
    assert found["makespan"]["ratio"] == 1
    assert found["waits"] == []
    assert contraflow("overlay", two, traced, "--costs", "unit").code == 2


def test_a_trace_of_another_schedule_is_refused(contraflow: Callable[..., Any], traced: Path) -> None:
    contraflow("new", "1f1b", "--devices", 2, "-o", "other.json")
    said = contraflow("overlay", "other.json", traced)
    assert (said.code, said.out) == (2, "")
    assert "of another schedule" in said.err
    assert said.err.count("\n") == 1


def test_what_is_no_trace_is_said_in_one_line(contraflow: Callable[..., Any], two: Path) -> None:
    for path in (two, two.parent, "nowhere.json"):
        said = contraflow("overlay", two, path)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(f"contraflow overlay: {path} ")
        assert said.err.count("\n") == 1
