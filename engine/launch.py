"""Processes that train together: started here on one machine, or already started by torchrun.

Whoever starts them watches them. The first that fails ends all within seconds, and the report names it and what was
waiting for it. A child whose parent is gone ends itself, so nothing is ever left behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from contraflow.engine.lanes import LaneError
from contraflow.engine.torchrun import Seat, seat

GRACE = 2.0
"""Seconds that processes get to say what they were doing once one of them has failed."""


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
        _Launch(work, arguments, num_processes, on_report, timeout, device_type, names).run()


def _backend(device_type: str) -> str:
    return "nccl" if device_type == "cuda" else "gloo"


def _torch_device(device_type: str, local_rank: int) -> torch.device:
    if device_type == "cuda":
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    return torch.device(device_type)


def _join(
    here: Seat,
    work: Work,
    arguments: Mapping[str, Any],
    on_report: Callable[[Any], None],
    timeout: float,
    device_type: str,
) -> None:
    device = _torch_device(device_type, here.local_rank)
    backend = _backend(device_type)
    report = on_report if here.rank == 0 else _unheard
    member = Member(here.rank, here.world_size, device, backend, report)
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        work(member, **arguments)
        dist.destroy_process_group()
    except LaneError as error:
        raise RunError(f"{member.status()}: {error}") from error


def _unheard(report: Any) -> None:
    """Only rank 0's reports are heard."""


@dataclass(slots=True)
class _Child:
    process: BaseProcess
    pipe: Connection
    outcome: tuple[str, str] | None = None
    """("done" | "lost" | "failed" | "refused", message): how it ended in its own words. `lost`: a peer was gone."""
    last_words: str = ""


class _Launch:
    """Children of this process, one for each rank, and the watch over them."""

    def __init__(
        self,
        work: Work,
        arguments: Mapping[str, Any],
        num_processes: int,
        on_report: Callable[[Any], None],
        timeout: float,
        device_type: str,
        names: Callable[[int], str],
    ) -> None:
        self._on_report, self._names = on_report, names
        # The store lives here, so that no child's end can take it away from the others.
        self._store = TCPStore(
            "127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=timeout), wait_for_workers=False
        )
        # A server that has imported torch forks the children, so that a run starts in a moment.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([work.__module__, __name__])
        _start_server()
        self._children: list[_Child] = []
        try:
            for rank in range(num_processes):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_child,
                    args=(
                        theirs,
                        work,
                        dict(arguments),
                        rank,
                        num_processes,
                        self._store.port,
                        timeout,
                        device_type,
                    ),
                    daemon=True,
                )
                process.start()
                theirs.close()
                self._children.append(_Child(process, ours))
        except BaseException:
            self._end_all()
            raise

    def run(self) -> None:
        try:
            while any(child.outcome is None for child in self._children):
                self._listen(None)
                if any(self._failed(child) for child in self._children):
                    raise self._failure()
            for child in self._children:
                child.process.join()
        finally:
            self._end_all()

    def _failed(self, child: _Child) -> bool:
        return (child.outcome is not None and child.outcome[0] != "done") or (
            child.outcome is None and not child.process.is_alive()
        )

    def _listen(self, timeout: float | None) -> None:
        """Hear every child that has something to say, or has ended."""
        speaking: dict[Any, _Child] = {}
        for child in self._children:
            if child.outcome is None:
                speaking[child.pipe] = speaking[child.process.sentinel] = child
        for ready in wait(list(speaking), timeout):
            child = speaking[ready]
            try:
                while child.pipe.poll():
                    self._hear(child, *child.pipe.recv())
            except (EOFError, OSError):
                child.process.join(0.2)

    def _hear(self, child: _Child, kind: str, content: Any) -> None:
        if kind == "report":
            self._on_report(content)
        elif kind == "last words":
            child.last_words = content
        else:
            child.outcome = (kind, content)

    def _failure(self) -> Exception:
        for child in self._children:
            if child.outcome is None:
                with suppress(OSError):
                    child.pipe.send("what are you doing")
        until = time.monotonic() + GRACE
        while time.monotonic() < until and any(
            child.outcome is None and not child.last_words and child.process.is_alive()
            for child in self._children
        ):
            self._listen(0.05)
        time.sleep(0.05)
        self._listen(0)
        culprit, reason = self._culprit()
        if self._children[culprit].outcome is not None and self._children[culprit].outcome[0] == "refused":  # type: ignore[index]
            return Refused(reason)
        lines = [f"{self._names(culprit)} {reason}"]
        for rank, child in enumerate(self._children):
            words = child.last_words or (
                child.outcome[1] if child.outcome and child.outcome[0] == "lost" else ""
            )
            if rank != culprit and words:
                lines.append(f"  meanwhile {words}")
        return RunError("\n".join(lines))

    def _culprit(self) -> tuple[int, str]:
        """The first cause: a process that died, else one that failed by itself, else one that lost a peer."""
        for rank, child in enumerate(self._children):
            code = child.process.exitcode
            if child.outcome is None and code is not None:
                if code < 0:
                    return rank, f"was killed by {_signal_name(-code)}"
                return rank, f"ended by itself with exit code {code}"
        for kind in ("refused", "failed", "lost"):
            for rank, child in enumerate(self._children):
                if child.outcome is not None and child.outcome[0] == kind:
                    return rank, child.outcome[1] if kind == "refused" else f"failed: {child.outcome[1]}"
        return 0, "failed without a word"

    def _end_all(self) -> None:
        for child in self._children:
            if child.process.is_alive():
                child.process.kill()
        for child in self._children:
            child.process.join()
            child.pipe.close()


