"""Processes of one run on this machine, and the watch over them.

The first that fails ends all within seconds, and the report names it and what was waiting for it. A child gives a sign
of life every second, from a thread of its own, so that one that was stopped is told from one that works or waits.
A child whose parent is gone ends itself, so nothing is ever left behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
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

from contraflow.engine.member import (
    Ending,
    Member,
    Refused,
    RunError,
    Work,
    backend_for,
    ending,
    torch_device,
)

GRACE = 2.0
"""Seconds that processes get to say what they were doing once one of them has failed."""
BEAT = 1.0
"""Seconds from one sign of life to the next."""
MISSED = 4
"""Signs that may stay away where the machine is busy."""


@dataclass(slots=True)
class _Child:
    process: BaseProcess
    pipe: Connection
    ending: Ending | None = None
    last_words: str = ""
    heard: float = field(default_factory=time.monotonic)
    """When it last gave a sign of life."""


class Children:
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
        self._on_report, self._names, self._timeout = on_report, names, timeout
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
                    target=_live,
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

    def watch(self) -> None:
        """To the end of all, or of the first that fails. Raises RunError or Refused."""
        looked = time.monotonic()
        try:
            while any(child.ending is None for child in self._children):
                self._listen(BEAT)
                now = time.monotonic()
                # Who slept itself, stopped with all of its terminal, has missed what the others said.
                if now - looked > MISSED * BEAT:
                    for child in self._children:
                        child.heard += now - looked
                looked = now
                if any(self._failed(child) for child in self._children):
                    raise self._failure()
            for child in self._children:
                child.process.join()
        finally:
            self._end_all()

    def _failed(self, child: _Child) -> bool:
        if child.ending is not None:
            return child.ending.kind != "done"
        return not child.process.is_alive() or _silence(child) > patience(self._timeout)

    def _listen(self, timeout: float | None) -> None:
        """Hear every child that has something to say, or has ended."""
        speaking: dict[Any, _Child] = {}
        for child in self._children:
            if child.ending is None:
                speaking[child.pipe] = speaking[child.process.sentinel] = child
        for ready in wait(list(speaking), timeout):
            child = speaking[ready]
            try:
                while child.pipe.poll():
                    self._hear(child, *child.pipe.recv())
            except (EOFError, OSError):
                child.process.join(0.2)

    def _hear(self, child: _Child, kind: str, content: Any) -> None:
        child.heard = time.monotonic()
        if kind == "beat":
            return
        if kind == "report":
            self._on_report(content)
        elif kind == "last words":
            child.last_words = content
        else:
            child.ending = content

    def _failure(self) -> Exception:
        for child in self._children:
            if child.ending is None:
                with suppress(OSError):
                    child.pipe.send("what are you doing")
        until = time.monotonic() + GRACE
        while time.monotonic() < until and any(
            child.ending is None and not child.last_words and child.process.is_alive()
            for child in self._children
        ):
            self._listen(0.05)
        time.sleep(0.05)
        self._listen(0)
        culprit, reason = self._culprit()
        found = self._children[culprit].ending
        if found is not None and found.kind == "refused":
            return Refused(found.message)
        lines = [f"{self._names(culprit)} {reason}"]
        for rank, child in enumerate(self._children):
            lost = child.ending is not None and child.ending.kind == "lost"
            words = child.ending.message if lost and child.ending else child.last_words
            if rank != culprit and words:
                lines.append(f"  meanwhile {words}")
        return RunError("\n".join(lines))

    def _culprit(self) -> tuple[int, str]:
        """The first cause: who died, else who failed by itself, else who is silent, else who lost a peer."""
        for rank, child in enumerate(self._children):
            code = child.process.exitcode
            if child.ending is None and code is not None:
                if code < 0:
                    return rank, f"was killed by {_signal_name(-code)}"
                return rank, f"ended by itself with exit code {code}"
        for kind in ("refused", "failed"):
            for rank, child in enumerate(self._children):
                if child.ending is not None and child.ending.kind == kind:
                    return rank, f"failed: {child.ending.message}"
        quiet = {rank: _silence(child) for rank, child in enumerate(self._children) if child.ending is None}
        silent = max(quiet, key=lambda rank: quiet[rank], default=0)
        if quiet.get(silent, 0.0) > MISSED * BEAT:
            return silent, f"gives no sign of life for {quiet[silent]:.0f} s: it was stopped, or it hangs"
        for rank, child in enumerate(self._children):
            if child.ending is not None and child.ending.kind == "lost":
                return rank, f"failed: {child.ending.message}"
        return 0, "failed without a word"

    def _end_all(self) -> None:
        for child in self._children:
            if child.process.is_alive():
                child.process.kill()
        for child in self._children:
            child.process.join()
            child.pipe.close()


def patience(timeout: float) -> float:
    """Seconds of silence that are too many, so that within the time-out all has been said and has ended."""
    return max(MISSED * BEAT, timeout - GRACE - 2 * BEAT)


def _silence(child: _Child) -> float:
    """Seconds since a child's last sign of life."""
    return time.monotonic() - child.heard


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


def _live(
    pipe: Connection,
    work: Work,
    arguments: dict[str, Any],
    rank: int,
    world_size: int,
    port: int,
    timeout: float,
    device_type: str,
) -> None:
    """A child's life."""
    # Ctrl-C reaches the whole terminal group; the parent decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    speaking = threading.Lock()

    def say(kind: str, content: Any) -> None:
        with speaking:
            pipe.send((kind, content))

    def report(content: Any) -> None:
        if rank == 0:
            say("report", content)

    member = Member(rank, world_size, torch.device("cpu"), backend_for(device_type), report)
    threading.Thread(target=_answer, args=(pipe, member, say), daemon=True).start()
    threading.Thread(target=_beat, args=(say,), daemon=True).start()
    try:
        if device_type == "cpu":
            if sys.platform == "linux":
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
        member.torch_device = torch_device(device_type, rank)
        limit = timedelta(seconds=timeout)
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=limit)
        dist.init_process_group(member.backend, store=store, rank=rank, world_size=world_size, timeout=limit)
        work(member, **arguments)
        dist.destroy_process_group()
        say("ending", Ending("done"))
    except BaseException as error:
        say("ending", ending(error, member))
    # Interpreter shutdown would wait for groups whose peers are gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _beat(say: Callable[[str, Any], None]) -> None:
    while True:
        with suppress(OSError):  # without a parent `_answer` ends the process
            say("beat", None)
        time.sleep(BEAT)


def _answer(pipe: Connection, member: Member, say: Callable[[str, Any], None]) -> None:
    try:
        pipe.recv()
        say("last words", member.status())
    except (EOFError, OSError):
        # The parent is gone, and with it whoever would end this process.
        os._exit(1)
