"""Prices: the unit clock and work by their definitions, machines and measurements, and what people mistype."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer import costs, splits
from contraflow.designer.costs.error import CostError
from contraflow.designer.costs.hardware import model_on_hardware
from contraflow.designer.costs.measured import measured
from contraflow.designer.costs.presets import HARDWARE, MODELS
from contraflow.designer.costs.prices import CostModel, Link, Network
from contraflow.designer.costs.training import Training
from contraflow.designer.costs.unit import unit
from contraflow.designer.costs.work import layer_work
from contraflow.designer.design import preview
from contraflow.designer.format import profile
from contraflow.designer.format.profile import ActionTime, Profile
from contraflow.designer.format.schedule import Direction, Layout, Schedule
from contraflow.designer.generators import GENERATORS, Request

LLAMA = MODELS["llama3-8b"]


@given(...)
def test_the_unit_clock_counts_tokens(schedule: Schedule) -> None:
    layout, prices = schedule.layout, unit(schedule.layout)
    for stage in range(layout.num_stages):
        for microbatch, split in enumerate(layout.splits):
            for subsequence, tokens in enumerate(split):
                slot = layout.slot(stage, microbatch, subsequence)
                once = layout.num_devices / layout.num_stages * tokens / max(layout.sequences)
                assert prices.forward[slot] == pytest.approx(once)
                assert prices.backward[slot] == 2 * prices.forward[slot]
                assert prices.backward_input[slot] == prices.backward_weight[slot] == prices.forward[slot]
    assert prices.free_messages
    assert not any(prices.reduction)
    lengths = {length for split in layout.splits for length in split}
    assert ("differ in length" in prices.caption) is (max(lengths) - min(lengths) > 1)


@pytest.mark.parametrize(
    ("name", "even", "equal_compute"), [("unit", 14.25, 16.12), ("work:llama3-8b", 17.46, 14.29)]
)
def test_splits_are_compared_by_work_and_not_by_tokens(name: str, even: float, equal_compute: float) -> None:
    for split, makespan in (
        (splits.even(32768, 4), even),
        (splits.equal_compute(32768, 4, LLAMA), equal_compute),
    ):
        schedule = GENERATORS["seq1f1b"].make(Request(4, (32768,) * 4, (split,) * 4))
        assert preview(schedule, costs.named(name)).makespan == pytest.approx(makespan, abs=0.006)


def straight(
    stages: int, split: tuple[int, ...], layers: tuple[int, ...] | None = None, devices: int = 2
) -> Layout:
    placement = tuple(stage % devices for stage in range(stages))
    return Layout(devices, (sum(split),), (split,), (Direction("down", placement, (0,)),), layers)


def test_work_is_normalised_as_the_unit_clock_is() -> None:
    split = (3000, 1000, 96)
    prices = costs.named("work:llama3-8b")(straight(4, split))
    assert sum(prices.forward) == pytest.approx(2), "one whole microbatch, 1 on each of two devices"
    assert prices.forward[:3] == pytest.approx(
        [
            layer_work(LLAMA, start, stop) / layer_work(LLAMA, 0, 4096) / 2
            for start, stop in ((0, 3000), (3000, 4000), (4000, 4096))
        ]
    )
    assert list(prices.backward) == [2 * cost for cost in prices.forward]
    assert list(prices.backward_input) == list(prices.backward_weight) == list(prices.forward)


def test_work_follows_the_layers_of_a_stage() -> None:
    prices = costs.named("work:llama3-8b")(straight(4, (4096,), layers=(0, 2, 5, 1)))
    assert list(prices.forward) == pytest.approx([0, 2 / 4, 5 / 4, 1 / 4])
    assert not any(costs.named("work:llama3-8b")(straight(2, (4096,), layers=(0, 0))).forward)


def test_work_of_a_llama_layer_by_hand() -> None:
    # Two square and two narrow attention matrices, three of the feed-forward; 2 FLOPs a weight and token.
    weights = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert layer_work(LLAMA, 0, 1) == 2 * weights + 4 * 32 * 128
    assert layer_work(LLAMA, 9, 10) == 2 * weights + 4 * 32 * 128 * 10


def test_a_gpt_layer_has_two_feed_forward_matrices() -> None:
    shape = MODELS["gpt-7b"]
    assert shape.layer_matrix_weights == 4 * 4096 * 4096 + 2 * 4096 * 16384


@pytest.mark.parametrize("name", [f"{model}-{hardware}" for model in MODELS for hardware in HARDWARE])
def test_every_preset_prices_every_action(name: str) -> None:
    prices = costs.named(name)(straight(4, (2048, 1024, 1024)))
    for table in (*prices.durations().values(), prices.transfer, prices.reduction):
        assert min(table) > 0
    assert prices.network.far.latency > prices.network.near.latency > 0
    assert prices.after_step > 0
    assert name in prices.caption


def test_a_machine_takes_longer_for_the_ends_of_the_model() -> None:
    prices = costs.named("llama3-8b-h100")(straight(4, (4096,)))
    first, second, third, last = prices.forward
    assert second == third < first < last


def test_cutting_a_backward_costs_one_more_overhead_and_attention_has_no_w() -> None:
    machine = HARDWARE["h100"]
    layout = straight(2, (1024, 1024, 1024, 1024))
    prices = costs.named("llama3-8b-h100")(layout)
    whole = [i + w for i, w in zip(prices.backward_input, prices.backward_weight, strict=True)]
    assert whole == pytest.approx([cost + machine.overhead for cost in prices.backward])
    assert len({round(cost, 12) for cost in prices.backward_weight[:4]}) == 1
    assert list(prices.backward_input[:4]) == sorted(prices.backward_input[:4])


def test_a_shorter_subsequence_reaches_less_of_the_machine() -> None:
    model = model_on_hardware(LLAMA, replace(HARDWARE["h100"], overhead=0.0), Training(), "test")
    whole, halves = model(straight(2, (512,))), model(straight(2, (256, 256)))
    assert sum(halves.forward[:2]) > 1.2 * whole.forward[0]


def machine(**training: Any) -> CostModel:
    return model_on_hardware(LLAMA, replace(HARDWARE["h100"], overhead=0.0), Training(**training), "test")


def test_twice_the_sequences_cost_twice_the_bytes_and_less_than_twice_the_time() -> None:
    layout = straight(4, (2048, 2048))
    once, twice = machine()(layout), machine(batch_size=2)(layout)
    assert list(twice.transfer) == [2 * cost for cost in once.transfer]
    for one, two in zip(once.forward, twice.forward, strict=True):
        assert 1.5 * one < two < 2 * one


def test_tensor_parallelism_divides_the_work_and_adds_its_collectives() -> None:
    layout = straight(4, (8192,))
    whole, parts = machine()(layout), machine(tensor_parallel=4)(layout)
    for one, four in zip(whole.forward, parts.forward, strict=True):
        assert one / 4 < four < one / 2
    assert list(parts.backward_weight) == pytest.approx([cost / 4 for cost in whole.backward_weight])
    assert list(parts.transfer) == pytest.approx([cost / 4 for cost in whole.transfer])


def test_checkpointing_runs_the_layers_again_and_no_more() -> None:
    layout = straight(4, (8192,), layers=(0, 0, 16, 16))
    kept, again = machine()(layout), machine(checkpointing=True)(layout)
    assert list(again.forward) == list(kept.forward)
    assert list(again.backward_weight) == list(kept.backward_weight)
    assert list(again.backward[:2]) == list(kept.backward[:2]), "the embedding is not run again"
    assert again.backward[2] == pytest.approx(kept.backward[2] + kept.forward[2])
    assert again.backward_input[2] == pytest.approx(kept.backward_input[2] + kept.forward[2])


def test_replicas_lengthen_the_step_and_nothing_in_it() -> None:
    layout = straight(4, (8192,))
    alone, four = machine()(layout), machine(replicas=4)(layout)
    assert list(four.forward) == list(alone.forward)
    assert four.after_step > alone.after_step


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        ({"tensor_parallel": 3}, "tensor_parallel 3 does not divide the 8 key and value heads"),
        ({"tensor_parallel": 16}, "tensor_parallel 16 does not divide the 8 key and value heads"),
    ],
)
def test_a_model_that_cannot_be_divided_is_refused(training: dict[str, int], reason: str) -> None:
    with pytest.raises(CostError, match=reason):
        machine(**training)
    small = replace(HARDWARE["h100"], gpus_per_node=4)
    with pytest.raises(CostError, match="does not divide the 4 GPUs of a node"):
        model_on_hardware(LLAMA, small, Training(tensor_parallel=8), "test")


def test_devices_sit_on_nodes_as_their_ranks_do() -> None:
    layout = replace(straight(4, (64,), devices=4), ranks=(0, 2, 1, 3))
    model = model_on_hardware(
        LLAMA, replace(HARDWARE["h100"], gpus_per_node=4), Training(tensor_parallel=2), "test"
    )
    joined = model(layout).network
    assert joined.nodes == (0, 1, 0, 1)
    assert joined.link(0, 2) == joined.near
    assert joined.link(0, 1) == joined.far
    assert joined.far.latency > joined.near.latency
    assert joined.far.slowness > joined.near.slowness


def test_every_figure_says_on_which_clock_it_is() -> None:
    caption = machine(tensor_parallel=2, batch_size=3, replicas=2, checkpointing=True)(
        straight(2, (64,))
    ).caption
    for word in ("seconds", "bfloat16", "3 sequences", "tensor parallel 2", "2 replicas", "checkpointing"):
        assert word in caption


def test_layers_that_are_not_the_models_are_refused() -> None:
    with pytest.raises(CostError, match=r"\[1, 1\] add up to 2, the model has 32 \(llama3-8b-h100\)"):
        costs.named("llama3-8b-h100")(straight(2, (64,), layers=(1, 1)))


JUNK = {
    "": "no cost model ''",
    "x": "no cost model 'x'",
    "-": "no cost model '-'",
    "Unit": "did you mean 'unit'",
    "llama3-8b-h1000": "did you mean 'llama3-8b-h100'",
    "llama3-8b": "did you mean 'work:llama3-8b'",
    "work:": "no model ''",
    "work:llama-8b": "did you mean 'llama3-8b'",
    "work:unit": "no model 'unit'",
    "missing.json": "missing.json cannot be read: No such file",
    "missing.toml": "missing.toml cannot be read: No such file",
    "work:missing.toml": "missing.toml cannot be read: No such file",
    "folder.json": "folder.json cannot be read: Is a directory",
    "folder.toml": "folder.toml cannot be read: Is a directory",
    "nul\0.json": "embedded null byte",
    "nul\0.toml": "embedded null byte",
    "work:nul\0.toml": "embedded null byte",
    "ключ\u2028": "no cost model",
}


@pytest.mark.parametrize("name", JUNK)
def test_a_name_that_is_none_is_answered_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(CostError) as caught:
        costs.named(name)
    assert JUNK[name] in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=12))
def test_any_word_is_a_cost_model_or_an_answer(name: str) -> None:
    with suppress(CostError):
        costs.named(name)


TOML = """
[model]
layers = 2
hidden = 64
heads = 4
kv_heads = 2
ffn = 96
vocabulary = 100
[hardware]
peak_flops = 1e12
bandwidth = 1_000_000_000
"""

SLIPS = {
    "an unknown table": (TOML + "[modell]\n", "unknown key 'modell'; did you mean 'model'?"),
    "no model": (TOML[TOML.index("[hardware]") :], "[model] is missing"),
    "an unknown key": (
        TOML.replace("heads = 4", "head = 4"),
        "[model]: unknown key 'head'; did you mean 'heads'?",
    ),
    "no such family": (TOML.replace("layers = 2", 'family = "lama"'), "'lama' is not one of llama, gpt"),
    "heads that do not divide": (TOML.replace("heads = 4", "heads = 5", 1), "heads: 5 heads do not divide"),
    "no layers": (TOML.replace("layers = 2", "layers = 0"), "layers: 0 is not a whole number of at least 1"),
    "half a layer": (
        TOML.replace("layers = 2", "layers = 1.5"),
        "layers is 1.5, where a whole number belongs",
    ),
    "a word for a number": (
        TOML.replace("layers = 2", 'layers = "two"'),
        "layers is 'two', where a whole number",
    ),
    "yes for a number": (TOML.replace("layers = 2", "layers = true"), "layers is True, where a whole number"),
    "a number beyond all bounds": (
        TOML.replace("hidden = 64", f"hidden = {10**400}"),
        "where a whole number belongs",
    ),
    "no speed": (TOML.replace("peak_flops = 1e12", ""), "[hardware]: 'peak_flops' is missing"),
    "speed zero": (TOML.replace("1e12", "0"), "peak_flops: must be more than 0"),
    "infinite speed": (TOML.replace("1e12", "inf"), "peak_flops is inf, where a number belongs"),
    "no number": (TOML.replace("1e12", "nan"), "peak_flops is nan, where a number belongs"),
    "negative latency": (TOML + "latency = -1e-6\n", "latency: must not be less than 0"),
    "a list for a table": ("model = [1]\n[hardware]\npeak_flops = 1", "[model] must be a table"),
    "no such preset": ('[model]\npreset = "llama"\n', "[model]: preset 'llama' is none of llama3-1b"),
    "a preset that is no word": ("[model]\npreset = [1]\n", "[model]: preset [1] is none of"),
    "a preset and a slip": (
        '[model]\npreset = "gpt-7b"\nlayer = 2\n',
        "unknown key 'layer'; did you mean 'layers'?",
    ),
    "half a GPU": (TOML + "gpus_per_node = 0\n", "gpus_per_node: must be more than 0"),
    "no precision": (TOML + "[training]\nprecision = 'fp8'\n", "precision: 'fp8' is none of bfloat16"),
    "no replica": (TOML + "[training]\nreplicas = 0\n", "replicas: must be at least 1"),
    "a config that is no path": ("[model]\nconfig = 1\n", "config is 1, where the path of a file belongs"),
    "a config and more": ('[model]\nconfig = "config.json"\nlayers = 1\n', "unknown key 'layers'"),
    "a key twice": ("[model]\nlayers = 1\nlayers = 2\n", "is not TOML"),
    "JSON": ('{"model": {}}', "is not TOML"),
    "binary": ("\x00\x01", "is not TOML"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_in_a_model_file_is_told_with_file_table_and_key(slip: str, tmp_path: Path) -> None:
    text, reason = SLIPS[slip]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CostError) as caught:
        costs.named(str(path))
    assert str(caught.value).startswith(str(path))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 350


@pytest.mark.parametrize(
    "slip", ["an unknown table", "no model", "an unknown key", "no such preset", "binary"]
)
def test_work_of_a_model_file_is_as_strict(slip: str, tmp_path: Path) -> None:
    text, reason = SLIPS[slip]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CostError) as caught:
        costs.named(f"work:{path}")
    assert reason in str(caught.value)


def test_a_model_file_prices_by_its_shape_and_machine(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    prices = costs.named(str(path))(straight(2, (512, 512)))
    assert prices.transfer[0] == 2 * 64 * 512 / 1e9
    assert costs.model_shape(str(path)).kv_heads == 2
    assert costs.named(f"work:{path}")(straight(2, (512, 512))).clock == "unit"
    path.write_text('[model]\npreset = "llama3-8b"\n[hardware]\npreset = "h100"\n')
    layout = straight(2, (512, 512))
    assert costs.named(str(path))(layout).forward == costs.named("llama3-8b-h100")(layout).forward
    path.write_text('[model]\npreset = "llama3-8b"\nlayers = 2\n[hardware]\npreset = "h100"\nlatency = 0.5\n')
    own = costs.named(str(path))
    assert own.shape == replace(LLAMA, layers=2)
    assert own(layout).network.near.latency == 0.5


TIMES = Profile(
    machine="test bench",
    actions=(
        ActionTime(0, 0, "F", 0, 4, 1.0),
        ActionTime(0, 0, "F", 4, 6, 2.0),
        ActionTime(0, 0, "B", 0, 4, 3.0),
        ActionTime(0, 0, "I", 4, 6, 4.0),
        ActionTime(0, 0, "W", 4, 6, 0.5),
        ActionTime(1, 1, "F", 0, 4, 5.0),
        ActionTime(1, 1, "F", 4, 6, 6.0),
        ActionTime(1, 1, "B", 0, 4, 7.0),
        ActionTime(1, 1, "B", 4, 6, 8.0),
        ActionTime(0, 1, "F", 0, 4, 9.0),
    ),
    latency=0.1,
    seconds_per_token=0.01,
    reductions=(0.25, 0.75),
    after_step=2.0,
)


def test_a_profile_prices_what_was_measured() -> None:
    prices = measured(TIMES, "mine")(straight(2, (4, 2)))
    assert list(prices.forward) == [1, 2, 5, 6]
    assert list(prices.backward) == [3, 4.5, 7, 8], "B where it was not measured is I + W"
    assert list(prices.backward_input) == [3, 4, 7, 8], "I where it was not measured is all of B"
    assert list(prices.backward_weight) == [0, 0.5, 0, 0]
    assert list(prices.transfer) == pytest.approx([0.04, 0.02, 0.04, 0.02])
    assert prices.network == Network(Link(0.1, 1.0))
    assert (list(prices.reduction), prices.after_step) == ([0.25, 0.75], 2.0)
    assert "test bench" in prices.caption


def test_a_stage_is_priced_on_its_own_device_and_else_as_on_another() -> None:
    both = Layout(2, (4, 4), ((4,), (4,)), (Direction("down", (0, 1), (0,)), Direction("up", (1, 0), (1,))))
    prices = measured(TIMES, "mine")(both)
    # Stage 0 was measured on device 0 alone, stage 1 on both.
    assert list(prices.forward) == [1, 1, 5, 9]


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (straight(2, (3, 3)), "mine has no time for stage 0 on tokens 0 to 3"),
        (straight(2, (4, 2, 2)), "mine has no time for stage 0 on tokens 6 to 8"),
        (straight(4, (4, 2)), "mine was measured with 2 stages, this layout has 4"),
    ],
)
def test_a_profile_of_another_layout_is_refused(layout: Layout, reason: str) -> None:
    with pytest.raises(CostError, match=reason):
        measured(TIMES, "mine")(layout)


def test_a_profile_is_read_back(tmp_path: Path) -> None:
    assert profile.loads(profile.dumps(TIMES)) == TIMES
    path = tmp_path / "mine.json"
    path.write_text(profile.dumps(TIMES))
    assert list(costs.named(str(path))(straight(2, (4, 2))).forward) == [1, 2, 5, 6]
    with pytest.raises(CostError, match=r"mine\.json holds times and no model; name one as work:MODEL"):
        costs.model_behind(str(path))


def test_profiles_of_several_devices_count_at_the_slowest() -> None:
    other = Profile("test bench", (ActionTime(1, 1, "W", 0, 4, 1.0),), 0.3, 0.001, (0.5, 0.5), 1.0)
    merged = profile.merge([TIMES, other])
    assert merged.actions == TIMES.actions + other.actions
    assert (merged.latency, merged.seconds_per_token, merged.reductions, merged.after_step) == (
        0.3,
        0.01,
        (0.5, 0.75),
        2.0,
    )
    assert profile.merge([TIMES]) == TIMES


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("contraflow.profile/1", "contraflow.schedule/1", 'not an object with "format"'),
        ('"latency": 0.1', '"latency": -0.1', "-0.1 is no time"),
        ('"latency": 0.1', '"latency": NaN', "nan is no time"),
        ('"latency": 0.1', '"latency": 1e999', "inf is no time"),
        ('"latency": 0.1', f'"latency": {10**400}', "too large"),
        ('"latency": 0.1', '"latency": null', "NoneType"),
        ('"latency": 0.1', '"latency": "soon"', "soon"),
        ('"latency": 0.1', '"lag": 0.1', "'latency' is missing"),
        ('"after_step": 2.0', '"after_step": [2.0]', "list"),
        ('"reductions"', '"reductions": 1, "other"', "is not a profile"),
        ('"actions"', '"actions": [[1, 2]], "other"', "is not a profile"),
        ('"actions"', '"actions": {}, "other": 1, "more"', None),
    ],
)
def test_a_spoiled_profile_is_answered_in_one_line(
    old: str, new: str, reason: str | None, tmp_path: Path
) -> None:
    text = profile.dumps(TIMES)
    assert text.count(old) == 1
    path = tmp_path / "mine.json"
    path.write_text(text.replace(old, new))
    with pytest.raises(CostError) as caught:
        costs.named(str(path))(straight(2, (4, 2)))
    assert str(path) in str(caught.value)
    assert reason is None or reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe\x00", b"{" * 100_000, b"[" * 100_000, b"7"])
def test_what_is_no_profile_is_answered_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(CostError, match="is not a profile") as caught:
        costs.named(str(path))
    assert "\n" not in str(caught.value)