def _start_server() -> None:
    """Start the process that forks the children, deaf to a Ctrl-C that would meet it while it imports torch."""
    resource_tracker.ensure_running()  # which by itself would end the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _child(
    pipe: Connection,
    work: Work,
    arguments: dict[str, Any],
    rank: int,
    world_size: int,
    port: int,
    timeout: float,
    device_type: str,
) -> None:
    # Ctrl-C reaches the whole terminal group; the parent decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    speaking = threading.Lock()

    def say(kind: str, content: Any) -> None:
        with speaking:
            pipe.send((kind, content))

    member = Member(rank, world_size, torch.device("cpu"), _backend(device_type), _unheard)
    threading.Thread(target=_answer, args=(pipe, member, say), daemon=True).start()
    try:
        if device_type == "cpu":
            if sys.platform == "linux":
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
        member.torch_device = _torch_device(device_type, rank)
        if rank == 0:
            member.report = lambda content: say("report", content)
        limit = timedelta(seconds=timeout)
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
        dist.init_process_group(member.backend, store=store, rank=rank, world_size=world_size, timeout=limit)
        work(member, **arguments)
        dist.destroy_process_group()
        say("done", "")
    except Refused as error:
        say("refused", str(error))
    except LaneError as error:
        say("lost", f"{member.status()}: {error}")
    except FloatingPointError as error:
        say("failed", str(error))
    except RuntimeError as error:
        # Collectives report a lost peer as a plain RuntimeError of the distributed package.
        lost = isinstance(error, dist.DistError) or "connection closed" in str(error).lower()
        say("lost" if lost else "failed", f"{member.status()}: {_last_line(error)}")
        if not lost:
            traceback.print_exc()
    except BaseException as error:
        say("failed", f"{member.status()}: {type(error).__name__}: {_last_line(error)}")
        traceback.print_exc()
    # Interpreter shutdown would wait for groups whose peers are gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _answer(pipe: Connection, member: Member, say: Callable[[str, Any], None]) -> None:
    try:
        pipe.recv()
        say("last words", member.status())
    except (EOFError, OSError):
        # The parent is gone, and with it whoever would end this process.
        os._exit(1)
