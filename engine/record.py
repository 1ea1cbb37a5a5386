"""A record of every action's begin and end, by the host's clock or by CUDA events."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

import torch

from contraflow.designer.format.schedule import Action
from contraflow.designer.format.trace import Span


class Recorder(Protocol):
    """Told when an action begins and when it ends."""

    def begin(self, action: Action) -> None: ...
    def end(self, action: Action) -> None: ...


class HostRecorder:
    """Wall-clock times; right where an action's work is done when it returns, as on CPUs."""

    def __init__(self) -> None:
        self._times: list[tuple[Action, float, float]] = []
        self._begun = 0.0

    def begin(self, action: Action) -> None:
        self._begun = perf_counter()

    def end(self, action: Action) -> None:
        self._times.append((action, self._begun, perf_counter()))

    def pop(self, device: int, origin: float) -> list[Span]:
        """The spans since the last call, in seconds since `origin` on time.perf_counter."""
        times, self._times = self._times, []
        return [Span(device, action, begin - origin, end - origin) for action, begin, end in times]


class CudaRecorder:
    """Times on the compute stream of the current CUDA device; reading them waits for it."""

    def __init__(self) -> None:
        self._events: list[tuple[Action, torch.cuda.Event, torch.cuda.Event]] = []
        self._begun = self._event()
        self._zero, self._zero_at = self._event(), 0.0
        self._zero.record()
        torch.cuda.synchronize()
        self._zero_at = perf_counter()

    @staticmethod
    def _event() -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def begin(self, action: Action) -> None:
        self._begun = self._event()
        self._begun.record()

    def end(self, action: Action) -> None:
        ended = self._event()
        ended.record()
        self._events.append((action, self._begun, ended))

    def pop(self, device: int, origin: float) -> list[Span]:
        """The spans since the last call, in seconds since `origin` on time.perf_counter."""
        torch.cuda.synchronize()
        events, self._events = self._events, []
        offset = self._zero_at - origin

        def seconds(event: torch.cuda.Event) -> float:
            return offset + float(self._zero.elapsed_time(event)) / 1000

        return [Span(device, action, seconds(begun), seconds(ended)) for action, begun, ended in events]


def recorder_for(device_type: str) -> HostRecorder | CudaRecorder:
    """The recorder whose times are right for actions on this type of device."""
    return CudaRecorder() if device_type == "cuda" else HostRecorder()
