"""Which rank plays which device: the named mappings, what crosses between nodes, and that `best` is no worse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer import costs, topology
from contraflow.designer.costs.hardware import model_on_hardware
from contraflow.designer.costs.presets import HARDWARE, MODELS
from contraflow.designer.costs.prices import CostModel
from contraflow.designer.costs.training import Training
from contraflow.designer.design import Design, DesignError, carried, make, parted, preview
from contraflow.designer.format.schedule import Layout, Schedule

LLAMA = MODELS["llama3-8b"]


def nodes_of(per_node: int, **training: int) -> CostModel:
    hardware = replace(HARDWARE["h100"], gpus_per_node=per_node)
    return model_on_hardware(LLAMA, hardware, Training(**training), "test")


def bidirectional(devices: int = 8) -> Layout:
    return make(Design("bsipipe", devices=devices, microbatches=2, subsequences=2, sequence=2048)).layout


def crossing(layout: Layout, ranks: tuple[int, ...], model: CostModel) -> topology.Traffic:
    mapped = replace(layout, ranks=ranks)
    assert model.footprint is not None
    assert model.training is not None
    num_gpus = model.training.tensor_parallel
    return topology.traffic(mapped, model(mapped).network, model.footprint(mapped), num_gpus)


@given(st.sampled_from(list(topology.MAPPINGS)), st.integers(1, 24), st.integers(1, 8))
def test_a_mapping_is_a_permutation(name: str, devices: int, per_node: int) -> None:
    assert sorted(topology.MAPPINGS[name](devices, per_node)) == list(range(devices))


@pytest.mark.parametrize(
    ("name", "per_node", "nodes"),
    [
        ("linear", 4, [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        ("interleave", 4, [{0, 1, 6, 7}, {2, 3, 4, 5}]),
        ("fold", 4, [{0, 1, 6, 7}, {2, 3, 4, 5}]),
        ("interleave", 2, [{0, 7}, {1, 6}, {2, 5}, {3, 4}]),
        ("fold", 8, [set(range(8))]),
    ],
)
def test_which_devices_share_a_node(name: str, per_node: int, nodes: list[set[int]]) -> None:
    ranks = topology.MAPPINGS[name](8, per_node)
    assert [{d for d in range(8) if ranks[d] // per_node == node} for node in range(len(nodes))] == nodes


def test_what_crosses_by_hand() -> None:
    layout, model = bidirectional(), nodes_of(4)
    token = 2 * LLAMA.hidden
    # Linear: each microbatch passes the border between devices 3 and 4 twice, there and back, in F and in B.
    linear = crossing(layout, topology.linear(8, 4), model)
    assert linear.messages == 2 * 4 * 2048 * token
    # Of 16 stages every one has its copies on both nodes: float32 gradients one way, bfloat16 weights the other.
    assert linear.reductions == pytest.approx(
        (4 + 2) * (weights() + 2 * LLAMA.vocabulary * LLAMA.hidden), rel=1e-3
    )
    # Folded: the stretches 1-2 and 5-6 cross, each twice; no copy does.
    folded = crossing(layout, topology.folded(8, 4), model)
    assert folded.messages == 2 * linear.messages
    assert folded.reductions == 0
    assert folded.total < linear.total


def weights() -> int:
    return LLAMA.layers * LLAMA.layer_matrix_weights


def test_tensor_parallelism_fills_nodes_and_sends_as_much() -> None:
    layout = bidirectional()
    whole, halves = nodes_of(4), nodes_of(8, tensor_parallel=2)
    ranks = topology.linear(8, 4)
    assert halves(layout).network.nodes == whole(layout).network.nodes == (0, 0, 0, 0, 1, 1, 1, 1)
    one, two = crossing(layout, ranks, whole), crossing(layout, ranks, halves)
    assert two.messages == one.messages
    assert two.reductions == pytest.approx(one.reductions, rel=1e-2)


@given(schedule=st.from_type(Schedule), per_node=st.integers(1, 4))
def test_the_best_mapping_spends_no_more_between_nodes_than_any_named(
    schedule: Schedule, per_node: int
) -> None:
    layout = replace(schedule.layout, layers=None)
    model = nodes_of(per_node)
    ranks = topology.best(layout, model)
    assert sorted(ranks) == list(range(layout.num_devices))
    spent = {
        name: seconds(layout, make(layout.num_devices, per_node), model)
        for name, make in topology.MAPPINGS.items()
    }
    assert seconds(layout, ranks, model) <= min(spent.values()) * (1 + 1e-9)


def seconds(layout: Layout, ranks: tuple[int, ...], model: CostModel) -> float:
    """What messages between nodes take beyond what they would within one, each alone."""
    prices = model(replace(layout, ranks=ranks))
    near, far = prices.network.near, prices.network.far
    total = 0.0
    for microbatch, split in enumerate(layout.splits):
        for stage in range(layout.num_stages - 1):
            ends = (layout.device_of(stage, microbatch), layout.device_of(stage + 1, microbatch))
            for subsequence in range(len(split)):
                if prices.network.crosses(*ends):
                    transfer = prices.transfer[layout.slot(stage, microbatch, subsequence)]
                    total += 2 * (far.latency - near.latency + (far.slowness - near.slowness) * transfer)
    for stage, copies in enumerate(layout.copies):
        for device in copies:
            if prices.network.crosses(device, layout.owners[stage]):
                slower = (far.slowness - near.slowness) * prices.reduction[stage]
                total += 2 * (far.latency - near.latency + slower)
    return total


def test_a_straight_pipeline_stays_linear_and_mirrors_fold() -> None:
    straight = make(Design("seq1f1b", devices=8, ranks="best", costs="llama3-8b-h100", sequence=4096))
    assert straight.layout.ranks == tuple(range(8))
    ranks = topology.best(bidirectional(), nodes_of(4))
    assert {frozenset(d for d in range(8) if ranks[d] // 4 == node) for node in (0, 1)} == {
        frozenset({0, 1, 6, 7}),
        frozenset({2, 3, 4, 5}),
    }


def test_ranks_are_a_knob_of_a_design() -> None:
    design = Design("bsipipe", devices=8, ranks="fold", sequence=2048, subsequences=2)
    schedule = make(design)
    assert schedule.layout.ranks == topology.folded(8, 8)
    assert carried(schedule) == design
    assert not parted(schedule, design)
    assert parted(replace(schedule, layout=replace(schedule.layout, ranks=None)), design)
    listed = replace(design, ranks=(0, 2, 4, 6, 7, 5, 3, 1))
    assert make(listed).layout.ranks == (0, 2, 4, 6, 7, 5, 3, 1)


@pytest.mark.parametrize(
    ("design", "reason"),
    [
        (Design(ranks="folded"), "no mapping 'folded'; there are linear, interleave, fold, best"),
        (Design(ranks="best", costs="unit"), "unit knows no nodes: --ranks needs --costs MODEL-HARDWARE"),
        (Design(ranks=(0, 1, 2, 2)), "--ranks lists each of 0 to 3 once"),
        (Design(ranks=(0, 1)), "--ranks lists each of 0 to 3 once"),
    ],
)
def test_ranks_that_are_none_are_refused(design: Design, reason: str) -> None:
    with pytest.raises(DesignError, match=reason):
        make(design)


def test_an_order_is_priced_on_its_ranks() -> None:
    schedule = make(Design("bsipipe", devices=8, subsequences=2, sequence=8192))
    model = nodes_of(4)
    steps = {
        name: preview(replace(schedule, layout=replace(schedule.layout, ranks=ranks(8, 4))), model).step
        for name, ranks in topology.MAPPINGS.items()
    }
    assert steps["fold"] < steps["linear"]
    assert steps["fold"] == steps["interleave"]


def test_costs_without_a_model_know_no_bytes() -> None:
    schedule = make(Design("bsipipe", devices=8, microbatches=2, subsequences=2, sequence=2048))
    assert preview(schedule, costs.named("unit")).traffic is None
