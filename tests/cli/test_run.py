"""`contraflow run`: training, as a person and a script see it, and how it ends when it cannot go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contraflow.engine import config

TINY = "[model]\nhidden = 32\nheads = 2\nkv_heads = 1\nffn = 48\n[run]\nsteps = 4\ntimeout = 30\n"


@pytest.fixture
def two(contraflow: Callable[..., Any], tmp_path: Path) -> Path:
    """Two directions on two devices, four stages, and a configuration `tiny.toml` beside the file."""
    (tmp_path / "tiny.toml").write_text(TINY)
    knobs = ["--devices", 2, "--microbatches", 2, "--subsequences", 2, "--sequence", 64]
    assert contraflow("new", "bsipipe", *knobs, "-o", "two.json").code == 0
    return tmp_path / "two.json"


# Before anything slow.


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        ("[run]\nstep = 3\n", ["slip.toml", "[run]", "'step'", "'steps'"]),
        ("[rnu]\nsteps = 3\n", ["slip.toml", "'rnu'", "'run'"]),
        ("[run]\nsteps = 'three'\n", ["slip.toml", "steps", "three"]),
        ("[model]\nfamily = 'gpt'\npositions = 63\n", ["slip.toml", "positions", "64 tokens"]),
        ("[run\n", ["slip.toml", "TOML"]),
    ],
)
def test_a_slip_in_the_configuration(
    contraflow: Callable[..., Any], two: Path, text: str, hints: list[str]
) -> None:
    Path("slip.toml").write_text(text)
    said = contraflow("run", two, "--config", "slip.toml")
    assert (said.code, said.out) == (2, "")
    assert all(hint in said.err for hint in hints)
    assert said.err.count("\n") == 1


def test_layers_that_do_not_add_up(contraflow: Callable[..., Any]) -> None:
    contraflow("new", "1f1b", "--devices", 2, "--layers", "1,2", "-o", "listed.json")
    Path("four.toml").write_text("[model]\nlayers = 4\n")
    said = contraflow("run", "listed.json", "--config", "four.toml")
    assert said.code == 2
    assert "add up to 3, the model has 4" in said.err


def test_torchrun_with_another_number_of_processes(
    contraflow: Callable[..., Any], two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    for command in (["run"], ["verify", "--processes"]):
        said = contraflow(*command, two)
        assert (said.code, said.out) == (2, "")
        assert "3 processes" in said.err
        assert "2 devices" in said.err


def test_rank_0_speaks_for_all(
    contraflow: Callable[..., Any], two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setattr("contraflow.designer.cli.processes.PATIENCE", 0.0)
    assert contraflow("run", two) == (2, "", "")


@pytest.mark.parametrize("costs", ["unit", "work:llama3-8b"])
def test_costs_without_seconds_predict_no_time(contraflow: Callable[..., Any], two: Path, costs: str) -> None:
    said = contraflow("run", two, "--costs", costs)
    assert said.code == 2
    assert f"{costs} has no seconds" in said.err


def test_all_this_takes_no_torch(two: Path) -> None:
    (two.parent / "slip.toml").write_text("[run]\nstep = 3\n")
    code = (
        "import os, sys\n"
        "from contraflow.designer.cli import main\n"
        "assert main(['run', '--help-config']) == 0\n"
        "assert main(['run', 'two.json', '--config', 'slip.toml']) == 2\n"
        "assert main(['run', 'two.json', '--costs', 'unit']) == 2\n"
        "assert main(['verify', 'slip.toml']) == 2\n"
        "os.environ.update(RANK='0', WORLD_SIZE='3')\n"
        "assert main(['run', 'two.json']) == 2\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=two.parent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_help_config_is_a_configuration(contraflow: Callable[..., Any]) -> None:
    shown = contraflow("run", "--help-config")
    assert (shown.code, shown.err) == (0, "")
    assert tomllib.loads(shown.out)["run"]["steps"] == config.RunConfig().steps


def test_too_few_gpus(contraflow: Callable[..., Any], two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    Path("cuda.toml").write_text("[run]\ndevice = 'cuda'\n")
    said = contraflow("run", two, "--config", "cuda.toml")
    assert (said.code, said.out) == (3, "")
    assert "each of 2 devices; here are 1" in said.err


# Training.


@pytest.mark.processes
def test_run_in_json(contraflow: Callable[..., Any], two: Path) -> None:
    said = contraflow("run", two, "--config", "tiny.toml", "--json")
    assert said.code == 0
    *steps, end = map(json.loads, said.out.splitlines())
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    for step in steps:
        assert step.keys() == {"step", "loss", "grad_norm", "tokens_per_s", "step_s"}
        assert step["tokens_per_s"] == pytest.approx(2 * 64 / step["step_s"])
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert end.keys() == {"predicted_s", "measured_s", "error", "peak_activation", "bubble_predicted"}
    assert end["measured_s"] == sorted(step["step_s"] for step in steps[1:])[1]
    assert end["predicted_s"] > 0
    assert end["error"] == pytest.approx(end["measured_s"] / end["predicted_s"] - 1)
    assert end["peak_activation"] == contraflow("simulate", two, "--json").json["peak_activation"]
    assert 0 < end["bubble_predicted"] < 1
    assert "updated on devices 0, 1, 0, 1" in said.err


@pytest.mark.processes
def test_run_in_words(contraflow: Callable[..., Any], two: Path) -> None:
    said = contraflow("run", two, "--config", "tiny.toml", "--steps", 2)
    assert said.code == 0
    assert "step 2 of 2: loss" in said.err
    assert [line.split("  ")[0] for line in said.out.splitlines()[:4]] == [
        "loss",
        "median step",
        "speed",
        "predicted",
    ]
    assert "measured on" in said.out


@pytest.mark.processes
def test_a_cost_model_predicts_every_pass_and_one_update(contraflow: Callable[..., Any], two: Path) -> None:
    Path("model.toml").write_text("[model]\nlayers = 4\n[hardware]\npreset = 'h100'\n")
    Path("tiny.toml").write_text(TINY + "accumulate = 3\n")
    said = contraflow("run", two, "--config", "tiny.toml", "--costs", "model.toml", "--json")
    expected = contraflow("simulate", two, "--costs", "model.toml", "--json").json
    predicted = json.loads(said.out.splitlines()[-1])["predicted_s"]
    assert predicted == pytest.approx(2 * expected["makespan"] + expected["step"])


@pytest.mark.processes
def test_a_loss_that_is_no_number_fails(contraflow: Callable[..., Any], two: Path) -> None:
    Path("wild.toml").write_text(TINY + "[optimizer]\nlearning_rate = 1e25\nclip = 0\n")
    said = contraflow("run", two, "--config", "wild.toml")
    assert said.code == 4
    assert "step 2: loss" in said.err
    assert "nothing was updated" in said.err


@pytest.mark.processes
def test_data_that_is_not_there_is_a_slip(contraflow: Callable[..., Any], two: Path) -> None:
    Path("tiny.toml").write_text(TINY + "[data]\npath = 'nowhere.txt'\n")
    said = contraflow("run", two, "--config", "tiny.toml")
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1].startswith("contraflow run: nowhere.txt cannot be read")


# What becomes of the processes.


def parents() -> dict[int, int]:
    """Of every process its parent."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(entry.parent.name)] = int(fields[1])
    return found


