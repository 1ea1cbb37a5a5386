"""Lanes: one directed edge between two devices, whose messages cannot hang and cannot be mixed up.

A lane's two ends are an `Outgoing` and an `Incoming`. There are two kinds: queues inside one process that plays every
device, and process groups. Over process groups receives are posted in the sender's order, `credit` ahead of what was
taken; messages are taken in any order. A send never waits: its tensor is kept until it has left.

Where messages are labelled, at both ends alike, each follows a small one that says which action made it.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from contraflow.designer.format.lowering import Lane, Message
from contraflow.designer.format.schedule import Action, Kind
from contraflow.engine.record import Moment

# Messages of one directed pair of ranks are told apart by these tags; within one they keep the sender's order.
TAGS = {"data": 1, "mirror": 2, "tied": 3, "mirror weights": 4, "tied weights": 5}


KINDS: tuple[Kind, ...] = ("F", "B", "I", "W", "REDUCE_GRAD")
"""In labels, a kind is its place here."""

Mark = Callable[[Action, Moment], None]
"""Told how far the message of an action has come."""


def unmarked(action: Action, moment: Moment) -> None:
    """Nobody records the messages."""


class LaneError(RuntimeError):
    """A message that cannot be sent or does not come, most often because the peer is gone."""


class Outgoing(Protocol):
    """The sender's end."""

    def send(self, action: Action, tensor: Tensor) -> None:
        """Let go of what `action` made, without waiting; do not change the tensor afterwards."""

    def flush(self) -> None:
        """Wait until everything has left. Raises LaneError."""


class Incoming(Protocol):
    """The receiver's end."""

    arrived: float
    """On time.perf_counter of a CPU, when the message that was taken last came, or was found to have come."""

    def begin(self) -> None:
        """A pass over the program begins: its first receives may be posted."""

    def ready(self, action: Action) -> bool:
        """Whether to take now: False only where waiting could not help, for the sender runs in this very thread."""

    def expect(self, action: Action) -> None:
        """Post receives up to this message, beside what follows."""

    def take(self, action: Action) -> Tensor:
        """What `action` made, waited for if need be. It belongs to the caller. Raises LaneError."""


class QueueLane:
    """Both ends of a lane inside one process."""

    def __init__(self) -> None:
        self.arrived = 0.0
        self._waiting: dict[Action, Tensor] = {}

    def send(self, action: Action, tensor: Tensor) -> None:
        self._waiting[action] = tensor

    def flush(self) -> None:
        """Nothing waits in a queue."""

    def begin(self) -> None:
        """Nothing to post."""

    def ready(self, action: Action) -> bool:
        return action in self._waiting

    def expect(self, action: Action) -> None:
        """Nothing to post."""

    def take(self, action: Action) -> Tensor:
        self.arrived = perf_counter()
        return self._waiting.pop(action)


