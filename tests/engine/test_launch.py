"""Processes that train together end together, and say who failed first and what was waiting for it."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.designer.design import Design, make
from contraflow.designer.format import file
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.profile import Profile
from contraflow.designer.format.trace import Trace
from contraflow.engine import launch
from contraflow.engine.config import DataConfig, RunConfig, TrainConfig
from contraflow.engine.member import Refused, RunError
from contraflow.engine.train import StepReport, train

pytestmark = pytest.mark.processes


def small(steps: int, **run: Any) -> TrainConfig:
    return TrainConfig(
        model=ModelShape("llama", 4, 32, 4, 2, 48, 256), run=RunConfig(steps=steps, timeout=30, **run)
    )


def start(design: Design, config: TrainConfig, hear: Callable[[Any], None], profile: bool = False) -> None:
    schedule = make(design)
    launch.run(
        train,
        {"text": file.dumps(schedule), "config": config, "profile": profile},
        schedule.layout.num_devices,
        hear,
        timeout=config.run.timeout,
        names=lambda rank: f"device {rank}",
    )


def test_a_run_reports_its_profile_its_steps_and_its_trace() -> None:
    heard: list[Any] = []
    design = Design("bsipipe", 2, 2, 2, sequence=64)
    start(design, small(3), heard.append, profile=True)
    steps = [report for report in heard if isinstance(report, StepReport)]
    assert [report.step for report in steps] == [1, 2, 3]
    (profile,) = [report for report in heard if isinstance(report, Profile)]
    timed = {(entry.stage, entry.kind, entry.start, entry.stop) for entry in profile.actions}
    assert timed == {(s, kind, a, a + 32) for s in range(4) for kind in "FB" for a in (0, 32)}
    (trace,) = [report for report in heard if isinstance(report, Trace)]
    ran = {device: [span.action for span in trace.spans if span.device == device] for device in range(2)}
    assert ran == {device: list(program) for device, program in enumerate(make(design).program)}


def test_the_loss_falls_and_is_the_same_on_every_schedule() -> None:
    losses = []
    for design in (
        Design("1f1b", 2, 2, 1, sequence=64),
        Design("seq1f1b", 2, 2, 4, sequence=64),
        Design("bsipipe", 2, 2, 2, sequence=64),
    ):
        heard: list[Any] = []
        start(design, small(6, dtype="float64"), heard.append)
        losses.append([report.loss for report in heard if isinstance(report, StepReport)])
    assert losses[0][-1] < losses[0][0]
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-9)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_process_ends_all_and_is_named(victim: int) -> None:
    killed_at = 0.0

    def hear(report: Any) -> None:
        nonlocal killed_at
        if isinstance(report, StepReport) and report.step == 2:
            children = sorted(multiprocessing.active_children(), key=lambda child: child.pid or 0)
            pid = children[victim].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed_at = time.monotonic()

    with pytest.raises(RunError) as raised:
        start(Design("seq1f1b", 4, 4, 2, sequence=64), small(100_000), hear)
    assert time.monotonic() - killed_at < 10
    message = str(raised.value)
    assert message.startswith(f"device {victim} was killed by SIGKILL")
    assert "meanwhile device" in message
    assert "in step" in message
    assert multiprocessing.active_children() == []


def test_an_exception_in_one_process_ends_all_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other processes find a function by its module, so it is one that they can import.
    (tmp_path / "planted.py").write_text(
        "import time\n"
        "def fail_on_one(member):\n"
        "    if member.rank == 1:\n"
        "        raise ArithmeticError('planted')\n"
        "    time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    work = importlib.import_module("planted").fail_on_one
    with pytest.raises(RunError, match=r"device 1 failed: .*ArithmeticError: planted"):
        launch.run(work, {}, 2, lambda report: None, timeout=30, names=lambda rank: f"device {rank}")
    assert multiprocessing.active_children() == []


def test_data_that_is_too_short_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("a short text")
    config = TrainConfig(
        model=small(1).model, run=RunConfig(steps=1), data=DataConfig(str(tmp_path / "short.txt"))
    )
    with pytest.raises(Refused, match=r"12 tokens; a sequence of 64 needs 65"):
        start(Design("1f1b", 2, 2, 1, sequence=64), config, lambda report: None)