def below(ancestor: int) -> list[list[int]]:
    """The children of a process, their children, and so on, in the order in which they were started."""
    everyone = parents()
    generations = [[ancestor]]
    while generations[-1]:
        generations.append(sorted(pid for pid, parent in everyone.items() if parent in generations[-1]))
    return generations[1:-1]


@pytest.fixture
def endless(two: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that has reached its second step, and leaves nothing behind."""
    command = [sys.executable, "-m", "contraflow.designer.cli", "run", "two.json", "--config", "tiny.toml"]
    # Not below tmp_path: sockets of the run lie there, and their paths must be short.
    temporary = Path(tempfile.mkdtemp(prefix="cf"))
    with subprocess.Popen(
        [*command, "--steps", "1000000", "--json"],
        cwd=two.parent,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever starts the tests in the background may have them ignore Ctrl-C, and their children with them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        assert running.stdout is not None
        for step in (1, 2):
            assert json.loads(running.stdout.readline())["step"] == step
        family = {pid for generation in below(running.pid) for pid in generation}
        assert len(family) >= 2
        try:
            yield running
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while family & parents().keys() and time.monotonic() < until:
        time.sleep(0.05)
    assert not family & parents().keys()
    # PyTorch keeps a cache of its own there, for the next time.
    left = [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor_")]
    shutil.rmtree(temporary)
    assert left == []


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")


@needs_proc
@pytest.mark.processes
def test_a_killed_process_is_named(endless: subprocess.Popen[str]) -> None:
    os.kill(below(endless.pid)[-1][1], signal.SIGKILL)
    said = endless.communicate(timeout=30)[1].splitlines()
    assert endless.returncode == 4
    [start] = [number for number, line in enumerate(said) if line.startswith("contraflow run: ")]
    assert said[start] == "contraflow run: device 1 was killed by SIGKILL"
    assert said[start + 1].startswith("  meanwhile device 0, in step ")
    assert "Traceback" not in said


@needs_proc
@pytest.mark.processes
def test_ctrl_c_says_at_which_step(endless: subprocess.Popen[str]) -> None:
    os.killpg(endless.pid, signal.SIGINT)
    out, said = endless.communicate(timeout=30)
    assert endless.returncode == 130
    last = json.loads(out.splitlines()[-1])["step"] if out else 2
    assert said.splitlines()[-1] == f"contraflow run: interrupted in step {last + 1}"


@needs_proc
@pytest.mark.processes
def test_a_request_to_end_is_heard(endless: subprocess.Popen[str]) -> None:
    endless.terminate()
    _, said = endless.communicate(timeout=30)
    assert endless.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