class ProcessOutgoing:
    """The sender's end over a process group. With `until_flush` nothing that was sent is let go of before."""

    def __init__(
        self,
        lane: Lane,
        peer: int,
        group: dist.ProcessGroup | None,
        tag: int,
        mark: Mark = unmarked,
        *,
        labelled: bool = False,
        until_flush: bool = False,
    ) -> None:
        self._lane, self._peer, self._group, self._tag = lane, peer, group, tag
        self._mark, self._labelled, self._until_flush = mark, labelled, until_flush
        self._leaving: deque[_Departure] = deque()
        self._queue: SimpleQueue[_Departure | None] | None = None
        self._idle = threading.Condition()
        self._num_leaving = 0
        self._failure: Exception | None = None

    def send(self, action: Action, tensor: Tensor) -> None:
        self._mark(action, "sent")
        if self._labelled:
            self._send(action, label(action, tensor.device), last=False)
        self._send(action, tensor.contiguous(), last=True)

    def _send(self, action: Action, tensor: Tensor, *, last: bool) -> None:
        try:
            work = dist.isend(tensor, self._peer, self._group, self._tag)
        except RuntimeError as error:
            raise LaneError(
                f"could not send {action} to device {self._lane.target}: {brief(error)}"
            ) from error
        assert work is not None
        departure = _Departure(work, tensor, action, last)
        if tensor.is_cuda or self._until_flush:
            self._leaving.append(departure)
            while self._leaving and self._leaving[0].work.is_completed():
                self._leaving.popleft()
        else:
            self._keep(departure)

    def _keep(self, departure: _Departure) -> None:
        # gloo's is_completed never turns true before somebody waits, so a thread does.
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=self._let_go, args=(self._queue,), daemon=True).start()
        with self._idle:
            self._num_leaving += 1
        self._queue.put(departure)

    def _let_go(self, queue: SimpleQueue[_Departure | None]) -> None:
        while (entry := queue.get()) is not None:
            try:
                entry.work.wait()
            except RuntimeError as error:
                self._failure = error
            if entry.last:
                self._mark(entry.action, "left")
            del entry
            with self._idle:
                self._num_leaving -= 1
                self._idle.notify_all()

    def flush(self) -> None:
        try:
            while self._leaving:
                self._leaving.popleft().work.wait()
        except RuntimeError as error:
            self._failure = error
        with self._idle:
            self._idle.wait_for(lambda: not self._num_leaving)
        if self._failure is not None:
            raise LaneError(f"device {self._lane.target} did not take what was sent: {brief(self._failure)}")

    def close(self) -> None:
        """End the thread that waits for sends."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None


class ProcessIncoming:
    """The receiver's end over a process group. `empty(message)` makes the tensor that a message arrives in."""

    def __init__(
        self,
        lane: Lane,
        peer: int,
        group: dist.ProcessGroup | None,
        tag: int,
        empty: Callable[[Message], Tensor],
        ahead: int,
        mark: Mark = unmarked,
        *,
        labelled: bool = False,
    ) -> None:
        self._lane, self._peer, self._group, self._tag = lane, peer, group, tag
        self._empty, self._ahead = empty, ahead
        self._mark, self._labelled = mark, labelled
        self.arrived = 0.0
        self._place = {message.action: place for place, message in enumerate(lane.messages)}
        self._posted: dict[Action, tuple[_Arrival | None, _Arrival]] = {}
        self._num_posted = self._num_taken = len(lane.messages)

    def begin(self) -> None:
        self._num_posted = self._num_taken = 0
        self._post(self._ahead)

    def ready(self, action: Action) -> bool:
        return True

    def expect(self, action: Action) -> None:
        self._post(self._place[action] + 1)

    def take(self, action: Action) -> Tensor:
        name, (work, tensor) = self._posted.pop(action)
        self._mark(action, "awaited")
        try:
            if name is not None:
                name.work.wait()
                self._check(name.tensor, action)
            work.wait()
        except RuntimeError as error:
            if isinstance(error, LaneError):
                raise
            raise LaneError(
                f"{action} did not come from device {self._lane.source}: {brief(error)}"
            ) from error
        self._mark(action, "taken")
        self.arrived = perf_counter()
        self._num_taken += 1
        self._post(self._num_taken + self._ahead)
        return tensor

    def _post(self, count: int) -> None:
        messages = self._lane.messages
        while self._num_posted < min(count, len(messages)):
            message = messages[self._num_posted]
            tensor = self._empty(message)
            name = self._ask(message, label(message.action, tensor.device)) if self._labelled else None
            self._posted[message.action] = (name, self._ask(message, tensor))
            self._num_posted += 1

    def _ask(self, message: Message, tensor: Tensor) -> _Arrival:
        try:
            work = dist.irecv(tensor, self._peer, self._group, self._tag)
        except RuntimeError as error:
            reason = f"could not ask device {self._lane.source} for {message.action}: {brief(error)}"
            raise LaneError(reason) from error
        assert work is not None
        return _Arrival(work, tensor)

    def _check(self, said: Tensor, action: Action) -> None:
        came = named(said)
        if came != action:
            raise LaneError(
                f"{self._lane}: {came} came where {action} belongs; messages were mixed up on their way"
            )


class _Departure(NamedTuple):
    """What a sender must keep until its send is done; a label is not the last part of its message."""

    work: dist.Work
    tensor: Tensor
    action: Action
    last: bool


class _Arrival(NamedTuple):
    """A receive that was posted, and where it puts what comes."""

    work: dist.Work
    tensor: Tensor


def label(action: Action, device: torch.device) -> Tensor:
    """The small message that names an action: int64 [4]."""
    stage, kind, microbatch, subsequence = action
    numbers = [stage, KINDS.index(kind), *(-1 if n is None else n for n in (microbatch, subsequence))]
    return torch.tensor(numbers, dtype=torch.int64, device=device)


def named(said: Tensor) -> Action:
    """The action that a label names."""
    stage, kind, microbatch, subsequence = said.tolist()
    return Action(
        stage, KINDS[kind], None if microbatch < 0 else microbatch, None if subsequence < 0 else subsequence
    )


def brief(error: BaseException) -> str:
    """An error's first line, without gloo's place in its own source and its guesses at causes."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^]]*gloo/[^]]*\] ", "", line).partition(". This is typically")[0][:200]


def process_groups(edges: Sequence[tuple[int, int, str]], backend: str) -> list[dist.ProcessGroup | None]:
    """A group for each (source rank, target rank, purpose), made by all ranks in the one order of `edges`.

    gloo keeps lanes apart by tag and needs none (None). NCCL matches messages by order alone, so each lane has a
    communicator, and with it a stream, of its own; each is warmed with one exchange, since communicators that are
    made lazily in different orders hang.
    """
    if backend != "nccl":
        return [None] * len(edges)
    groups: list[dist.ProcessGroup | None] = []
    rank = dist.get_rank()
    for source, target, _ in edges:
        group = dist.new_group([source, target], backend=backend)
        if rank in (source, target):
            token = torch.zeros(1, device="cuda")
            if rank == source:
                dist.send(token, target, group)
            else:
                dist.recv(token, source, group)
            torch.cuda.synchronize()
        groups.append(group)
    return groups
