"""What commands share that let the engine run in several processes: its own, or those that torchrun has started."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from .exit import Complaint, Exit, complaint
from .output import narrate

if TYPE_CHECKING:
    from contraflow.designer.format.schedule import Layout
    from contraflow.engine.member import Work
    from contraflow.engine.torchrun import Seat

PATIENCE = 10.0
"""Seconds that the other ranks leave rank 0 to speak: torchrun ends all as soon as one has ended."""


def seat() -> Seat | None:
    """This process's under torchrun."""
    from contraflow.engine import torchrun

    return torchrun.seat()


@contextmanager
def told_to_end() -> Iterator[None]:
    """Within, a SIGTERM unwinds as an exception would, so that processes and their files go too.

    Not under torchrun, which ends its processes itself: one that waits for a message would not hear it.
    """
    if seat() is not None:
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def said_once() -> Iterator[None]:
    """Of what all ranks under torchrun find alike only rank 0 complains; how a run failed each knows for itself."""
    try:
        yield
    except Exception as error:
        said, here = complaint(error), seat()
        if said is None or said.code is Exit.FAILED or here is None or here.rank == 0:
            raise
        time.sleep(PATIENCE)
        raise SystemExit(said.code) from None


def check_world(layout: Layout) -> None:
    """Raises Complaint where torchrun has started another number of processes than the schedule has devices."""
    here = seat()
    if here is not None and here.world_size != layout.num_devices:
        raise Complaint(
            f"torchrun started {here.world_size} processes; the schedule has {layout.num_devices} devices"
        )


def device_type(wanted: str, layout: Layout) -> str:
    """cpu or cuda for `wanted`, which may be auto: cuda where every device of this machine's part gets a GPU.

    Raises Complaint where cuda is wanted and there are too few.
    """
    if wanted == "cpu":
        return "cpu"
    import torch

    here = seat()
    needed = layout.num_devices if here is None else here.local_world_size
    found = torch.cuda.device_count()
    if found >= needed:
        return "cuda"
    if wanted == "cuda":
        raise Complaint(f"cuda needs a GPU for each of {needed} devices; here are {found}", Exit.MISSING)
    return "cpu"


def start(
    command: str,
    work: Work,
    arguments: Mapping[str, Any],
    layout: Layout,
    hear: Callable[[Any], None],
    *,
    timeout: float,
    device_type: str = "cpu",
) -> None:
    """Do the engine's `work` in a process for each device of a layout; see `engine.launch.run`.

    Raises RunError or Refused.
    """
    from contraflow.engine import launch

    with told_to_end():
        launch.run(
            work,
            arguments,
            layout.num_devices,
            hear,
            timeout=timeout,
            device_type=device_type,
            names=names(layout),
            give_up=partial(_give_up, command),
        )


def _give_up(command: str, error: Exception) -> NoReturn:
    """End as the command would, were its main thread free to."""
    said = complaint(error) or Complaint(str(error), Exit.FAILED)
    narrate(f"contraflow {command}: {said}")
    sys.stdout.flush()
    os._exit(said.code)


def names(layout: Layout) -> Callable[[int], str]:
    """What people call the process of a rank."""
    from contraflow.engine.topology import device_of

    def name(rank: int) -> str:
        device = device_of(layout, rank)
        return f"device {device}" if device == rank else f"device {device} (rank {rank})"

    return name
