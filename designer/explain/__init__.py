"""Why a timeline is as long as it is: what every action waited for, the critical path, and idle time by its causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from contraflow.designer.format.graph import NONE
from contraflow.designer.simulate import Timeline

from . import lanes, waits
from .idle import CAUSES, Gap, Idle, by_device, gaps, gate
from .spans import Span, spans

__all__ = ["CAUSES", "Explanation", "Gap", "Idle", "Link", "Span", "Why", "explain"]

Why = Literal["order", "input", "queue", "reduction"]
"""`order`: the action before it on its device. `input`: what made its input, and the message's way. `queue`: its
message waited in its lane behind that of another action. `reduction`: gradients of another copy, or those ahead."""


class Link(NamedTuple):
    """What `node` waited for: it could not start, or its message not leave, before that of `waited_for` was done."""

    node: int
    waited_for: int
    why: Why


@dataclass(frozen=True)
class Explanation:
    """Of every node of the timeline's graph: what bound its start, and how much later it could be."""

    timeline: Timeline
    binding: Sequence[int]
    """Node that the start waited for last, of a REDUCE_GRAD its end; NONE where nothing was waited for."""
    sent: Sequence[lanes.Message | None]
    """What each compute sends to another device, if it does."""
    ahead: Sequence[int]
    """Node whose message was in front of this node's in their lane, and kept it waiting; else NONE."""
    floats: Sequence[float]
    """The delay that each node bears without a longer makespan."""
    critical: tuple[Link, ...]
    """A chain of waits from the makespan back to time zero: its last link's `waited_for` starts at zero.

    All its actions have a float of 0, but for those whose message or gradients then waited for others.
    """
    gaps: Mapping[int, Gap]
    """Why the device was idle right before a compute, where it was."""
    idle: tuple[Idle, ...]

    @cached_property
    def spans(self) -> tuple[tuple[Span, ...], ...]:
        """Every device's idle time on the clock, span by span, each with its cause."""
        return spans(self.timeline, self.gaps)

    def why(self, node: int) -> Why:
        """How `node` is bound to `binding[node]`."""
        graph, source = self.timeline.graph, self.binding[node]
        if graph.slot[node] == NONE and graph.slot[source] == NONE:
            return "reduction"
        # Where a device's own product is its next action's input, the order alone already binds it.
        return "order" if graph.device[source] == graph.device[node] else "input"

    def queued(self, node: int) -> float:
        """How long the message of a node waited in its lane behind that of `ahead[node]`."""
        message = self.sent[node]
        if message is None or self.ahead[node] == NONE:
            return 0.0
        left = self.timeline.arrival[node] - message.latency - message.transfer
        return max(left - self.timeline.end[node], 0.0)

    def chain(self, node: int) -> Iterator[Link]:
        """From `node` back to time zero, each link's `waited_for` being the `node` of the next."""
        while self.binding[node] != NONE:
            link = Link(node, self.binding[node], self.why(node))
            yield link
            node = link.waited_for
            if link.why == "input":
                while self.ahead[node] != NONE:
                    yield Link(node, self.ahead[node], "queue")
                    node = self.ahead[node]


def explain(timeline: Timeline, limit: float | None = None) -> Explanation:
    """Explain a timeline, in a few passes over its nodes.

    `limit` is the activation that a device may hold, in whole microbatches through its share: what the memory gate is
    held against. Without one it is what each device holds at most.
    """
    sent, reductions = lanes.messages(timeline), lanes.reductions(timeline)
    shut = gate(timeline.graph, limit)
    found = gaps(timeline, shut)
    explanation = Explanation(
        timeline,
        waits.bindings(timeline, reductions),
        sent,
        lanes.ahead(timeline, sent),
        waits.floats(timeline, sent, reductions),
        (),
        found,
        by_device(timeline, found, shut),
    )
    last = max(range(len(timeline.end)), key=lambda node: (timeline.end[node], -node), default=NONE)
    return replace(explanation, critical=() if last == NONE else tuple(explanation.chain(last)))
