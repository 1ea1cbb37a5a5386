"""Any split of the sequences, in any order that the rules allow, gives the whole model's loss and gradients."""

import gc
import random
import weakref
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from contraflow.designer.format.model import ModelShape
from contraflow.engine.models import build
from contraflow.engine.stage import Stage
from contraflow.engine.weight_grads import Linear
from contraflow.kernels.attention import choose

LLAMA = ModelShape("llama", layers=3, hidden=16, heads=4, kv_heads=2, ffn=24, vocabulary=23)
GPT = replace(LLAMA, family="gpt", positions=64)
FLASH = choose("cpu", torch.float64)


def stages_of(shape, cuts, dtype=torch.float64):
    """One stage per slice of layers between the cuts."""
    slices = [range(start, stop) for start, stop in pairwise([0, *cuts, shape.layers])]
    ends = [{"first": s == 0, "last": s == len(cuts)} for s in range(len(slices))]
    modules = [build(shape, layers, dtype=dtype, **end) for layers, end in zip(slices, ends, strict=True)]
    return [Stage(module, FLASH) for module in modules]


class Step:
    """One step over stages in one process: every action, and the tensors that wait between them."""

    def __init__(self, stages, splits, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.stages, self.splits, self.loss = stages, splits, 0.0
        self.ids = [torch.randint(23, (2, sum(lengths)), generator=generator) for lengths in splits]
        self.targets = [torch.randint(23, (2, sum(lengths)), generator=generator) for lengths in splits]
        self.targets[0][0, 0] = -100
        self.num_targets = sum(int((targets != -100).sum()) for targets in self.targets)
        self.outputs, self.grads = {}, {}

    def run(self, kind, s, m, q):
        last = s == len(self.stages) - 1
        if kind == "F":
            lengths = self.splits[m]
            ids, targets = (tensors[m].split(lengths, dim=1)[q] for tensors in (self.ids, self.targets))
            x = ids if s == 0 else self.outputs.pop((s - 1, m, q))
            given = {"targets": targets, "num_targets": self.num_targets} if last else {}
            out = self.stages[s].forward(m, q, x, splits=lengths, **given)
            if last:
                self.loss += out.item()
            else:
                self.outputs[s, m, q] = out
        elif kind == "W":
            self.stages[s].backward_weight(m, q)
        else:
            backward = self.stages[s].backward if kind == "B" else self.stages[s].backward_input
            grad = backward(m, q, None if last else self.grads.pop((s + 1, m, q)))
            if s > 0:
                self.grads[s, m, q] = grad
            else:
                assert grad is None

    def actions(self, deferred):
        """Every action with those that it waits for; `deferred(s, m, q)` says whether a backward is an I and a W.

        A microbatch goes back once all of it has gone forward, as its last subsequence must.
        """
        places = [
            (s, m, q)
            for s in range(len(self.stages))
            for m, k in enumerate(self.splits)
            for q in range(len(k))
        ]
        kinds = {place: "I" if deferred(*place) else "B" for place in places}
        waits = {}
        for s, m, q in places:
            kind, last = kinds[s, m, q], len(self.splits[m]) - 1
            waits["F", s, m, q] = [("F", s - 1, m, q), ("F", s, m, q - 1)]
            later = [(kinds[place], *place) for place in ((s + 1, m, q), (s, m, q + 1)) if place in kinds]
            waits[kind, s, m, q] = [("F", s, m, last), *later]
            if kind == "I":
                waits["W", s, m, q] = [("I", s, m, q)]
        return waits

    def run_in_some_order(self, rng, deferred):
        """Each time any action whose waits are over."""
        waits = self.actions(deferred)
        while waits:
            action = rng.choice(
                [action for action, before in waits.items() if waits.keys().isdisjoint(before)]
            )
            self.run(*action)
            del waits[action]

    def gradients(self):
        """Of every parameter by name, the copies of a tied one added up."""
        grads = {}
        for flat in {id(flat): flat for stage in self.stages for flat in stage.groups}.values():
            for name, parameter in zip(flat.names, flat.parameters, strict=True):
                grads[name] = grads.get(name, 0) + parameter.grad.clone()
        return grads


def whole_step(shape, splits, dtype=torch.float64):
    """Loss and gradients of the model in one stage, on the same microbatches without subsequences."""
    step = Step(stages_of(shape, [], dtype), [[sum(lengths)] for lengths in splits])
    for m in range(len(splits)):
        step.run("F", 0, m, 0)
        step.run("B", 0, m, 0)
    return step.loss, step.gradients()


def assert_same(step, wanted, tolerance=1e-12):
    loss, grads = wanted
    found = step.gradients()
    assert abs(step.loss - loss) <= tolerance * loss
    assert found.keys() == grads.keys()
    for name, grad in grads.items():
        assert (found[name] - grad).abs().max() <= tolerance * grad.abs().max(), name
    for stage in step.stages:
        stage.assert_empty()
    assert not step.outputs
    assert not step.grads


# Over a single token attention's queries and keys have no gradient: what is left is rounding.
lengths = st.lists(st.integers(1, 7), min_size=1, max_size=4).filter(lambda lengths: sum(lengths) > 1)


@settings(max_examples=60)
@given(
    shape=st.builds(
        replace, st.sampled_from([LLAMA, GPT]), tied=st.booleans(), kv_heads=st.sampled_from([1, 2, 4])
    ),
    cuts=st.lists(st.integers(0, 3), max_size=3).map(sorted),
    splits=st.lists(lengths, min_size=1, max_size=3),
    order=st.integers(0, 2**32),
    one_device=st.booleans(),
)
def test_any_split_in_any_order_gives_the_whole_models_gradients(shape, cuts, splits, order, one_device):
    rng = random.Random(order)
    stages = stages_of(shape, cuts)
    if shape.tied and one_device and len(stages) > 1:
        stages[-1].tie(stages[0])
    step = Step(stages, splits)
    step.run_in_some_order(rng, lambda s, m, q: rng.random() < 0.5)
    assert_same(step, whole_step(shape, splits))


@pytest.mark.parametrize("shape", [LLAMA, GPT], ids=lambda shape: shape.family)
def test_in_single_precision_the_gradients_agree_to_its_rounding(shape):
    splits = [[5, 9, 3], [17]]
    step = Step(stages_of(shape, [1, 2], torch.float32), splits)
    step.run_in_some_order(random.Random(0), lambda s, m, q: True)
    assert_same(step, whole_step(shape, splits, torch.float32), tolerance=1e-5)


def test_two_directions_share_a_stage():
    splits = [[4, 2], [3, 3]]
    stages = stages_of(LLAMA, [2])
    step = Step(stages, splits)
    for action in ["F00", "F01", "F10", "F11"]:
        for m in (0, 1):
            step.run(action[0], int(action[1]), m, int(action[2]))
    for action in ["B11", "B01", "B10", "B00"]:
        for m in (1, 0):
            step.run(action[0], int(action[1]), m, int(action[2]))
    assert_same(step, whole_step(LLAMA, splits))


def test_gradients_add_up_in_place_until_they_are_zeroed():
    (stage,) = stages_of(replace(LLAMA, tied=True), [])
    buffers = [flat.grad for flat in stage.groups]
    once = whole_step(replace(LLAMA, tied=True), [[6]])[1]
    for times in (1, 2):
        step = Step([stage], [[2, 4]])
        step.run_in_some_order(random.Random(times), lambda s, m, q: q == 1)
        for name, grad in step.gradients().items():
            assert torch.allclose(grad, times * once[name], rtol=1e-10, atol=1e-14), name
    for flat, buffer in zip(stage.groups, buffers, strict=True):
        assert flat.grad is buffer
        for parameter in flat.parameters:
            for view, base in ((parameter, flat.data), (parameter.grad, flat.grad)):
                assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    stage.zero_gradients()
    assert not any(parameter.grad.any() for parameter in stage.module.parameters())


def test_flat_buffers_hold_each_parameter_once_and_the_tied_one_apart():
    shape = replace(LLAMA, tied=True)
    first, middle, last = stages = stages_of(shape, [1, 2])
    before = {
        name: parameter.clone() for stage in stages for name, parameter in stage.module.named_parameters()
    }
    assert first.tied.names == last.tied.names == ("embedding.weight",)
    assert middle.tied is None
    assert "embedding.weight" not in first.own.names + last.own.names
    assert "norm.weight" in last.own.names
    last.tie(first)
    assert last.tied is first.tied
    assert last.module.head.weight is first.module.embedding.weight
    for flat in (first.own, middle.own, last.own, first.tied):
        flat.data.mul_(2)
        for name, parameter in zip(flat.names, flat.parameters, strict=True):
            assert torch.equal(parameter, 2 * before[name]), name
    with pytest.raises(ValueError, match="in common"):
        middle.tie(first)


def live_tensors():
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize("deferred", [False, True], ids=["B", "I and W"])
def test_no_step_leaves_anything_behind(deferred):
    """Without the garbage collector, which would hide a cycle."""
    stages = stages_of(LLAMA, [1, 2])
    gc.collect()
    gc.disable()
    try:
        counts = []
        for _ in range(4):
            step = Step(stages, [[3, 2], [4]])
            step.run_in_some_order(random.Random(0), lambda s, m, q: deferred)
            del step
            counts.append(live_tensors())
    finally:
        gc.enable()
    assert counts == counts[:1] * 4


def test_an_output_lives_only_as_long_as_its_receiver_needs_it():
    stage = stages_of(LLAMA, [1])[0]
    out = stage.forward(0, 0, torch.zeros(1, 4, dtype=torch.int64), splits=[4])
    storage = weakref.ref(out.untyped_storage())
    grad = torch.ones_like(out)
    del out
    assert storage() is None
    stage.backward(0, 0, grad)
    assert stage.own.grad.any()


def test_an_input_is_kept_as_it_came_and_freed_by_its_backward():
    stage = stages_of(LLAMA, [1])[1]
    x = torch.randn(1, 3, 16, dtype=torch.float64)
    storage, address = weakref.ref(x.untyped_storage()), x.data_ptr()
    received = []
    stage.module.register_forward_pre_hook(lambda module, args: received.append(args[0].data_ptr()))
    stage.forward(0, 0, x, splits=[3], targets=torch.zeros(1, 3, dtype=torch.int64), num_targets=3)
    assert received == [address]
    assert not x.requires_grad
    del x
    assert storage() is not None
    grad = stage.backward_input(0, 0)
    assert grad.shape == (1, 3, 16)
    assert storage() is None


def test_without_gradients_nothing_is_kept():
    stages = stages_of(LLAMA, [2])
    step = Step(stages, [[2, 3]])
    with torch.no_grad():
        for q in (0, 1):
            for s in (0, 1):
                step.run("F", s, 0, q)
    for stage in stages:
        stage.assert_empty()
    assert step.loss == pytest.approx(whole_step(LLAMA, [[2, 3]])[0], rel=1e-13)


def test_actions_out_of_order_are_refused_by_name():
    (stage,) = stages_of(LLAMA, [])
    step = Step([stage], [[2, 2]])
    with pytest.raises(RuntimeError, match=r"forward of microbatch 0, subsequence 1 .* subsequence 0"):
        step.run("F", 0, 0, 1)
    with pytest.raises(RuntimeError, match="backward of microbatch 0, subsequence 0: no forward"):
        step.run("B", 0, 0, 0)
    step.run("F", 0, 0, 0)
    step.run("F", 0, 0, 1)
    with pytest.raises(
        RuntimeError, match=r"microbatch 0: backward of subsequence 0 .* subsequence 1 is due"
    ):
        step.run("B", 0, 0, 0)


def test_a_weight_action_needs_its_input_action_and_what_is_left_is_named():
    (stage,) = stages_of(LLAMA, [])
    step = Step([stage], [[2]])
    step.run("F", 0, 0, 0)
    with pytest.raises(RuntimeError, match=r"left over .* microbatch 0, subsequence 0"):
        stage.assert_empty()
    with pytest.raises(RuntimeError, match="microbatch 0, subsequence 0: no I"):
        step.run("W", 0, 0, 0)
    step.run("I", 0, 0, 0)
    with pytest.raises(RuntimeError, match="left over"):
        stage.assert_empty()
    with pytest.raises(RuntimeError, match="no forward"):
        step.run("I", 0, 0, 0)
    step.run("W", 0, 0, 0)
    stage.assert_empty()


def test_weight_products_wait_for_w_and_the_rest_belongs_to_i():
    (stage,) = stages_of(GPT, [])
    step = Step([stage], [[5]])
    step.run("F", 0, 0, 0)
    step.run("I", 0, 0, 0)
    products = {id(part.weight) for part in stage.module.modules() if isinstance(part, Linear)}
    for name, parameter in stage.module.named_parameters():
        assert parameter.grad.any() == (id(parameter) not in products), name
    step.run("W", 0, 0, 0)
    assert_same(step, whole_step(GPT, [[5]]))


class Foreign(nn.Module):
    """A user's stage: PyTorch's own layers, and a loss."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(23, 8, dtype=torch.float64)
        self.inner = nn.Linear(8, 3 * 8, dtype=torch.float64)
        self.outer = nn.Linear(8, 23, dtype=torch.float64)

    def forward(self, x, context):
        q, k, v = self.inner(self.table(x)).unflatten(-1, (3, 2, 4)).unbind(dim=2)
        logits = self.outer(context.attend(0, q, k, v).flatten(-2))
        lost = nn.functional.cross_entropy(logits.flatten(0, 1), context.targets.flatten(), reduction="sum")
        return lost / context.num_targets


def test_a_module_of_plain_layers_is_exact_too():
    torch.manual_seed(0)
    stage = Stage(Foreign(), FLASH)
    assert stage.tied is None
    whole = Step([stage], [[8]])
    whole.run("F", 0, 0, 0)
    whole.run("B", 0, 0, 0)
    wanted = whole.loss, whole.gradients()
    stage.zero_gradients()
    step = Step([stage], [[3, 1, 4]])
    step.run_in_some_order(random.Random(0), lambda s, m, q: True)
    assert_same(step, wanted)


def test_parameters_of_two_kinds_in_one_stage_are_refused():
    mixed = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2, dtype=torch.float64)})
    with pytest.raises(
        ValueError, match=r"a\.weight is torch\.float32 on cpu and b\.weight is torch\.float64 on cpu"
    ):
        Stage(mixed, FLASH)
