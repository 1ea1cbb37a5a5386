"""What torchrun, or a launcher that speaks its language, tells a process that it starts. Loads no torch."""

from __future__ import annotations

import os
from typing import NamedTuple


class Seat(NamedTuple):
    """One process among those that train together; `local_*` count those on this machine."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


def seat() -> Seat | None:
    """This process's, or None where it was not started so."""
    rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and world_size.isdecimal()):
        return None
    local_rank = os.environ.get("LOCAL_RANK", rank)
    local_world_size = os.environ.get("LOCAL_WORLD_SIZE", world_size)
    return Seat(int(rank), int(world_size), int(local_rank), int(local_world_size))


def address() -> tuple[str, int, bool]:
    """Host and port of the store in which all meet, and whether torchrun's own agent keeps it.

    Raises ValueError where the launcher did not say.
    """
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        raise ValueError(
            "RANK and WORLD_SIZE are set, but not MASTER_ADDR and MASTER_PORT: where do the others meet?"
        )
    return host, int(port), os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
