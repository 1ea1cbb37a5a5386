"""Stand-ins for compute: stages whose actions take as long as they are told, and lanes that are timed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from time import perf_counter, sleep

import torch
from torch import Tensor

from contraflow.designer.format.schedule import Action, Layout
from contraflow.engine.flat import FlatParameters
from contraflow.engine.lanes import Incoming, LaneError, Outgoing

AT_HAND = 100e-6
"""Seconds in which a message is taken that had come before it was asked for: that one was in time."""


class Clock:
    """The time of one device, on time.perf_counter, whose actions end at deadlines that are chained.

    An action begins when the one before it was to end, or when its message came if that is later. A message says how
    late it left, and that is taken off. So what sleeping takes too long adds up nowhere: the next sleep is shorter.
    """

    def __init__(self) -> None:
        self.free = self.last = 0.0
        """When the last action was to end; when it really did, or later a message came."""
        self._came = 0.0

    def start(self, at: float) -> None:
        """A pass over the program begins, at a time that may be to come."""
        self.free = self.last = self._came = at

    def came(self, at: float, late: float) -> None:
        """A message came that was waited for; it left so many seconds later than it was due."""
        self._came, self.last = at - late, at

    def spend(self, seconds: float) -> None:
        """One action."""
        self.free = max(self.free, self._came) + seconds
        sleep_until(self.free)
        self.last = perf_counter()


def sleep_until(time: float) -> None:
    """Wait, without work for the CPU, until it is `time` on time.perf_counter: some 0.06 ms longer."""
    while (left := time - perf_counter()) > 0:
        sleep(left)


class TimedOutgoing:
    """The sender's end of a lane whose messages say how late they leave: in their first float, in seconds.

    A message is due `delay` after its action was to end. A thread holds it back so long: the sender goes on, and
    messages follow one another as they were sent, so that a delay is of each and not of the lane.
    """

    def __init__(self, lane: Outgoing, clock: Clock, delay: float = 0.0) -> None:
        self._lane, self._clock, self._delay = lane, clock, delay
        self._held: SimpleQueue[tuple[float, Action, Tensor] | None] = SimpleQueue()
        self._idle = threading.Condition()
        self._num_held = 0
        self._failure: LaneError | None = None
        if delay:
            threading.Thread(target=self._let_go, daemon=True).start()

    def send(self, action: Action, tensor: Tensor) -> None:
        if not self._delay:
            self._send(self._clock.free, action, tensor)
            return
        with self._idle:
            self._num_held += 1
        self._held.put((self._clock.free + self._delay, action, tensor))

    def flush(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._num_held)
        if self._failure is not None:
            raise self._failure
        self._lane.flush()

    def close(self) -> None:
        """End the thread."""
        if self._delay:
            self._held.put(None)

    def _send(self, due: float, action: Action, tensor: Tensor) -> None:
        tensor.view(-1)[0] = max(perf_counter() - due, 0.0)
        self._lane.send(action, tensor)

    def _let_go(self) -> None:
        while (entry := self._held.get()) is not None:
            sleep_until(entry[0])
            try:
                self._send(*entry)
            except LaneError as error:
                self._failure = error
            with self._idle:
                self._num_held -= 1
                self._idle.notify_all()


class TimedIncoming:
    """The receiver's end of such a lane, which tells a clock when a message came that was waited for."""

    def __init__(self, lane: Incoming, clock: Clock, at_hand: float = AT_HAND) -> None:
        self._lane, self._clock, self._at_hand = lane, clock, at_hand
        self.arrived = 0.0

    def begin(self) -> None:
        self._lane.begin()

    def ready(self, action: Action) -> bool:
        return self._lane.ready(action)

    def expect(self, action: Action) -> None:
        self._lane.expect(action)

    def take(self, action: Action) -> Tensor:
        asked = perf_counter()
        tensor = self._lane.take(action)
        self.arrived = self._lane.arrived
        if self.arrived - asked > self._at_hand:
            self._clock.came(self.arrived, late=float(tensor.view(-1)[0]))
        return tensor


class StandIn:
    """Plays a stage without computing: `seconds[kind][slot]` are those of its actions.

    A message has `width` floats for each token, the gradients of the stage have those of `reduced` tokens.
    """

    def __init__(
        self,
        stage: int,
        layout: Layout,
        seconds: Mapping[str, Sequence[float]],
        width: int,
        reduced: int,
        clock: Clock,
    ) -> None:
        self._stage, self._layout, self._seconds, self._clock = stage, layout, seconds, clock
        self._width = width
        self.own = FlatParameters((), (), torch.empty(0), torch.zeros(reduced, width))
        self.tied: FlatParameters | None = None

    def forward(
        self,
        microbatch: int,
        index: int,
        x: Tensor,
        *,
        splits: Sequence[int],
        targets: Tensor | None = None,
        num_targets: int | None = None,
        starts: Tensor | None = None,
    ) -> Tensor:
        self._spend("F", microbatch, index)
        return torch.zeros(()) if targets is not None else torch.empty(splits[index], self._width)

    def backward(self, microbatch: int, index: int, grad: Tensor | None = None) -> Tensor | None:
        return self._backward("B", microbatch, index)

    def backward_input(self, microbatch: int, index: int, grad: Tensor | None = None) -> Tensor | None:
        return self._backward("I", microbatch, index)

    def backward_weight(self, microbatch: int, index: int) -> None:
        self._spend("W", microbatch, index)

    def assert_empty(self) -> None:
        """Nothing is kept."""

    def _backward(self, kind: str, microbatch: int, index: int) -> Tensor | None:
        self._spend(kind, microbatch, index)
        return torch.empty(self._layout.splits[microbatch][index], self._width) if self._stage else None

    def _spend(self, kind: str, microbatch: int, index: int) -> None:
        self._clock.spend(self._seconds[kind][self._layout.slot(self._stage, microbatch, index)])
