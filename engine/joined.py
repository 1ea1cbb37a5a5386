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
from datetime import timedelta
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from contraflow.engine.children import BEAT, GRACE, MISSED, patience
from contraflow.engine.lanes import brief
from contraflow.engine.member import (
    Member,
    Refused,
    RunError,
    Work,
    backend_for,
    ending,
    torch_device,
)
from contraflow.engine.torchrun import Seat, address


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
        store, limit = PrefixStore("group", watch.connection()), timedelta(seconds=timeout)
        dist.init_process_group(
            backend, store=store, rank=here.rank, world_size=here.world_size, timeout=limit
        )
        work(member, **arguments)
        dist.destroy_process_group()
    except Exception as error:
        raise watch.conclusion(error) from error
    watch.leave()


class Watch:
    """One process's eye on the others.

    One thread speaks with the store, and nothing else does: an answer may never come. Another judges, from what the
    first has heard and when, and ends this process if it does not end itself.
    """

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
        self._present: set[int] = set()
        self._done: set[int] = set()
        self._beats = dict.fromkeys(self._others, "")
        self._heard = dict.fromkeys(self._others, time.monotonic())
        self._answered = time.monotonic()
        self._store_gone = self._said_done = False
        self._written, self._cause = "", ""
        """What this process has to write down; what was written down first, by anybody."""
        self._leaving, self._ended = threading.Event(), threading.Event()

    def connection(self, keeps: bool = False) -> Store:
        """A connection to the store of all; with `keeps` the store itself."""
        host, port, _ = address()
        limit = timedelta(seconds=self._timeout)
        store = TCPStore(host, port, is_master=keeps, timeout=limit, wait_for_workers=False)
        return PrefixStore(f"contraflow/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def gather(self) -> None:
        """Watch, and wait for all to be there. Raises RunError that names who did not come."""
        host, port, hosted = address()
        try:
            # Rank 0 keeps the store, unless torchrun's agent does.
            store = self.connection(keeps=self._here.rank == 0 and not hosted)
        except (dist.DistError, RuntimeError) as error:
            raise RunError(
                f"no store at {host}:{port}: {self._names(0)}, or torchrun itself, did not start there ({brief(error)})"
            ) from None
        for loop in (self._speak, self._judge):
            arguments = (store,) if loop == self._speak else ()
            threading.Thread(target=loop, args=arguments, daemon=True).start()
        until = time.monotonic() + self._timeout
        while self._present < set(self._others):
            if self._cause or self._store_gone:
                raise dist.DistError("others have given up")
            if time.monotonic() > until:
                some = ", ".join(self._names(rank) for rank in self._others if rank not in self._present)
                raise RunError(f"did not start within {self._timeout:.0f} s: {some}")
            time.sleep(BEAT / 20)

    def leave(self) -> None:
        """It is over: say so, and where the store is kept here, stay until all have read what they need."""
        self._leaving.set()
        _, _, hosted = address()
        until = time.monotonic() + (self._timeout if not self._cause else GRACE)
        keeps = self._here.rank == 0 and not hosted
        # A last word needs a moment to be said.
        least = time.monotonic() + BEAT / 2
        while not self._store_gone and time.monotonic() < until:
            if (
                self._said_done
                and (not keeps or self._done >= set(self._others))
                and time.monotonic() > least
            ):
                break
            time.sleep(BEAT / 20)
        self._ended.set()

    def conclusion(self, error: Exception) -> Exception:
        """What everyone ends with, given how this process did: what was written down first, or what it writes."""
        said = ending(error, self._member)
        if isinstance(error, RunError):
            self._written = f"failed:{error}"
        elif said.kind != "lost":
            self._written = f"{said.kind}:{self._names(self._here.rank)} failed: {said.message}"
        else:
            until = time.monotonic() + GRACE + MISSED * BEAT
            while not self._verdict(MISSED * BEAT) and time.monotonic() < until:
                time.sleep(BEAT / 10)
            self._written = self._verdict(MISSED * BEAT) or f"failed:{said.message}"
        until = time.monotonic() + GRACE
        while not self._cause and not self._store_gone and time.monotonic() < until:
            time.sleep(BEAT / 20)
        kind, _, text = (self._cause or self._written).partition(":")
        self.leave()
        if kind == "refused":
            # A refusal speaks for itself.
            return Refused(text.partition(" failed: ")[2] or text)
        if said.kind == "lost" and said.message not in text:
            text += f"\n  meanwhile {said.message}"
        return RunError(text)

    def _verdict(self, limit: float) -> str:
        """Why all must end, with a kind before it; "" where nothing is wrong that `limit` seconds of silence show."""
        if self._cause:
            return self._cause
        now = time.monotonic()
        if self._store_gone or now - self._answered > limit:
            state = "is gone" if self._store_gone else f"does not answer for {now - self._answered:.0f} s"
            return f"failed:{self._names(0)}, or torchrun's agent, which keeps the store of all, {state}"
        watched = [rank for rank in self._present if rank not in self._done]
        rank = min(watched, key=lambda other: self._heard[other], default=None)
        # Up to the last answer: nobody's signs come through a store that has stopped.
        silence = 0.0 if rank is None else self._answered - self._heard[rank]
        if rank is None or silence <= limit:
            return ""
        quiet = f"{self._names(rank)} gives no sign of life for {silence:.0f} s"
        return f"failed:{quiet}: it was killed or stopped, or it hangs"

    def _judge(self) -> None:
        """A thread: where all must end and this process does not by itself, end it."""
        looked = time.monotonic()
        while not self._ended.wait(BEAT):
            now = time.monotonic()
            if now - looked > MISSED * BEAT:  # this process itself was stopped
                self._answered, self._heard = now, dict.fromkeys(self._others, now)
            looked = now
            verdict = self._verdict(patience(self._timeout))
            if verdict and not self._leaving.is_set():
                self._written = self._written or verdict
                if not self._ended.wait(GRACE + MISSED * BEAT if self._store_gone else GRACE):
                    kind, _, text = (self._cause or verdict).partition(":")
                    doing = f"{text}\n  meanwhile {self._member.status()}"
                    self._give_up(Refused(text) if kind == "refused" else RunError(doing))

    def _speak(self, store: Store) -> None:
        """A thread: tell the store that this process lives, and ask it about the others."""
        number, told = 0, 0.0
        try:
            while not self._ended.is_set():
                if time.monotonic() - told >= BEAT:
                    number, told = number + 1, time.monotonic()
                    store.set(f"beat/{self._here.rank}", str(number))
                    self._listen(store)
                if self._written and not self._cause:
                    self._cause = str(store.compare_set("cause", "", self._written).decode())
                elif store.check(["cause"]):
                    self._cause = str(store.get("cause").decode())
                if self._leaving.is_set():
                    store.set(f"done/{self._here.rank}", "")
                    self._said_done = True
                    self._listen(store)
                if len(self._present) < len(self._others):
                    self._listen(store)
                self._answered = time.monotonic()
                time.sleep(BEAT / 10)
        except (dist.DistError, RuntimeError):
            self._store_gone = True

    def _listen(self, store: Store) -> None:
        for rank in self._others:
            key = f"beat/{rank}"
            if store.check([key]):
                beat = str(store.get(key).decode())
                if beat != self._beats[rank]:
                    self._beats[rank], self._heard[rank] = beat, time.monotonic()
                self._present.add(rank)
                if store.check([f"done/{rank}"]):
                    self._done.add(rank)
