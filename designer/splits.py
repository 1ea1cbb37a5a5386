"""Tokens -> subsequences: even, of equal cost (compute or time); and layers -> stages, balanced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from .costs.error import CostError
from .costs.prices import CostModel
from .costs.work import layer_work
from .format.model import ModelShape
from .format.schedule import Direction, Layout

TILE = 128
"""Borders fall on multiples of this by default: the tile of attention kernels."""
ROUNDS = 50
"""Ten or twenty are enough as a rule."""


class SplitError(ValueError):
    """A sequence that cannot be cut as asked; the message says why."""


def even(sequence: int, count: int) -> tuple[int, ...]:
    """Lengths that differ by at most one token, the longer first. Raises SplitError."""
    _enough(sequence, count)
    length, longer = divmod(sequence, count)
    return (length + 1,) * longer + (length,) * (count - longer)


def equal_compute(sequence: int, count: int, shape: ModelShape, multiple: int = TILE) -> tuple[int, ...]:
    """Lengths of equal causal work in a layer of `shape` (Seq1F1B, 2406.03488, section 3.4). Raises SplitError."""
    return equal_cost(sequence, count, lambda start, stop: layer_work(shape, start, stop), multiple)


def equal_time(
    sequence: int, count: int, costs: CostModel, num_devices: int, num_stages: int, multiple: int = TILE
) -> tuple[int, ...]:
    """Lengths that take the same time, forward and backward through all stages, on these costs. Raises SplitError."""
    direction = Direction("down", tuple(stage % num_devices for stage in range(num_stages)), (0,))

    def seconds(start: int, stop: int) -> float:
        if start == stop:
            return 0.0
        cut = [length for length in (start, stop - start, sequence - stop) if length]
        index = 1 if start else 0
        layout = Layout(num_devices, (sequence,), (tuple(cut),), (direction,))
        prices = costs(layout)
        slots = [layout.slot(stage, 0, index) for stage in range(num_stages)]
        return sum(prices.forward[slot] + prices.backward[slot] for slot in slots)

    return equal_cost(sequence, count, seconds, multiple)


def equal_cost(
    sequence: int, count: int, cost: Callable[[int, int], float], multiple: int = TILE
) -> tuple[int, ...]:
    """Lengths for which `cost(start, stop)` of the tokens [start, stop) is the same.

    `cost` must grow with `stop`. Each border is rounded to the nearest multiple of `multiple`, which is halved until
    no subsequence is empty; the lengths add up exactly. Raises SplitError.
    """
    _enough(sequence, count)
    if multiple < 1:
        raise SplitError(f"borders fall on multiples of at least 1 token, not {multiple}")
    borders = _borders(sequence, count, cost)
    while True:
        rounded = [0, *(round(border / multiple) * multiple for border in borders), sequence]
        lengths = tuple(stop - start for start, stop in pairwise(rounded))
        if min(lengths) > 0:
            return lengths
        if multiple == 1:
            return even(sequence, count)
        multiple = max(multiple // 2, 1)


def _borders(sequence: int, count: int, cost: Callable[[int, int], float]) -> list[float]:
    """The inner borders, to a fraction of a token.

    Each round spreads the cost of every subsequence evenly over its tokens and cuts the sum in equal shares; what
    this leaves alone costs the same everywhere.
    """
    knots = [0, *accumulate(even(sequence, count))]
    borders: list[float] = []
    for _ in range(ROUNDS):
        costs = [cost(start, stop) for start, stop in pairwise(knots)]
        if min(costs) <= 0:
            return list(map(float, knots[1:-1]))
        borders = _equal_shares(knots, costs)
        before, knots = knots, [0]
        for index, border in enumerate(borders, 1):
            knots.append(min(max(round(border), knots[-1] + 1), sequence - count + index))
        knots.append(sequence)
        if knots == before:
            break
    return borders


def _equal_shares(knots: Sequence[int], costs: Sequence[float]) -> list[float]:
    each = sum(costs) / len(costs)
    borders, index, passed = [], 0, 0.0
    for share in range(1, len(costs)):
        wanted = share * each
        while passed + costs[index] < wanted:
            passed += costs[index]
            index += 1
        part = (wanted - passed) / costs[index]
        borders.append(knots[index] + part * (knots[index + 1] - knots[index]))
    return borders


def _enough(sequence: int, count: int) -> None:
    if count < 1:
        raise SplitError(f"a sequence is cut in at least 1 subsequence, not {count}")
    if sequence < count:
        raise SplitError(f"a sequence of {sequence} tokens cannot be cut in {count} subsequences")


def border_moved(lengths: Sequence[int], border: int, by: int, multiple: int = TILE) -> tuple[int, ...]:
    """The border behind subsequence `border` moved by `by` tokens, to the nearest multiple between its neighbours.

    No subsequence becomes empty: where its neighbours leave no room for a multiple, any token will do.
    """
    borders = [0, *accumulate(lengths)]
    before, wanted, behind = borders[border], borders[border + 1] + by, borders[border + 2]
    least, most = before // multiple + 1, (behind - 1) // multiple
    if least <= most:
        borders[border + 1] = multiple * min(max(round(wanted / multiple), least), most)
    else:
        borders[border + 1] = min(max(wanted, before + 1), behind - 1)
    return tuple(stop - start for start, stop in pairwise(borders))


@dataclass(frozen=True, slots=True)
class Share:
    """One subsequence's share of a microbatch."""

    start: int
    """Its first token."""
    tokens: int
    work: float | None
    """Its part of the causal work of the layers; None where the costs know no model."""
    bytes: float | None
    """What its F leaves for its backward, in all stages, on one GPU of each; None where the costs know no model.

    Keys and values are not counted: those of all subsequences are there from the first on."""
    forward: float
    """The time of its F in all stages, on the clock of the costs."""
    backward: float
    """That of its B."""


