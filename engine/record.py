"""A record of every action's begin and end and of every message's way, by the host's clock or by CUDA events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import perf_counter
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import torch

from contraflow.designer.format.schedule import Action
from contraflow.designer.format.trace import Span

Moment = Literal["sent", "left", "awaited", "taken"]
"""Of a message: see `format.trace.Delivery`."""


class Edge(NamedTuple):
    """A lane, seen from outside: from device to device, and the purpose of its messages (see TAGS in lanes.py)."""

    source: int
    target: int
    purpose: str


class Recorder(Protocol):
    """Told when an action begins and when it ends."""

    def begin(self, action: Action) -> None: ...
    def end(self, action: Action) -> None: ...


Clock = TypeVar("Clock")


class ClockRecorder(ABC, Generic[Clock]):
    """Records one device from its beginning, or from `start`, until `stop`. Nothing here waits for the device."""

    def __init__(self) -> None:
        self._recording = True
        self._actions: list[tuple[Action, Clock, Clock]] = []
        self._messages: list[tuple[Edge, Action, Moment, Clock]] = []
        self._begun: Clock | None = None

    def start(self) -> None:
        """Forget what was recorded, and record from now on."""
        self._actions, self._messages, self._recording = [], [], True

    def stop(self) -> None:
        """Record no more."""
        self._recording = False

    def begin(self, action: Action) -> None:
        if self._recording:
            self._begun = self._now()

    def end(self, action: Action) -> None:
        if self._recording and self._begun is not None:
            self._actions.append((action, self._begun, self._now()))

    def mark(self, edge: Edge, action: Action, moment: Moment) -> None:
        """A message of `action` has come so far on its way. Any thread may say so."""
        if self._recording:
            self._messages.append((edge, action, moment, self._now()))

    def pop(self, device: int, origin: float) -> list[Span]:
        """The actions since the last call, in seconds since `origin` on time.perf_counter."""
        actions, self._actions = self._actions, []
        return [
            Span(device, action, self._seconds(begun) - origin, self._seconds(ended) - origin)
            for action, begun, ended in actions
        ]

    def pop_messages(self, origin: float) -> dict[tuple[Edge, Action], dict[Moment, float]]:
        """What is known of messages since the last call, likewise; of one that came by twice, the last time."""
        messages, self._messages = self._messages, []
        found: dict[tuple[Edge, Action], dict[Moment, float]] = {}
        for edge, action, moment, when in messages:
            found.setdefault((edge, action), {})[moment] = self._seconds(when) - origin
        return found

    @abstractmethod
    def _now(self) -> Clock: ...

    @abstractmethod
    def _seconds(self, when: Clock) -> float:
        """On time.perf_counter."""


class HostRecorder(ClockRecorder[float]):
    """Wall-clock times; right where an action's work is done when it returns, as on CPUs."""

    def _now(self) -> float:
        return perf_counter()

    def _seconds(self, when: float) -> float:
        return when


class CudaRecorder(ClockRecorder[torch.cuda.Event]):
    """Times on the compute stream of the current CUDA device; starting and reading wait for it, recording does not."""

    def __init__(self) -> None:
        super().__init__()
        self.start()

    def start(self) -> None:
        super().start()
        # Events know only how far they lie apart, the more exactly the nearer they are.
        self._zero = self._now()
        torch.cuda.synchronize()
        self._zero_at = perf_counter()

    def _now(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _seconds(self, when: torch.cuda.Event) -> float:
        when.synchronize()
        return self._zero_at + float(self._zero.elapsed_time(when)) / 1000


def recorder_for(device_type: str) -> HostRecorder | CudaRecorder:
    """The recorder whose times are right for actions on this type of device."""
    return CudaRecorder() if device_type == "cuda" else HostRecorder()
