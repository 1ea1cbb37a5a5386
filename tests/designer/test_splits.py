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
