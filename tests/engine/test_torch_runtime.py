"""What we export runs in PyTorch's own pipeline runtime, on two processes, with the gradients of one process."""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random

import pytest
import torch

from contraflow.designer.design import Design, make
from contraflow.designer.format.random_program import shuffled
from contraflow.designer.format.schedule import Direction, Layout, Schedule
from contraflow.designer.generators import GENERATORS
from contraflow.designer.interchange import InexpressibleError, torch_csv

from . import torch_runtime

pytestmark = pytest.mark.processes

ONE_COPY = [name for name, generator in GENERATORS.items() if generator.directions == 1]
CASES = [*ONE_COPY, "odd"]


def schedule(case: str) -> Schedule:
    """Two devices, two or four microbatches, and subsequences wherever the generator cuts."""
    if case == "odd":
        return odd()
    return make(Design(case, 2, 4, 2 if GENERATORS[case].cuts else None, sequence=8))


def odd() -> Schedule:
    """A placement that is neither a loop nor a V, exchanged ranks, B among I and W, reductions placed by hand."""
    direction = Direction("down", (0, 1, 1, 0, 0), (0, 1))
    layout = Layout(2, (8, 8), ((4, 4), (4, 4)), (direction,), ranks=(1, 0))
    for seed in count():
        drawn = shuffled(Schedule("odd", layout, ((), ())), Random(seed))
        kinds = {action.kind for program in drawn.program for action in program}
        try:
            torch_csv.dumps(drawn)
        except InexpressibleError:
            continue
        if kinds == {"F", "B", "I", "W", "REDUCE_GRAD"}:
            return drawn
    raise AssertionError


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which two processes have run every case: importing torch twice takes longest."""
    folder = tmp_path_factory.mktemp("runtime")
    for case in CASES:
        csv, meta = torch_csv.dumps(schedule(case))
        (folder / f"{case}.csv").write_text(csv)
        (folder / f"{case}.csv.meta.json").write_text(meta)
    ranks = [
        subprocess.Popen([sys.executable, torch_runtime.__file__, str(rank), "2", str(folder)])
        for rank in range(2)
    ]
    try:
        assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return folder


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_one_process(ran: Path, case: str) -> None:
    layout = schedule(case).layout
    stages = [torch_runtime.stage(number) for number in range(layout.num_stages)]
    value, target = torch_runtime.batch(layout.num_microbatches, layout.sequences[0])
    for stage in stages:
        value = stage(value)
    torch_runtime.loss(value, target).backward()
    found = torch.load(ran / f"{case}.0.pt") | torch.load(ran / f"{case}.1.pt")
    assert sorted(found) == list(range(layout.num_stages))
    for number, stage in enumerate(stages):
        for gradient, weight in zip(found[number], stage.parameters(), strict=True):
            torch.testing.assert_close(gradient, weight.grad, rtol=1e-12, atol=1e-12)