def shares(lengths: Sequence[int], layout: Layout, costs: CostModel) -> tuple[Share, ...]:
    """The shares of the subsequences of a microbatch that is cut so in the stages of `layout`.

    Raises CostError where the costs do not fit the layout.
    """
    alone = _alone(lengths, layout)
    prices = costs(alone)
    bytes_of = None if costs.footprint is None else costs.footprint(alone)
    sequence, found = sum(lengths), []
    for index, (start, stop) in enumerate(alone.borders(0)):
        slots = [alone.slot(stage, 0, index) for stage in range(alone.num_stages)]
        work = kept = None
        if costs.shape is not None:
            work = layer_work(costs.shape, start, stop) / layer_work(costs.shape, 0, sequence)
        if bytes_of is not None:
            kept = sum(bytes_of.activations[slot] + bytes_of.logits[slot] for slot in slots)
        forward, backward = (
            sum(table[slot] for slot in slots) for table in (prices.forward, prices.backward)
        )
        found.append(Share(start, stop - start, work, kept, forward, backward))
    return tuple(found)


def _alone(lengths: Sequence[int], layout: Layout) -> Layout:
    """A microbatch that is cut so, and beside it, where another is longer, that one: the unit clock counts by it."""
    splits = [tuple(lengths)]
    if layout.longest > sum(lengths):
        splits.append((layout.longest,))
    first, *others = layout.directions
    return replace(
        layout,
        sequences=tuple(map(sum, splits)),
        splits=tuple(splits),
        directions=(
            replace(first, microbatches=tuple(range(len(splits)))),
            *(replace(other, microbatches=()) for other in others),
        ),
    )


def balanced(layout: Layout, costs: CostModel) -> tuple[int, ...]:
    """How many layers each stage of `layout` holds so that the busiest device is least busy; embedding and head count.

    Raises CostError for costs that know no model.
    """
    if costs.shape is None:
        raise CostError(
            f"{costs.name} knows no model to balance: --layers balanced needs --costs MODEL-HARDWARE, work:MODEL "
            "or a model.toml"
        )
    num_layers, num_stages = costs.shape.layers, layout.num_stages
    if num_stages == 1:
        return (num_layers,)
    # A stage's time is its own, plus a layer's for each that it holds: read off with all layers first, then last.
    first = _stage_times(layout, (num_layers, *[0] * (num_stages - 1)), costs)
    last = _stage_times(layout, (*[0] * (num_stages - 1), num_layers), costs)
    own, layer = [last[0], *first[1:]], (first[0] - last[0]) / num_layers
    visits = Counter(
        (stage, layout.device_of(stage, microbatch))
        for stage in range(num_stages)
        for microbatch in range(layout.num_microbatches)
    )
    load = [0.0] * layout.num_devices
    for (stage, device), count in visits.items():
        load[device] += count * own[stage]
    counts = [0] * num_stages
    for _ in range(num_layers):
        # Of equally busy devices the later stage, of one device's stages the shorter: what is left over goes there.
        stage = min(
            range(num_stages),
            key=lambda stage: (max(load[device] for device in layout.copies[stage]), counts[stage], -stage),
        )
        counts[stage] += 1
        for device in layout.copies[stage]:
            load[device] += layer * visits[stage, device]
    return tuple(counts)


def _stage_times(layout: Layout, layers: tuple[int, ...], costs: CostModel) -> list[float]:
    """Forward and backward of a mean microbatch through each stage, with so many layers in it."""
    prices, size = costs(replace(layout, layers=layers)), layout.slots_per_stage
    times = [there + back for there, back in zip(prices.forward, prices.backward, strict=True)]
    return [
        sum(times[stage * size : (stage + 1) * size]) / layout.num_microbatches
        for stage in range(layout.num_stages)
    ]
