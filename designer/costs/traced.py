"""A profile out of a traced step: what actions and messages took while all devices worked."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from contraflow.designer.format.profile import ActionTime, Profile
from contraflow.designer.format.trace import Trace


def profile_of(trace: Trace) -> Profile:
    """The median of equal actions on a device; of the messages that were waited for from before they were sent.

    The trace does not tell what follows the last gradient, nor what of a message is due to its length.
    """
    layout = trace.schedule.layout
    times: dict[tuple[int, int, str, int, int], list[float]] = defaultdict(list)
    for device, action, begin, end in trace.measured.spans:
        assert action.microbatch is not None
        border = layout.borders(action.microbatch)[action.subsequence or 0]
        times[device, action.stage, action.kind, *border].append(end - begin)
    ways: list[float] = []
    reductions = [0.0] * layout.num_stages
    for delivery in trace.measured.deliveries:
        if delivery.purpose == "data" and delivery.awaited <= delivery.sent <= delivery.taken:
            ways.append(delivery.taken - delivery.sent)
        elif delivery.purpose == "mirror" and delivery.left is not None:
            stage = delivery.action.stage
            reductions[stage] = max(reductions[stage], delivery.left - delivery.sent)
    return Profile(
        machine=f"{trace.machine}, in step {trace.step} of a run",
        actions=tuple(ActionTime(*key, median(seconds)) for key, seconds in times.items()),
        latency=median(ways) if ways else 0.0,
        reductions=tuple(reductions) if any(reductions) else (),
        model=trace.model,
        layers=() if trace.model is None else tuple(map(len, layout.layer_ranges(trace.model.layers))),
    )
