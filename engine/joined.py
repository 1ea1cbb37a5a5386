"""A process that something else has started, such as torchrun, and its watch over the others.

There is no parent that sees all. So everyone gives signs of life in the store in which they met, and watches those of
the others. Who fails first writes down why; the first to write counts, and everyone ends with that, even one whose
main thread waits for a message that will never come.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from contraflow.engine.children import BEAT, GRACE, MISSED
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
from contraflow.engine.torchrun import Seat, address

_CAUSE = "cause"


def join(
    here: Seat,
    work: Work,
    arguments: Mapping[str, Any],
    on_report: Callable[[Any], None],
    timeout: float,
    device_type: str,
    names: Callable[[int], str],
    give_up: Callable[[Exception], NoReturn],
) -> None:
    """Do this process's part. Raises RunError or Refused; calls `give_up` with it where the main thread is stuck."""
    device, backend = torch_device(device_type, here.local_rank), backend_for(device_type)
    # Only rank 0's reports are heard.
    report = on_report if here.rank == 0 else lambda _: None
    member = Member(here.rank, here.world_size, device, backend, report)
    watch = Watch(here, names, timeout, member, give_up)
    try:
        watch.gather()
        limit = timedelta(seconds=timeout)
        store = PrefixStore("group", watch.store())
        dist.init_process_group(
            backend, store=store, rank=here.rank, world_size=here.world_size, timeout=limit
        )
        work(member, **arguments)
        dist.destroy_process_group()
    except Exception as error:
        if isinstance(error, RunError):
            raise
        said = ending(error, member)
        raise watch.conclusion(said) from error
    watch.leave()


class Watch:
    """One process's eye on the others: a thread that beats, and looks who still does."""

    def __init__(
        self,
        here: Seat,
        names: Callable[[int], str],
        timeout: float,
        member: Member,
        give_up: Callable[[Exception], NoReturn],
    ) -> None:
        self._here, self._names, self._timeout = here, names, timeout
        self._member, self._give_up = member, give_up
        self._others = [rank for rank in range(here.world_size) if rank != here.rank]
        self._counts = dict.fromkeys(self._others, "")
        self._heard = dict.fromkeys(self._others, time.monotonic())
        self._ended = threading.Event()
        self._first: Store | None = None

    def store(self) -> Store:
        """A connection of one's own to the store: one that waits for an answer holds up whoever shares it."""
        host, port, hosted = address()
        # Rank 0 keeps the store, unless torchrun's agent does.
        keeps = self._here.rank == 0 and not hosted and self._first is None
        connection = TCPStore(
            host, port, is_master=keeps, timeout=timedelta(seconds=self._timeout), wait_for_workers=False
        )
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"contraflow/{attempt}", connection)

    def gather(self) -> None:
        """Wait for all to be there, then watch. Raises RunError that names who did not come."""
        host, port, _ = address()
        try:
            store = self.store()
        except (dist.DistError, RuntimeError):
            raise RunError(
                f"nothing answers at {host}:{port}: {self._names(0)}, or torchrun itself, did not start"
            ) from None
        self._first = store
        store.set(f"here/{self._here.rank}", "")
        until = time.monotonic() + self._timeout
        missing = list(self._others)
        while missing := [rank for rank in missing if not store.check([f"here/{rank}"])]:
            if time.monotonic() > until:
                some = ", ".join(self._names(rank) for rank in missing)
                raise RunError(f"did not start within {self._timeout:.0f} s: {some}")
            time.sleep(0.05)
        self._heard = dict.fromkeys(self._others, time.monotonic())
        threading.Thread(target=self._live, args=(self.store(),), daemon=True).start()

    def leave(self) -> None:
        """All went well: say so, and if others depend on this process, wait for them to say the same."""
        assert self._first is not None
        self._ended.set()
        with suppress(dist.DistError, RuntimeError):
            self._first.set(f"done/{self._here.rank}", "")
            until = time.monotonic() + self._timeout
            while self._here.rank == 0 and time.monotonic() < until:
                if all(self._first.check([f"done/{rank}"]) for rank in self._others):
                    return
                time.sleep(0.05)

    def conclusion(self, said: Ending) -> Exception:
        """What everyone ends with, given how this process did: what was written down first, or by this one."""
        self._ended.set()
        if said.kind == "lost":
            cause = self._found_cause()
        else:
            cause = self._write(f"{said.kind}:{self._names(self._here.rank)} failed: {said.message}")
        kind, _, text = cause.partition(":")
        if kind == "refused":
            # A refusal speaks for itself.
            return Refused(text.partition(" failed: ")[2] or text)
        if said.kind == "lost" and said.message not in text:
            text += f"\n  meanwhile {said.message}"
        return RunError(text)

    def _found_cause(self) -> str:
        """Why a peer is gone: its own words, or that it has none any more; else nobody's fault but the network's."""
        until = time.monotonic() + GRACE + MISSED * BEAT
        while time.monotonic() < until:
            try:
                assert self._first is not None
                if self._first.check([_CAUSE]):
                    return str(self._first.get(_CAUSE).decode())
                self._look(self._first)
            except (dist.DistError, RuntimeError):
                return self._lost_store()
            silent = self._silent(MISSED * BEAT)
            if silent:
                return self._write(silent)
            time.sleep(BEAT / 4)
        return self._write(f"failed:{self._names(self._here.rank)} failed: {self._member.status()}")

    def _write(self, cause: str) -> str:
        """Write the cause down, unless there is one; returns the one that counts."""
        try:
            assert self._first is not None
            return str(self._first.compare_set(_CAUSE, "", cause).decode())
        except (dist.DistError, RuntimeError):
            return cause

    def _lost_store(self) -> str:
        return f"failed:{self._names(0)}, or torchrun's agent, which keeps the store of all, is gone"

    def _live(self, store: Store) -> None:
        """The thread: beat, look, and when it is over with another, end this process if it does not end itself."""
        number, looked = 0, time.monotonic()
        while not self._ended.wait(BEAT):
            number += 1
            now = time.monotonic()
            if now - looked > MISSED * BEAT:  # this process itself was stopped
                self._heard = dict.fromkeys(self._others, now)
            looked = now
            try:
                store.set(f"beat/{self._here.rank}", str(number))
                self._look(store)
                cause = str(store.get(_CAUSE).decode()) if store.check([_CAUSE]) else ""
                silent = self._silent(self._timeout)
                if silent and not cause:
                    cause = str(store.compare_set(_CAUSE, "", silent).decode())
            except (dist.DistError, RuntimeError):
                cause = self._lost_store()
            if cause and not self._ended.wait(GRACE):
                kind, _, text = cause.partition(":")
                doing = f"{text}\n  meanwhile {self._member.status()}"
                self._give_up(Refused(text) if kind == "refused" else RunError(doing))

    def _look(self, store: Store) -> None:
        for rank in self._others:
            key = f"beat/{rank}"
            count = str(store.get(key).decode()) if store.check([key]) else ""
            if count != self._counts[rank] or store.check([f"done/{rank}"]):
                self._counts[rank], self._heard[rank] = count, time.monotonic()

    def _silent(self, limit: float) -> str:
        """The cause that a process is which gave no sign of life for `limit` seconds; "" where there is none."""
        now = time.monotonic()
        rank = min(self._heard, key=lambda other: self._heard[other], default=None)
        if rank is None or now - self._heard[rank] <= limit:
            return ""
        seconds = now - self._heard[rank]
        quiet = f"{self._names(rank)} gives no sign of life for {seconds:.0f} s"
        return f"failed:{quiet}: it was killed or stopped, or it hangs"
