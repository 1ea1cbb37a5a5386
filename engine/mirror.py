"""Copies of a stage: who owns its weights, and how the new ones return to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contraflow.designer.format.lowering import TIED, Lowered
from contraflow.engine.executor import Executor
from contraflow.engine.flat import FlatParameters
from contraflow.engine.topology import Lanes


def owned(lowered: Lowered, executor: Executor) -> list[FlatParameters]:
    """The parameters whose optimizer lives on the executor's device: each of the model on exactly one device."""
    groups = [
        stage.own for number, stage in executor.stages.items() if lowered.owners[number] == executor.device
    ]
    if lowered.tied_copies and lowered.tied_copies[0] == executor.device:
        groups.append(executor.parameters(TIED))
    return groups


def held(executor: Executor) -> list[FlatParameters]:
    """All parameters on the executor's device, each once."""
    groups: dict[int, FlatParameters] = {}
    for stage in executor.stages.values():
        for group in (stage.own, stage.tied):
            if group is not None:
                groups[id(group)] = group
    return list(groups.values())


def return_weights(lowered: Lowered, executors: Mapping[int, Executor], lanes: Lanes) -> None:
    """Bring every owner's weights to the other copies. Raises LaneError."""
    reductions = [(number, lane) for number, lane in enumerate(lowered.lanes) if lane.purpose != "data"]
    # A lane of reductions runs from copy to owner; its weights run the other way.
    for number, lane in reductions:
        if lane.source in executors:
            incoming = lanes.weights_incoming[number]
            incoming.begin()
            incoming.expect(lane.messages[-1].action)
    for number, lane in reductions:
        if lane.target in executors:
            for message in lane.messages:
                data = executors[lane.target].parameters(message.action.stage).data
                lanes.weights_outgoing[number].send(message.action, data)
    for number, lane in reductions:
        if lane.source in executors:
            for message in lane.messages:
                data = executors[lane.source].parameters(message.action.stage).data
                data.copy_(lanes.weights_incoming[number].take(message.action))
    _flush(lanes, [number for number, lane in reductions if lane.target in executors])


def _flush(lanes: Lanes, numbers: Sequence[int]) -> None:
    for number in numbers:
        lanes.weights_outgoing[number].flush()
