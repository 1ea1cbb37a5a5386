"""Cutting a sequence: exact sums, equal costs, borders on multiples."""

from __future__ import annotations

from itertools import accumulate
from math import sqrt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contraflow.designer import costs, splits
from contraflow.designer.costs.presets import MODELS
from contraflow.designer.costs.work import layer_work
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Direction, Layout
from contraflow.designer.splits import SplitError

LLAMA = MODELS["llama3-8b"]

SIZES = st.integers(1, 24).flatmap(lambda count: st.tuples(st.integers(count, 300_000), st.just(count)))


@pytest.mark.parametrize(
    ("sequence", "lengths"),
    [(32768, (11008, 8448, 7040, 6272)), (131072, (55552, 30848, 24192, 20480))],
)
def test_the_reference_lengths_of_equal_compute(sequence: int, lengths: tuple[int, ...]) -> None:
    assert splits.equal_compute(sequence, 4, LLAMA) == lengths


def test_even_cutting_at_131072_tokens_gives_the_reference_shares_of_the_work() -> None:
    whole = layer_work(LLAMA, 0, 131072)
    each = [layer_work(LLAMA, start, start + 32768) / whole for start in range(0, 131072, 32768)]
    assert [round(share, 3) for share in each] == [0.117, 0.206, 0.294, 0.383]
    # The first of the equal shares holds 42 % of the tokens.
    assert round(splits.equal_compute(131072, 4, LLAMA)[0] / 131072, 2) == 0.42


@given(SIZES)
def test_even_lengths_differ_by_at_most_one_and_the_longer_come_first(size: tuple[int, int]) -> None:
    lengths = splits.even(*size)
    assert (sum(lengths), len(lengths)) == size
    assert lengths[0] - lengths[-1] <= 1
    assert list(lengths) == sorted(lengths, reverse=True)


def exact_borders(sequence: int, count: int, shape: ModelShape) -> list[float]:
    """Where the work a*n + b*n(n+1) of the first n tokens is the i-th part of the whole, by the quadratic formula."""
    a, b = 2.0 * shape.layer_matrix_weights, 2.0 * shape.hidden
    whole = a * sequence + b * sequence * (sequence + 1)
    linear = a + b
    return [(-linear + sqrt(linear**2 + 4 * b * whole * part / count)) / (2 * b) for part in range(1, count)]


