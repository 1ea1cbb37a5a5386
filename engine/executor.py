"""One device's lowered program, played by a table of handlers. Nothing here knows a schedule by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from contraflow.designer.format.graph import NONE
from contraflow.designer.format.lowering import TIED, Lowered, Step
from contraflow.designer.format.schedule import Action
from contraflow.engine.batch import Batch
from contraflow.engine.flat import FlatParameters
from contraflow.engine.lanes import Incoming, Outgoing
from contraflow.engine.record import Recorder
from contraflow.engine.status import Status


class Playable(Protocol):
    """What the executor asks of a stage: see stage.py."""

    own: FlatParameters
    tied: FlatParameters | None

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
    ) -> Tensor: ...
    def backward(self, microbatch: int, index: int, grad: Tensor | None = None) -> Tensor | None: ...
    def backward_input(self, microbatch: int, index: int, grad: Tensor | None = None) -> Tensor | None: ...
    def backward_weight(self, microbatch: int, index: int) -> None: ...
    def assert_empty(self) -> None: ...


class Executor:
    """Plays device `device`: `stages` are those it holds, lanes are keyed by their number in `lowered`.

    Every tensor that a microbatch needs between two actions lives in a stage, on a lane, or in `_at_hand`: what an
    action made for the next stage on this same device.
    """

    def __init__(
        self,
        device: int,
        lowered: Lowered,
        stages: Mapping[int, Playable],
        incoming: Mapping[int, Incoming],
        outgoing: Mapping[int, Outgoing],
        recorder: Recorder,
    ) -> None:
        self.device, self.stages = device, stages
        self.status = Status(device)
        self._lowered, self._program = lowered, lowered.programs[device]
        self._layout = lowered.layout
        self._last_stage = lowered.layout.num_stages - 1
        self._incoming, self._outgoing, self._recorder = incoming, outgoing, recorder
        self._at_hand: dict[Action, Tensor] = {}
        self._losses: list[Tensor] = []
        self._batch = Batch((), ())
        self._num_targets = 0
        self._handlers: dict[str, Callable[[Action, Tensor | None], Tensor | None]] = {
            "F": self._forward,
            "B": self._backward,
            "I": self._backward_input,
            "W": self._backward_weight,
        }

    def play(self, batch: Batch, num_targets: int, *, reduce: bool) -> Iterator[None]:
        """One pass over the program. Yields where it must wait for a device that the same thread plays.

        `num_targets` are those of the whole step. With `reduce`, gradients are brought to their owners: posted where
        the program says so, beside what follows, and added up at the end. Raises LaneError.
        """
        self._batch, self._num_targets = batch, num_targets
        for lane in self._incoming.values():
            lane.begin()
        reductions: list[Step] = []
        for step in self._program:
            action, source, takes, sends = step
            if action.kind == "REDUCE_GRAD":
                if reduce:
                    self._post_reduction(step)
                    reductions.append(step)
                continue
            tensor = None
            if takes != NONE:
                assert source is not None
                lane = self._incoming[takes]
                self.status.now(f"waiting for {source} to run {action} ({self._lowered.lanes[takes]})")
                while not lane.ready(source):
                    yield
                tensor = lane.take(source)
            elif source is not None:
                tensor = self._at_hand.pop(source)
            self.status.now(f"running {action}")
            self._recorder.begin(action)
            made = self._handlers[action.kind](action, tensor)
            self._recorder.end(action)
            del tensor
            if sends != NONE:
                assert made is not None
                self._outgoing[sends].send(action, made)
            elif made is not None:
                self._at_hand[action] = made
            del made
        for step in reductions:
            if step.takes != NONE:
                lane = self._incoming[step.takes]
                self.status.now(
                    f"waiting for the gradients of {step.action} ({self._lowered.lanes[step.takes]})"
                )
                while not lane.ready(step.action):
                    yield
                self.parameters(step.action.stage).grad.add_(lane.take(step.action))
        self.status.now("waiting for its messages to leave")
        for outgoing in self._outgoing.values():
            outgoing.flush()
        for stage in self.stages.values():
            stage.assert_empty()
        self.status.now("between steps")

    def parameters(self, stage: int) -> FlatParameters:
        """What is reduced under the number of a stage: its own parameters, or under TIED the shared embedding."""
        if stage != TIED:
            return self.stages[stage].own
        tied = next(held.tied for held in self.stages.values() if held.tied is not None)
        assert tied is not None
        return tied

    def pop_loss(self) -> Tensor:
        """The sum of the losses since the last call: a float64 scalar, 0 where this device has no last stage."""
        losses, self._losses = self._losses, []
        return torch.stack(losses).double().sum() if losses else torch.zeros((), dtype=torch.float64)

    def _post_reduction(self, step: Step) -> None:
        if step.sends != NONE:
            self._outgoing[step.sends].send(step.action, self.parameters(step.action.stage).grad)
        else:
            self._incoming[step.takes].expect(step.action)

    def _forward(self, action: Action, x: Tensor | None) -> Tensor | None:
        stage, _, microbatch, subsequence = action
        assert microbatch is not None
        index = subsequence or 0
        splits: Sequence[int] = self._layout.splits[microbatch]
        start = sum(splits[:index])
        span = slice(start, start + splits[index])
        if x is None:
            x = self._batch.ids[microbatch][:, span]
        held = self.stages[stage]
        starts = self._batch.starts[microbatch][:, span] if self._batch.starts else None
        if stage != self._last_stage:
            return held.forward(microbatch, index, x, splits=splits, starts=starts)
        targets, num_targets = self._batch.targets[microbatch][:, span], self._num_targets
        loss = held.forward(
            microbatch, index, x, splits=splits, targets=targets, num_targets=num_targets, starts=starts
        )
        self._losses.append(loss.detach())
        return None

    def _backward(self, action: Action, grad: Tensor | None) -> Tensor | None:
        assert action.microbatch is not None
        return self.stages[action.stage].backward(action.microbatch, action.subsequence or 0, grad)

    def _backward_input(self, action: Action, grad: Tensor | None) -> Tensor | None:
        assert action.microbatch is not None
        return self.stages[action.stage].backward_input(action.microbatch, action.subsequence or 0, grad)

    def _backward_weight(self, action: Action, grad: Tensor | None) -> None:
        assert action.microbatch is not None
        self.stages[action.stage].backward_weight(action.microbatch, action.subsequence or 0)


def play_together(executors: Sequence[Executor], batch: Batch, num_targets: int, *, reduce: bool) -> None:
    """One pass by every executor of this process, each as far as it comes, in turn.

    Raises RuntimeError should all of them wait, which the proof in lowering.py rules out.
    """
    if len(executors) == 1:
        for _ in executors[0].play(batch, num_targets, reduce=reduce):
            raise RuntimeError(f"{executors[0].status}: nobody in this process can help")
        return
    playing = {executor.device: executor.play(batch, num_targets, reduce=reduce) for executor in executors}
    progress = {executor.device: "" for executor in executors}
    while playing:
        stuck = True
        for executor in executors:
            player = playing.get(executor.device)
            if player is None:
                continue
            if next(player, StopIteration) is StopIteration:
                del playing[executor.device]
                stuck = False
            elif executor.status.doing != progress[executor.device]:
                progress[executor.device] = executor.status.doing
                stuck = False
        if stuck:
            waiting = "; ".join(str(executor.status) for executor in executors if executor.device in playing)
            raise RuntimeError(f"no device can go on: {waiting}")
