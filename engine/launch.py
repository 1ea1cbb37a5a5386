"""Processes that train together: started here on one machine, or already started by torchrun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from contraflow.engine.children import Children
from contraflow.engine.member import Member, Refused, RunError, Work, backend_for, ending, torch_device
from contraflow.engine.torchrun import Seat, seat


def run(
    work: Work,
    arguments: Mapping[str, Any],
    num_processes: int,
    on_report: Callable[[Any], None],
    *,
    timeout: float = 300.0,
    device_type: str = "cpu",
    names: Callable[[int], str] = lambda rank: f"rank {rank}",
) -> None:
    """Run `work` in `num_processes` processes to the end; `on_report` gets what rank 0 reports.

    `timeout`: seconds that a process waits for a message before it gives up. `names` tells people about a rank.
    Raises RunError, or Refused where a process refused to begin.
    """
    here = seat()
    if here is not None:
        _join(here, work, arguments, on_report, timeout, device_type)
    else:
        Children(work, arguments, num_processes, on_report, timeout, device_type, names).watch()


def _join(
    here: Seat,
    work: Work,
    arguments: Mapping[str, Any],
    on_report: Callable[[Any], None],
    timeout: float,
    device_type: str,
) -> None:
    device, backend = torch_device(device_type, here.local_rank), backend_for(device_type)
    # Only rank 0's reports are heard.
    member = Member(
        here.rank, here.world_size, device, backend, on_report if here.rank == 0 else lambda _: None
    )
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        work(member, **arguments)
        dist.destroy_process_group()
    except Exception as error:
        said = ending(error, member)
        raise (Refused if said.kind == "refused" else RunError)(said.message) from error
