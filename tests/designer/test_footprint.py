"""What a model occupies: published counts, and the laws of its parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.costs.error import CostError
from contraflow.designer.costs.footprint import Footprint, footprint
from contraflow.designer.costs.presets import MODELS
from contraflow.designer.costs.training import Training
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Direction, Layout

GPT2 = ModelShape("gpt", 12, 768, 12, 12, 3072, 50257, tied=True, positions=1024)
LLAMA = ModelShape("llama", layers=6, hidden=256, heads=8, kv_heads=2, ffn=704, vocabulary=1000)


def straight(num_devices: int, *split: int, microbatches: int = 2) -> Layout:
    down = Direction("down", tuple(range(num_devices)), tuple(range(microbatches)))
    return Layout(num_devices, (sum(split),) * microbatches, (split,) * microbatches, (down,))


def opposed(num_devices: int, *split: int) -> Layout:
    there = (*range(num_devices), *reversed(range(num_devices)))
    back = tuple(num_devices - 1 - device for device in there)
    directions = Direction("down", there, (0,)), Direction("up", back, (1,))
    return Layout(num_devices, (sum(split),) * 2, (split,) * 2, directions)


def occupied(shape: ModelShape, layout: Layout, **training: Any) -> Footprint:
    return footprint(shape, Training(**training))(layout)


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        (MODELS["llama3-8b"], 8_030_261_248),
        # The published model's keys have a bias, which softmax does not see.
        (GPT2, 124_439_808 - 12 * 768),
    ],
)
@pytest.mark.parametrize("layout", [straight(1, 64), straight(4, 64), opposed(2, 64), opposed(4, 64)])
def test_the_owners_together_hold_the_state_of_the_published_number_of_parameters(
    shape: ModelShape, published: int, layout: Layout
) -> None:
    assert sum(occupied(shape, layout).optimizer) == 12 * published
    assert sum(occupied(shape, layout, replicas=8).optimizer) == pytest.approx(12 * published / 8)


def test_a_gpt_layer_keeps_what_is_published() -> None:
    """Korthikanti et al., 2205.05198, section 4.1: 34 s b h bytes a layer in 16 bits beside the attention matrix.

    The engine has no dropout masks (2 s b h); it keeps statistics of norms and attention in 32 bits.
    """
    h, tokens = 768, 2 * 512
    shape = ModelShape("gpt", 2, h, 12, 12, 4 * h, 1000, positions=512)
    found = occupied(shape, straight(1, 512), batch_size=2)
    ends = 2 * 2 * h + 8  # the final norm's input and output, and its statistics
    layers = found.activations[0] + found.key_values[0] - tokens * ends - 8 * 512
    assert layers == 2 * tokens * (32 * h + 4 * (4 + 12))


def test_after_an_i_most_remains() -> None:
    found = occupied(MODELS["llama3-8b"], straight(4, 2048))
    whole = found.activations[2] + found.key_values[2]
    assert found.deferred[2] / whole == pytest.approx(0.83, abs=0.02)


def test_a_v_holds_a_tied_embedding_once() -> None:
    shape = replace(LLAMA, tied=True, layers=8)
    table = 4 * shape.vocabulary * shape.hidden
    untied, tied = (
        occupied(replace(shape, tied=shared), opposed(2, 64), precision="float32") for shared in (False, True)
    )
    # Both devices hold both ends of the model.
    for device in range(2):
        assert untied.weights[device] - tied.weights[device] == table
    assert untied.shared == (0, 0)
    assert tied.shared == (table, table)
    both = occupied(shape, straight(2, 64), precision="float32")
    assert both.gradients[0] - both.gradients[1] == pytest.approx(0, abs=4 * 2 * shape.hidden)


@given(
    cut=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    family=st.sampled_from(["llama", "gpt"]),
    layout=st.sampled_from([straight, opposed]),
    checkpointing=st.booleans(),
)
def test_a_cut_changes_neither_what_all_leave_nor_what_is_left_at_the_end(
    cut: list[int], family: str, layout: Any, checkpointing: bool
) -> None:
    shape = replace(LLAMA, family=family, positions=500, layers=5)
    layouts = layout(2, sum(cut)), layout(2, *cut)
    whole, parts = (occupied(shape, each, checkpointing=checkpointing) for each in layouts)
    for name in ("message", "activations", "logits", "deferred", "key_values", "owed"):
        tables = getattr(whole, name), getattr(parts, name)
        for stage in range(layouts[0].num_stages):
            sums = [
                sum(table[each.slot(stage, 0, 0) :][: len(each.splits[0])])
                for each, table in zip(layouts, tables, strict=True)
            ]
            assert sums[0] == pytest.approx(sums[1])
    # Without a later subsequence nothing is owed to an earlier one.
    assert not any(whole.owed)
    assert max(parts.owed) == -min(parts.owed)
    assert all(size >= 0 for table in (*whole.extra.values(), *parts.extra.values()) for size in table)


def test_tensor_parallelism_divides_what_is_kept() -> None:
    layout = straight(2, 128, 64)
    one, two = (occupied(LLAMA, layout, tensor_parallel=parts, batch_size=3) for parts in (1, 2))
    for name in ("message", "activations", "deferred", "key_values", "owed"):
        assert [2 * size for size in getattr(two, name)] == pytest.approx(list(getattr(one, name)))
    # Norms are whole everywhere.
    norms = 4 * 7 * LLAMA.hidden
    assert 2 * two.gradients[0] - one.gradients[0] == pytest.approx(norms, abs=4 * LLAMA.hidden)


def test_checkpointing_keeps_of_a_layer_its_input_and_its_keys_and_values() -> None:
    layout = straight(3, 96, 32)
    plain, checkpointed = (occupied(LLAMA, layout, checkpointing=on) for on in (False, True))
    middle = layout.slot(1, 0, 0)
    # Two layers on each device.
    assert checkpointed.activations[middle] == 2 * checkpointed.message[middle]
    assert checkpointed.key_values == plain.key_values
    assert checkpointed.extra["B"][middle] > plain.extra["B"][middle]


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CostError, match=r"layers \[1, 2\] add up to 3, the model has 6; choose a model"):
        occupied(LLAMA, replace(straight(2, 64), layers=(1, 2)))
