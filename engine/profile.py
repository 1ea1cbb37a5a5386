"""Times of this machine, measured before training in the processes that will train: what the designer prices with."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist

from contraflow.designer.format.profile import ActionTime, PartTime, Profile, merge
from contraflow.engine import mirror, models
from contraflow.engine.optimizer import adamw, squared_norm
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.stage import Stage
from contraflow.engine.topology import rank_of

_PROBE_TAG = 100

PARTS = ((1, False, False), (2, False, False), (0, True, False), (0, False, True))
"""Layers, embedding, head: stages that tell apart what each of these takes."""


def measure(pipeline: Pipeline, repeats: int = 3, *, parts: bool = False) -> Profile:
    """Each stage's F, B, I and W (those that the program has) of each subsequence, alone; messages; the update.

    With `parts` all four in any case, and those of small stages on pieces of several lengths: enough to tell what
    other splits, and other schedules of the model, would take.
    All processes call this together and get the profile of all. Weights and optimizer state stay as they are.
    """
    actions = [
        time
        for device in pipeline.place.devices
        for time in _stages(pipeline, device, repeats, everything=parts)
    ]
    latency, seconds_per_byte = _messages(pipeline, repeats)
    layout = pipeline.schedule.layout
    token_bytes = pipeline.batch_size * pipeline.shape.hidden * pipeline.dtype.itemsize
    reductions = [0.0] * layout.num_stages
    for executor in pipeline.executors.values():
        for number, stage in executor.stages.items():
            if len(layout.copies[number]) > 1:
                size = stage.own.grad.numel() * pipeline.dtype.itemsize
                reductions[number] = size * seconds_per_byte
    own = Profile(
        machine=f"{platform.node() or 'this machine'} ({pipeline.place.torch_device.type})",
        actions=tuple(actions),
        latency=latency,
        seconds_per_token=token_bytes * seconds_per_byte,
        reductions=tuple(reductions) if any(reductions) else (),
        after_step=_update(pipeline, repeats),
        model=pipeline.shape,
        batch_size=pipeline.batch_size,
        layers=tuple(map(len, layout.layer_ranges(pipeline.shape.layers))),
        parts=tuple(_parts(pipeline, repeats)) if parts else (),
    )
    if pipeline.place.backend is None:
        return own
    profiles: list[Profile] = [own] * dist.get_world_size()
    dist.all_gather_object(profiles, own)
    return merge(profiles)


def _synchronize(pipeline: Pipeline) -> None:
    if pipeline.place.torch_device.type == "cuda":
        torch.cuda.synchronize()


def _timed(pipeline: Pipeline, call: Callable[[], object]) -> float:
    _synchronize(pipeline)
    begun = perf_counter()
    call()
    _synchronize(pipeline)
    return perf_counter() - begun


def _stages(pipeline: Pipeline, device: int, repeats: int, *, everything: bool) -> list[ActionTime]:
    layout = pipeline.schedule.layout
    kinds = {(action.stage, action.kind) for action in pipeline.schedule.program[device]}
    last = layout.num_stages - 1
    found = []
    for number, stage in pipeline.stages[device].items():
        backwards = [kind for kind in ("B", "I") if everything or (number, kind) in kinds]
        for splits in sorted(set(layout.splits)):
            times = _passes(pipeline, stage, number == 0, number == last, splits, backwards, repeats)
            found += [ActionTime(device, number, *entry) for entry in times]
    return found


def _parts(pipeline: Pipeline, repeats: int) -> list[PartTime]:
    """What this process measures of PARTS: each of them is measured by one."""
    alone = pipeline.place.backend is None
    here, everyone = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
    pieces = sorted({other for splits in pipeline.schedule.layout.splits for other in _cut(splits)})
    found = []
    for layers, first, last in PARTS[here::everyone]:
        if layers > pipeline.shape.layers:
            continue
        module = models.build(
            pipeline.shape,
            range(layers),
            first=first,
            last=last,
            dtype=pipeline.dtype,
            device=pipeline.place.torch_device,
        )
        stage = Stage(module, pipeline.attention)
        for splits in pieces:
            times = _passes(pipeline, stage, first, last, splits, ("B", "I"), repeats)
            found += [PartTime(layers, first, last, *entry) for entry in times]
    return found


def _cut(splits: Sequence[int]) -> list[tuple[int, ...]]:
    """The subsequences as they are, each halved, and each in a quarter and the rest."""
    cuts = [[(length // part, length - length // part) for length in splits] for part in (2, 4)]
    return [tuple(splits), *(tuple(n for pair in pairs for n in pair if n) for pairs in cuts)]


def _passes(
    pipeline: Pipeline,
    stage: Stage,
    first: bool,
    last: bool,
    splits: Sequence[int],
    backwards: Sequence[str],
    repeats: int,
) -> list[tuple[str, int, int, float]]:
    """Kind, first token, the one behind the last, and median seconds of every action of a microbatch in a stage."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for repeat in range(repeats + 1):
        for backward in backwards:
            # The first pass warms caches and allocators.
            for key, seconds in _one_pass(pipeline, stage, first, last, splits, backward):
                times[key] += [seconds] * (repeat > 0)
    stage.zero_gradients()
    borders = [sum(splits[:index]) for index in range(len(splits) + 1)]
    return [
        (kind, borders[index], borders[index + 1], median(seconds))
        for (kind, index), seconds in times.items()
    ]