@given(SIZES, st.sampled_from(sorted(MODELS)), st.sampled_from([1, 2, 64, 128, 1000]))
@example((32768, 4), "llama3-8b", 1)
@example((10, 3), "llama3-8b", 1)
@example((100, 8), "gpt-1.3b", 1)
def test_borders_of_equal_compute_are_the_nearest_multiples(
    size: tuple[int, int], model: str, multiple: int
) -> None:
    sequence, count = size
    lengths = splits.equal_compute(sequence, count, MODELS[model], multiple)
    assert (sum(lengths), len(lengths)) == size
    assert min(lengths) > 0
    borders = list(accumulate(lengths))[:-1]
    # A multiple that would leave a subsequence empty is halved as often as needed.
    while multiple > 1 and any(border % multiple for border in borders):
        multiple = max(multiple // 2, 1)
    for border, exact in zip(borders, exact_borders(sequence, count, MODELS[model]), strict=True):
        assert abs(border - exact) <= multiple / 2 + 1


@pytest.mark.parametrize(
    ("sequence", "count", "multiple"), [(512, 4, 128), (100, 8, 128), (7, 7, 128), (9, 8, 100)]
)
def test_a_multiple_is_halved_until_no_subsequence_is_empty(sequence: int, count: int, multiple: int) -> None:
    lengths = splits.equal_compute(sequence, count, LLAMA, multiple)
    assert sum(lengths) == sequence
    assert min(lengths) > 0


def test_a_multiple_is_halved_no_more_than_needed() -> None:
    # Borders near 75, 150 and 225: multiples of 128 would leave the second subsequence empty, those of 64 do not.
    assert splits.equal_compute(300, 4, LLAMA, 128) == (64, 64, 128, 44)


@given(st.integers(1, 16), st.integers(1, 4000), st.sampled_from([1, 128]))
def test_equal_costs_for_equal_lengths_cut_evenly(count: int, length: int, multiple: int) -> None:
    lengths = splits.equal_time(count * length * multiple, count, costs.named("unit"), 2, 2, multiple)
    assert lengths == (length * multiple,) * count


def times(lengths: tuple[int, ...], model: costs.CostModel, devices: int) -> list[float]:
    layout = Layout(devices, (sum(lengths),), (lengths,), (Direction("down", tuple(range(devices)), (0,)),))
    prices = model(layout)
    return [
        sum(
            prices.forward[layout.slot(stage, 0, q)] + prices.backward[layout.slot(stage, 0, q)]
            for stage in range(devices)
        )
        for q in range(len(lengths))
    ]


@given(
    st.integers(2, 8).flatmap(lambda count: st.tuples(st.integers(count * 64, 100_000), st.just(count))),
    st.sampled_from(["llama3-8b-h100", "llama3-1b-b200", "gpt-13b-a100", "work:llama3-70b"]),
    st.sampled_from([2, 4]),
)
def test_equal_time_is_equal_to_within_a_token(size: tuple[int, int], name: str, devices: int) -> None:
    model = costs.named(name)
    lengths = splits.equal_time(*size, model, devices, devices, multiple=1)
    assert (sum(lengths), len(lengths)) == size
    shown = times(lengths, model, devices)
    # Both borders of a subsequence are rounded: two tokens, at what the dearest token costs.
    token = max(cost / length for cost, length in zip(shown, lengths, strict=True))
    assert max(shown) - min(shown) <= 2.5 * token


def test_equal_time_rounds_to_the_kernel_tile() -> None:
    lengths = splits.equal_time(32768, 4, costs.named("llama3-8b-h100"), 4, 4)
    assert sum(lengths) == 32768
    assert all(length % splits.TILE == 0 for length in lengths)
    assert lengths[0] > splits.equal_compute(32768, 4, LLAMA)[0], "short ones run less efficiently"


@pytest.mark.parametrize(
    ("cut", "reason"),
    [
        (lambda: splits.even(3, 4), "a sequence of 3 tokens cannot be cut in 4 subsequences"),
        (lambda: splits.even(3, 0), "at least 1 subsequence, not 0"),
        (lambda: splits.equal_compute(3, 4, LLAMA), "a sequence of 3 tokens cannot be cut in 4"),
        (lambda: splits.equal_compute(300, 4, LLAMA, 0), "multiples of at least 1 token, not 0"),
        (lambda: splits.equal_time(3, -1, costs.named("unit"), 2, 2), "at least 1 subsequence, not -1"),
    ],
)
def test_what_cannot_be_cut_is_refused(cut, reason: str) -> None:
    with pytest.raises(SplitError, match=reason):
        cut()


def device_times(name: str, layers: tuple[int, ...], placement: tuple[int, ...], devices: int) -> list[float]:
    layout = Layout(devices, (8192,), ((8192,),), (Direction("down", placement, (0,)),), layers)
    prices = costs.named(name)(layout)
    busy = [0.0] * devices
    for stage, device in enumerate(placement):
        busy[device] += prices.forward[stage] + prices.backward[stage]
    return busy


@pytest.mark.parametrize("name", ["llama3-1b-h100", "gpt-1.3b-a100", "work:llama3-1b"])
@pytest.mark.parametrize("placement", [(0, 1, 2, 3), (0, 1, 2, 3, 3, 2, 1, 0), (0, 1, 0, 1, 0, 1), (0,)])
def test_balanced_layers_leave_no_better_move(name: str, placement: tuple[int, ...]) -> None:
    devices = max(placement) + 1
    layout = Layout(devices, (8192,), ((8192,),), (Direction("down", placement, (0,)),))
    counts = splits.balanced(layout, costs.named(name))
    shape = costs.model_behind(name)
    assert sum(counts) == shape.layers
    longest = max(device_times(name, counts, placement, devices))
    for source in range(len(placement)):
        for target in range(len(placement)):
            if source != target and counts[source]:
                moved = list(counts)
                moved[source] -= 1
                moved[target] += 1
                assert max(device_times(name, tuple(moved), placement, devices)) >= longest * (1 - 1e-9)


def test_a_large_head_counts_as_layers() -> None:
    layout = Layout(8, (8192,), ((8192,),), (Direction("down", tuple(range(8)), (0,)),))
    counts = splits.balanced(layout, costs.named("llama3-8b-h100"))
    assert counts[-1] < min(counts[:-1])
    with_embedding_alone = splits.balanced(layout, costs.named("work:llama3-8b"))
    assert max(with_embedding_alone) - min(with_embedding_alone) == 0


def test_costs_without_a_model_balance_nothing() -> None:
    layout = Layout(2, (8,), ((8,),), (Direction("down", (0, 1), (0,)),))
    with pytest.raises(costs.CostError, match="unit knows no model to balance"):
        splits.balanced(layout, costs.named("unit"))


@given(
    st.lists(st.integers(1, 999), min_size=2, max_size=6),
    st.data(),
    st.integers(-3000, 3000),
    st.sampled_from([1, 64, 128]),
)
def test_a_moved_border_leaves_every_subsequence_tokens(
    lengths: list[int], data: st.DataObject, by: int, multiple: int
) -> None:
    border = data.draw(st.integers(0, len(lengths) - 2))
    moved = splits.border_moved(lengths, border, by, multiple)
    assert sum(moved) == sum(lengths)
    assert min(moved) >= 1
    for index in range(len(lengths)):
        assert index in (border, border + 1) or moved[index] == lengths[index]
    before, old, behind = sum(lengths[:border]), sum(lengths[: border + 1]), sum(lengths[: border + 2])
    place = before + moved[border]
    # Of all places that keep both neighbours, multiples before others, none is nearer to what was asked.
    places = range(before + 1, behind)
    best = [token for token in places if token % multiple == 0] or places
    assert place in best
    assert abs(place - (old + by)) == min(abs(token - (old + by)) for token in best)


def test_borders_stop_one_multiple_before_their_neighbours() -> None:
    even = (256, 256, 256, 256)
    assert splits.border_moved(even, 0, 128) == (384, 128, 256, 256)
    assert splits.border_moved(even, 0, 9999) == (384, 128, 256, 256)
    assert splits.border_moved(even, 2, -9999) == (256, 256, 128, 384)
    assert splits.border_moved((5, 5), 0, -9) == (1, 9)
    assert splits.border_moved((100, 156), 0, 1) == (128, 128)


def straight(num_devices: int, *lengths: tuple[int, ...]) -> Layout:
    direction = Direction("down", tuple(range(num_devices)), tuple(range(len(lengths))))
    return Layout(num_devices, tuple(map(sum, lengths)), lengths, (direction,))


def test_shares_of_even_subsequences_are_even_in_tokens_and_uneven_in_work() -> None:
    layout = straight(4, (32768,) * 4)
    found = splits.shares(layout.splits[0], layout, costs.named("llama3-8b-h100"))
    assert [share.start for share in found] == [0, 32768, 65536, 98304]
    assert [round(share.work or 0, 3) for share in found] == [0.117, 0.206, 0.294, 0.383]
    assert sum(share.work or 0 for share in found) == pytest.approx(1)
    times = [share.forward for share in found]
    assert times == sorted(times)
    assert times[0] < times[-1] < found[-1].backward
    assert all(share.bytes == pytest.approx(found[0].bytes, rel=1e-6) for share in found)


def test_shares_on_the_unit_clock_know_tokens_alone() -> None:
    layout = straight(2, (3, 1), (8,))
    [first, second] = splits.shares((3, 1), layout, costs.named("unit"))
    # A forward of the longest through one device takes 1, and there are two.
    assert (first.forward, first.backward, second.forward) == (0.75, 1.5, 0.25)
    assert (first.work, first.bytes) == (None, None)


def test_shares_are_what_the_stages_of_the_layout_take() -> None:
    layout = straight(4, (1024, 512, 512), (1024, 512, 512))
    model = costs.named("llama3-1b-h100")
    prices = model(layout)
    for index, share in enumerate(splits.shares(layout.splits[1], layout, model)):
        slots = [layout.slot(stage, 1, index) for stage in range(4)]
        assert share.forward == pytest.approx(sum(prices.forward[slot] for slot in slots))
