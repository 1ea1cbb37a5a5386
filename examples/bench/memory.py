"""Memory of a training step on four processes: seq1f1b with 4 subsequences against PyTorch's Schedule1F1B, and leaks.

Each engine runs in processes of its own, since what a process once had resident it seldom gives back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from contraflow.designer.design import Design, make
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Schedule
from contraflow.engine import launch
from contraflow.engine.batch import Batch
from contraflow.engine.member import Member
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.topology import Place
from engine import OurEngine, PyTorchEngine, random_batch

DEVICES, MICROBATCHES, SUBSEQUENCES, TOKENS = 4, 8, 4, 1024
STEPS, SMALL = 200, ModelShape("llama", 4, 64, 4, 4, 172, 256)
MIB = 2**20


@dataclass(frozen=True)
class Memory:
    """Bytes of one process: resident at most, beyond what it had before the first step; kept for backward at most."""

    resident: int
    kept: int


def resident(what: str = "VmRSS") -> int:
    """Bytes, by Linux: VmRSS now, VmHWM at most."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


class Kept:
    """Bytes of the storages that autograd keeps for backward, each once, without the parameters; and the most of them.

    `beside` are tensors that an engine keeps for backward without autograd's knowledge.
    """

    def __init__(self, parameters: set[int], engine: OurEngine | PyTorchEngine) -> None:
        self._parameters, self._engine = parameters, engine
        self._uses: Counter[int] = Counter()
        self._total = self.most = 0

    def pack(self, tensor: Tensor) -> _Saved:
        """Called with all that is saved."""
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in self._parameters:
            if not self._uses[address]:
                self._total += storage.nbytes()
            self._uses[address] += 1
            self.most = max(self.most, self._total + self._engine.kept_beside())
        return _Saved(tensor, address, self)

    def release(self, address: int, size: int) -> None:
        """Called when it is freed."""
        if address not in self._parameters:
            self._uses[address] -= 1
            if not self._uses[address]:
                self._total -= size


class _Saved:
    def __init__(self, tensor: Tensor, address: int, kept: Kept) -> None:
        self.tensor, self._address, self._kept = tensor, address, kept
        self._size = tensor.untyped_storage().nbytes()

    def __del__(self) -> None:
        self._kept.release(self._address, self._size)


@contextmanager
def watched(engine: OurEngine | PyTorchEngine) -> Iterator[Kept]:
    """What is kept within."""
    kept = Kept({p.untyped_storage().data_ptr() for p in engine.parameters()}, engine)
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda saved: saved.tensor):
        yield kept


def measure(member: Member, *, schedule: Schedule | None) -> None:
    """Two steps, and one more under watch: reports a Memory for each rank. Without a schedule PyTorch's engine runs."""
    torch.set_num_threads(1)
    batch = random_batch(MICROBATCHES, TOKENS)
    engine: OurEngine | PyTorchEngine = (
        PyTorchEngine(member.rank, batch, DEVICES) if schedule is None else OurEngine(member, schedule, batch)
    )
    before = resident()
    for _ in range(2):
        engine.step()
    most = resident("VmHWM") - before
    with watched(engine) as kept:
        engine.step()
    found = [Memory(most, kept.most)] * DEVICES
    torch.distributed.all_gather_object(found, found[0])
    member.report(found)


def leak(member: Member, *, schedule: Schedule) -> None:
    """Rank 0's resident bytes after each of many steps."""
    torch.set_num_threads(1)
    pipeline = Pipeline(schedule, SMALL, Place.of(member, schedule.layout))
    batch = Batch.of(schedule.layout, torch.zeros(schedule.layout.num_microbatches, 65, dtype=torch.int64))
    for _ in range(STEPS):
        pipeline.step([batch])
        member.report(resident())


def main(console: Console) -> None:
    if not resident():
        console.print("memory: needs Linux's /proc\n")
        return
    table = Table(
        title=f"most memory in a step, {DEVICES} processes, {MICROBATCHES} x {TOKENS} tokens (MiB)",
        caption="kept: for backward; resident: beyond what was there before the first step",
        caption_justify="left",
        title_justify="left",
        box=None,
    )
    for column in ("", *(f"dev. {n}" for n in range(DEVICES)), "of the most"):
        table.add_column(column, justify="left" if not column else "right")
    ours = make(Design("seq1f1b", DEVICES, MICROBATCHES, SUBSEQUENCES, sequence=TOKENS))
    names = {"Schedule1F1B": None, f"seq1f1b k={SUBSEQUENCES}": ours}
    found: dict[str, list[Memory]] = {}
    for name, schedule in names.items():
        heard: list[list[Memory]] = []
        launch.run(measure, {"schedule": schedule}, DEVICES, heard.append)
        (found[name],) = heard
    for what in ("kept", "resident"):
        base = max(getattr(memory, what) for memory in found["Schedule1F1B"])
        for name, memories in found.items():
            sizes = [getattr(memory, what) for memory in memories]
            label = "kept" if what == "kept" else "resident"
            cells = [f"{size / MIB:.1f}" for size in sizes]
            table.add_row(f"{label}: {name}", *cells, f"{max(sizes) / base:.3f}")
    console.print(table, "")
    sizes: list[int] = []
    zero_bubble = make(Design("bsipipe-zb", 2, 2, 4, sequence=64))
    launch.run(leak, {"schedule": zero_bubble}, 2, sizes.append)
    early, late = median(sizes[20:40]), median(sizes[-20:])
    console.print(
        f"resident memory over {STEPS} steps of bsipipe-zb on 2 processes: {early / MIB:.1f} MiB around step 30, "
        f"{late / MIB:.1f} around step {STEPS - 10}: {(late - early) / MIB:+.2f} MiB\n"
    )
