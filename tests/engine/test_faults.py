"""What ends a run: whoever is at fault is named, all others end too, and nothing is left behind.

Each case is tried with processes of our own and, as torchrun would start them, by environment variables.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

NUM_PROCESSES = 3
HANG = 120.0
"""Seconds after which a test gives up; far beyond what any case takes on a busy machine."""

SCRIPT = """
import os, signal, sys
from contraflow.designer.design import Design, make
from contraflow.engine import launch
from contraflow.engine.config import OptimizerConfig
from contraflow.engine.batch import Batch
from contraflow.designer.format.model import ModelShape

def work(member, fault, victim, position, text):
    import time, torch
    from contraflow.designer.format.check import examine
    from contraflow.engine.pipeline import Pipeline
    from contraflow.engine.topology import Place
    schedule, _ = examine(text)
    torch.set_num_threads(1)
    shape = ModelShape(layers=3, hidden=16, heads=2, kv_heads=1, ffn=24)
    pipeline = Pipeline(schedule, shape, Place((member.rank,), member.torch_device, member.backend))
    executor = pipeline.executors[member.rank]
    member.status = lambda: str(executor.status)
    seen = 0
    def planted(handler):
        def handle(action, tensor):
            nonlocal seen
            seen += 1
            if member.rank == victim and seen == position:
                if fault == "raise":
                    raise ArithmeticError("planted")
                if fault == "slow":
                    time.sleep(5)
                else:
                    os.kill(os.getpid(), getattr(signal, fault))
            return handler(action, tensor)
        return handle
    executor._handlers = {kind: planted(handler) for kind, handler in executor._handlers.items()}
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(256, (1, 8), generator=generator) for _ in schedule.layout.splits]
    for step in range(1, 4):
        executor.status.step = step
        pipeline.step([Batch(ids, ids)])
    member.report("done")
    pipeline.close()

def give_up(error):
    print(error, flush=True)
    os._exit(4)

if __name__ == "__main__":
    import faulty
    from contraflow.designer.format.file import dumps
    from contraflow.engine.member import RunError
    fault, victim, position, timeout = sys.argv[1], *map(int, sys.argv[2:5])
    schedule = make(Design("seq1f1b", 3, 3, 2, sequence=8))
    arguments = {"fault": fault, "victim": victim, "position": position, "text": dumps(schedule)}
    try:
        names = lambda rank: f"device {rank}"
        launch.run(faulty.work, arguments, 3, print, timeout=timeout, names=names, give_up=give_up)
    except RunError as error:
        print(error)
        sys.exit(4)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "faulty.py").write_text(SCRIPT)
    return tmp_path / "faulty.py"


def under_torchrun(ranks: Sequence[int]) -> list[dict[str, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in ranks]


def ended(script: Path, environments: Sequence[dict[str, str]], *arguments: object) -> list[tuple[int, str]]:
    """Exit code and output of every process; the one that was stopped is let go last."""
    command = [sys.executable, str(script), *map(str, arguments)]
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(script.parent), *sys.path])} | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for extra in environments
    ]
    until = time.monotonic() + HANG
    stopped = arguments[0] == "SIGSTOP" and len(processes) > 1
    found = []
    for number, process in enumerate(processes):
        if stopped and number == arguments[1]:
            continue
        out, _ = process.communicate(timeout=until - time.monotonic())
        found.append((process.returncode, out))
    if stopped:
        victim = processes[int(str(arguments[1]))]
        victim.kill()
        victim.communicate()
    # Whatever a process started lives in its session. Python's own helpers end when they find it gone.
    sessions = ",".join(str(process.pid) for process in processes)
    while (left := subprocess.run(["pgrep", "-s", sessions], capture_output=True).stdout) and (
        time.monotonic() < until
    ):
        time.sleep(0.1)
    assert left == b""
    return found


OWN: Callable[[], list[dict[str, str]]] = lambda: [{}]  # noqa: E731
TORCHRUN: Callable[[], list[dict[str, str]]] = lambda: under_torchrun(range(3))  # noqa: E731


@pytest.mark.parametrize("start", [OWN, TORCHRUN], ids=["own processes", "torchrun"])
@pytest.mark.parametrize(
    ("fault", "victim", "position", "says"),
    [
        ("raise", 1, 5, "device 1 failed: device 1, in step 1, running 1"),
        ("SIGKILL", 2, 14, "device 2 "),
        ("SIGSTOP", 1, 20, "device 1 gives no sign of life"),
    ],
)
def test_the_culprit_is_named(
    script: Path, start: Callable[[], list[dict[str, str]]], fault: str, victim: int, position: int, says: str
) -> None:
    environments = start()
    for code, said in ended(script, environments, fault, victim, position, 6):
        if code == -signal.SIGKILL and fault == "SIGKILL" and len(environments) > 1:
            continue
        assert code == 4, said
        assert said.startswith(says)
        if fault == "raise":
            assert "ArithmeticError: planted" in said


@pytest.mark.parametrize("start", [OWN, TORCHRUN], ids=["own processes", "torchrun"])
def test_who_is_slow_is_waited_for(script: Path, start: Callable[[], list[dict[str, str]]]) -> None:
    found = ended(script, start(), "slow", 1, 9, 20)
    assert [code for code, _ in found] == [0] * len(found)
    assert sum(said.count("done") for _, said in found) == 1


def test_a_rank_that_never_starts(script: Path) -> None:
    for code, said in ended(script, under_torchrun([0, 1]), "slow", 1, 9, 6):
        assert code == 4, said
        assert said.startswith("did not start within 6 s: device 2")