def _one_pass(
    pipeline: Pipeline, stage: Stage, first: bool, last: bool, splits: Sequence[int], backward: str
) -> list[tuple[tuple[str, int], float]]:
    """One microbatch through one stage and back: ((kind, subsequence), seconds)."""
    size, hidden = pipeline.batch_size, pipeline.shape.hidden
    device, dtype = pipeline.place.torch_device, pipeline.dtype
    times = []
    for index, length in enumerate(splits):
        if first:
            x = torch.randint(pipeline.shape.vocabulary, (size, length), device=device)
        else:
            x = torch.randn(size, length, hidden, device=device, dtype=dtype)
        targets = torch.randint(pipeline.shape.vocabulary, (size, length), device=device) if last else None
        total = sum(splits) * size if last else None

        forward = partial(stage.forward, 0, index, x, splits=splits, targets=targets, num_targets=total)
        times.append((("F", index), _timed(pipeline, forward)))
    grads = [
        None if last else torch.randn(size, length, hidden, device=device, dtype=dtype) for length in splits
    ]
    run = stage.backward if backward == "B" else stage.backward_input
    for index in reversed(range(len(splits))):
        times.append(((backward, index), _timed(pipeline, partial(run, 0, index, grads[index]))))
    if backward == "I":
        for index in reversed(range(len(splits))):
            times.append((("W", index), _timed(pipeline, partial(stage.backward_weight, 0, index))))
    return times


def _messages(pipeline: Pipeline, repeats: int) -> tuple[float, float]:
    """Seconds of an empty message, and per byte of a large one: the slowest pair of devices that exchange any."""
    if pipeline.place.backend is None:
        return 0.0, 0.0
    layout = pipeline.schedule.layout
    pairs = sorted({tuple(sorted((lane.source, lane.target))) for lane in pipeline.lowered.lanes})
    here, device = dist.get_rank(), pipeline.place.torch_device
    small = torch.zeros(1, device=device)
    large = torch.zeros(pipeline.batch_size * layout.longest * pipeline.shape.hidden, device=device)
    latency = per_byte = 0.0
    for pair in pairs:
        ranks = [rank_of(layout, end) for end in pair]
        dist.barrier()
        if here not in ranks:
            continue
        peer = ranks[1 - ranks.index(here)]
        first = here == ranks[0]
        _there_and_back(large, peer, first)
        empty = (
            median(_timed(pipeline, partial(_there_and_back, small, peer, first)) for _ in range(5 * repeats))
            / 2
        )
        full = (
            median(_timed(pipeline, partial(_there_and_back, large, peer, first)) for _ in range(repeats)) / 2
        )
        latency = max(latency, empty)
        per_byte = max(per_byte, (full - empty) / (large.numel() * large.itemsize), 0.0)
    return latency, per_byte


def _there_and_back(tensor: torch.Tensor, peer: int, first: bool) -> None:
    for outgoing in (first, not first):
        if outgoing:
            dist.send(tensor, peer, tag=_PROBE_TAG)
        else:
            dist.recv(tensor, peer, tag=_PROBE_TAG)


def _update(pipeline: Pipeline, repeats: int) -> float:
    """What a step does beside its passes: zeroing, norm and clipping, optimizer, return of weights.

    On scratch state, with gradients and a rate of zero: weights stay as they are.
    """
    scratch = adamw(pipeline.owned, pipeline.config)

    def update() -> None:
        for group in pipeline.held:
            group.grad.zero_()
        squared_norm(pipeline.owned)
        for group in pipeline.owned:
            group.grad.mul_(1.0)
        if scratch is not None:
            for kind in scratch.param_groups:
                kind["lr"] = 0.0
            scratch.step()
        mirror.return_weights(pipeline.lowered, pipeline.executors, pipeline.lanes)

    return median([_timed(pipeline, update) for _ in range(repeats + 1)][1:])
