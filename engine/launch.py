"""Processes that train together: started here on one machine, or already started by torchrun."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from contraflow.engine.children import Children
from contraflow.engine.joined import join
from contraflow.engine.member import Work
from contraflow.engine.torchrun import seat


def end_at_once(error: Exception) -> NoReturn:
    """Say why, and end the process."""
    print(error, file=sys.stderr, flush=True)
    os._exit(1)


def run(
    work: Work,
    arguments: Mapping[str, Any],
    num_processes: int,
    on_report: Callable[[Any], None],
    *,
    timeout: float = 300.0,
    device_type: str = "cpu",
    names: Callable[[int], str] = lambda rank: f"rank {rank}",
    give_up: Callable[[Exception], NoReturn] = end_at_once,
) -> None:
    """Run `work` in `num_processes` processes to the end; `on_report` gets what rank 0 reports.

    `timeout`: seconds that a process waits for a message, or goes without a sign of life, before it is given up.
    `names` tells people about a rank. `give_up` ends this process, one of torchrun's, where it has to end and its main
    thread waits for what will never come. Raises RunError, or Refused where a process refused to begin.
    """
    here = seat()
    if here is not None:
        join(here, work, arguments, on_report, timeout, device_type, names, give_up)
    else:
        Children(work, arguments, num_processes, on_report, timeout, device_type, names).watch()
