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
from contraflow.designer.export.perfetto import picture
from contraflow.designer.format import file
from contraflow.designer.format.graph import NONE
from contraflow.designer.format.lowering import lower
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.profile import Profile
from contraflow.designer.format.trace import Trace, dumps, loads
from contraflow.engine import launch
from contraflow.engine.config import DataConfig, RunConfig, TrainConfig
from contraflow.engine.member import Refused, RunError
from contraflow.engine.train import StepReport, train

pytestmark = pytest.mark.processes


def small(steps: int, **run: Any) -> TrainConfig:
    return TrainConfig(
        model=ModelShape("llama", 4, 32, 4, 2, 48, 256), run=RunConfig(steps=steps, timeout=30, **run)
    )


def start(design: Design, config: TrainConfig, hear: Callable[[Any], None], **asked: bool) -> None:
    schedule = make(design)
    launch.run(
        train,
        {"text": file.dumps(schedule), "config": config, "profile": False, **asked},
        schedule.layout.num_devices,
        hear,
        timeout=config.run.timeout,
        names=lambda rank: f"device {rank}",
    )


def test_a_run_reports_its_profile_its_steps_and_the_trace_of_its_median_step() -> None:
    heard: list[Any] = []
    design = Design("bsipipe", 2, 2, 2, sequence=64)
    start(design, small(4), heard.append, profile=True, trace=True)
    steps = [report for report in heard if isinstance(report, StepReport)]
    assert [report.step for report in steps] == [1, 2, 3, 4]
    (profile,) = [report for report in heard if isinstance(report, Profile)]
    timed = {(entry.stage, entry.kind, entry.start, entry.stop) for entry in profile.actions}
    assert timed == {(s, kind, a, a + 32) for s in range(4) for kind in "FB" for a in (0, 32)}
    (trace,) = [report for report in heard if isinstance(report, Trace)]
    assert trace.step == sorted(steps[1:], key=lambda report: report.seconds)[1].step


def test_a_trace_has_every_action_once_and_every_message_sent_before_it_came() -> None:
    heard: list[Any] = []
    schedule = make(Design("bsipipe", 2, 2, 2, sequence=64))
    config = small(2, accumulate=2, label_messages=True)
    start(Design("bsipipe", 2, 2, 2, sequence=64), config, heard.append, trace=True)
    (trace,) = [report for report in heard if isinstance(report, Trace)]
    assert trace.schedule == schedule
    for device, program in enumerate(schedule.program):
        spans = [span for span in trace.measured.spans if span.device == device]
        assert [span.action for span in spans] == list(program)
        times = [time for span in spans for time in (span.begin, span.end)]
        assert times == sorted(times)
    assert min(span.begin for span in trace.measured.spans) == 0
    # Within one machine all clocks are the same, and what is measured must say so.
    assert trace.offsets[0] == (0, 0)
    assert abs(trace.offsets[1].seconds) <= trace.offsets[1].error
    sent = sorted(
        (lane.source, lane.target, lane.purpose, message.action)
        for lane in lower(schedule).lanes
        for message in lane.messages
    )
    came = [delivery for delivery in trace.measured.deliveries if not delivery.purpose.endswith("weights")]
    assert sorted(delivery[:4] for delivery in came) == sent
    assert {delivery.purpose for delivery in trace.measured.deliveries} == {
        "data",
        "mirror",
        "mirror weights",
    }
    begun = {span.action: span.begin for span in trace.measured.spans}
    ended = {span.action: span.end for span in trace.measured.spans}
    for delivery in trace.measured.deliveries:
        assert delivery.left is not None
        assert delivery.sent <= delivery.left
        assert delivery.awaited <= delivery.taken
        assert delivery.sent <= delivery.taken + 2 * trace.offsets[1].error
        if delivery.purpose == "data":
            assert ended[delivery.action] <= delivery.sent
    takes = {
        step.source: step.action
        for program in lower(schedule).programs
        for step in program
        if step.takes != NONE
    }
    for delivery in trace.measured.deliveries:
        if delivery.purpose == "data":
            assert delivery.taken <= begun[takes[delivery.action]]
    assert loads(dumps(trace, picture(trace))) == trace


def test_messages_that_are_mixed_up_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mixed.py").write_text(
        "import torch\n"
        "from contraflow.designer.format.lowering import Lane, Message\n"
        "from contraflow.designer.format.schedule import Action\n"
        "from contraflow.engine.lanes import ProcessIncoming, ProcessOutgoing\n"
        "def mix(member):\n"
        "    first, second = Action(0, 'F', 0, 0), Action(0, 'F', 0, 1)\n"
        "    lane = Lane(0, 1, 'data', (Message(first, 8), Message(second, 8)), 1)\n"
        "    if member.rank == 0:\n"
        "        outgoing = ProcessOutgoing(lane, 1, None, 1, labelled=True)\n"
        "        for action in (second, first):\n"
        "            outgoing.send(action, torch.zeros(8))\n"
        "        outgoing.flush()\n"
        "    else:\n"
        "        incoming = ProcessIncoming(lane, 0, None, 1, lambda message: torch.empty(8), 1, labelled=True)\n"
        "        incoming.begin()\n"
        "        incoming.take(first)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    work = importlib.import_module("mixed").mix
    with pytest.raises(RunError, match=r"data lane 0->1: 0F0\.1 came where 0F0\.0 belongs"):
        launch.run(work, {}, 2, lambda report: None, timeout=30, names=lambda rank: f"device {rank}")


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
