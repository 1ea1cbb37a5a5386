"""One process of those that train together: its place among them, and how it tells that it cannot go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist

from contraflow.engine.lanes import LaneError, brief


class RunError(RuntimeError):
    """A run that ended early; the message names the device that failed first, and what was waiting for it."""


class Refused(RuntimeError):
    """A run that was refused before it began: the configuration does not fit. The message says why."""


@dataclass(slots=True)
class Member:
    """One process among `world_size`. `report` hands an object to whoever started the run; rank 0's alone are heard."""

    rank: int
    world_size: int
    torch_device: torch.device
    backend: str
    report: Callable[[Any], None]
    status: Callable[[], str] = field(default=lambda: "has not begun")
    """What the process is doing, asked when another has failed; whoever builds something better replaces it."""


Work = Callable[..., None]
"""work(member, **arguments): a function of a module, so that a new process can find it."""


class Ending(NamedTuple):
    """How a process ended, in its own words. `lost`: because a peer was gone."""

    kind: Literal["done", "lost", "failed", "refused"]
    message: str = ""


def torch_device(device_type: str, local_rank: int) -> torch.device:
    """The device of this process, made current."""
    if device_type == "cuda":
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    return torch.device(device_type)


def backend_for(device_type: str) -> str:
    """The communication that fits a type of device."""
    return "nccl" if device_type == "cuda" else "gloo"


def ending(error: BaseException, member: Member) -> Ending:
    """What to say of an error in a process's work; the traceback of one that nobody foresaw goes to stderr."""
    if isinstance(error, Refused):
        return Ending("refused", str(error))
    if isinstance(error, FloatingPointError):
        return Ending("failed", str(error))
    first_line = brief(error)
    # Collectives report a lost peer as an error of the distributed package, or of gloo as a plain RuntimeError.
    of_gloo = isinstance(error, RuntimeError) and "gloo/transport" in str(error)
    if of_gloo or isinstance(error, (LaneError, dist.DistError)):
        return Ending("lost", f"{member.status()}: {first_line}")
    traceback.print_exception(error)
    return Ending("failed", f"{member.status()}: {type(error).__name__}: {first_line}")
