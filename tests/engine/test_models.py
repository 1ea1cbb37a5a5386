"""The models against plain PyTorch, and parameters that do not depend on how layers are laid out over stages."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer.format.model import ModelShape
from contraflow.engine.kv import KeyValues
from contraflow.engine.models import build
from contraflow.engine.models.protocol import StageModule, Subsequence, TiedStageModule
from contraflow.kernels import reference, rope
from contraflow.kernels.attention import choose

LLAMA = ModelShape("llama", layers=3, hidden=24, heads=4, kv_heads=2, ffn=40, vocabulary=29)
GPT = replace(LLAMA, family="gpt", positions=32)
SHAPES = pytest.mark.parametrize(
    "shape",
    [replace(shape, tied=tied) for shape in (LLAMA, GPT) for tied in (False, True)],
    ids=lambda shape: f"{shape.family}-{'tied' if shape.tied else 'untied'}",
)


def whole(shape, **kind):
    return build(shape, range(shape.layers), first=True, last=True, **kind)


def alone(num_tokens, **targets):
    """The context of a microbatch that is one subsequence."""
    key_values = KeyValues(0, [num_tokens], choose("cpu", torch.float64))
    return Subsequence(0, 0, 0, num_tokens, key_values, **targets)


def batch(shape):
    generator = torch.Generator().manual_seed(1)
    ids, targets = torch.randint(shape.vocabulary, (2, 2, 11), generator=generator)
    targets[0, 4] = -100
    return ids, targets


def plain_loss(shape, weights, ids, targets):
    """The loss of the whole model, written out over its named parameters."""

    def linear(x, name):
        return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(x, name):
        if shape.family == "llama":
            return reference.rms_norm(x, weights[f"{name}.weight"], 1e-5)
        return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    def heads(x, name, turn=False):
        x = linear(x, name).view(*ids.shape, -1, shape.head_dim)
        turns = rope.rotation(ids.shape[1], rope.frequencies(shape.head_dim, 10_000.0), x.dtype)
        return (reference.rotate(x, turns) if turn else x).transpose(1, 2)

    def attention(x, name):
        turn = shape.family == "llama"
        q, k = heads(x, f"{name}.query", turn), heads(x, f"{name}.key", turn)
        v = heads(x, f"{name}.value")
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return linear(out.transpose(1, 2).flatten(-2), f"{name}.output")

    def ffn(x, name):
        if shape.family == "llama":
            return linear(F.silu(linear(x, f"{name}.gate")) * linear(x, f"{name}.up"), f"{name}.down")
        return linear(F.gelu(linear(x, f"{name}.up"), approximate="tanh"), f"{name}.down")

    hidden = weights["embedding.weight"][ids]
    if shape.family == "gpt":
        hidden = hidden + weights["positions.weight"][: ids.shape[1]]
    for number in range(shape.layers):
        name = f"layers.{number}"
        hidden = hidden + attention(norm(hidden, f"{name}.attention_norm"), f"{name}.attention")
        hidden = hidden + ffn(norm(hidden, f"{name}.ffn_norm"), f"{name}.ffn")
    head = weights["embedding.weight" if shape.tied else "head.weight"]
    logits = norm(hidden, "norm") @ head.T
    summed = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
    return summed / (targets != -100).sum()


@SHAPES
def test_loss_and_gradients_are_those_of_plain_pytorch(shape):
    ids, targets = batch(shape)
    model = whole(shape, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():  # biases of zero and norms of one would hide their absence
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    weights = {
        name: parameter.detach().clone().requires_grad_() for name, parameter in model.named_parameters()
    }
    wanted = plain_loss(shape, weights, ids, targets)
    wanted.backward()
    loss = model(ids, alone(11, targets=targets, num_targets=int((targets != -100).sum())))
    loss.backward()
    assert abs(loss - wanted) <= 1e-13 * wanted
    for name, parameter in model.named_parameters():
        difference = (parameter.grad - weights[name].grad).abs().max()
        assert difference <= 1e-12 * weights[name].grad.abs().max(), name


@SHAPES
@given(data=st.data())
def test_parameters_depend_on_seed_and_name_alone(shape, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, shape.layers), max_size=3)))
    bounds = [0, *cuts, shape.layers]
    stages = [
        build(shape, range(start, stop), first=number == 0, last=number == len(cuts), seed=5)
        for number, (start, stop) in enumerate(pairwise(bounds))
    ]
    wanted = dict(whole(shape, seed=5).named_parameters())
    found = [item for stage in stages for item in stage.named_parameters()]
    for name, parameter in found:
        assert torch.equal(parameter, wanted[name]), name
    copies = 2 if shape.tied and len(stages) > 1 else 1
    names = sorted(name for name, _ in found)
    assert names == sorted([*wanted, *["embedding.weight"] * (copies - 1)])


@SHAPES
def test_precisions_start_from_the_same_numbers_and_seeds_do_not(shape):
    single, double, other = (
        dict(whole(shape, **kind).named_parameters())
        for kind in ({"dtype": torch.float32}, {"dtype": torch.float64}, {"seed": 1})
    )
    matrices = [name for name, parameter in single.items() if parameter.dim() == 2]
    for name, parameter in single.items():
        assert torch.equal(parameter, double[name].float()), name
    assert not any(torch.equal(single[name], other[name]) for name in matrices)
    assert len({single[name][0, 0].item() for name in matrices}) == len(matrices)


@SHAPES
def test_a_stage_is_what_the_protocol_asks_for(shape):
    stage: StageModule = whole(shape)
    assert isinstance(stage, TiedStageModule)
    assert (stage.tied is not None) == shape.tied
    middle = build(shape, range(1, 2), first=False, last=False)
    assert middle.tied is None


def test_tied_stages_hold_one_embedding_or_a_copy_until_they_are_tied():
    shape = replace(LLAMA, tied=True)
    both = whole(shape)
    assert both.head.weight is both.embedding.weight
    first = build(shape, range(2), first=True, last=False)
    last = build(shape, range(2, 3), first=False, last=True)
    assert last.tied is not first.tied
    last.tie(first.tied)
    assert last.tied is last.head.weight is first.embedding.weight
    assert "head.weight" not in dict(last.named_parameters())


@SHAPES
def test_a_stage_without_layers_hands_on_what_it_gets(shape):
    hidden = torch.randn(2, 3, shape.hidden)
    assert torch.equal(build(shape, range(1, 1), first=False, last=False)(hidden, alone(3)), hidden)


def test_a_position_that_was_not_learned_is_refused():
    ids = torch.zeros(1, GPT.positions + 1, dtype=torch.int64)
    stage = build(GPT, range(0), first=True, last=False)
    stage(ids[:, 1:], alone(GPT.positions))
    with pytest.raises(IndexError, match=r"position 32 .* has 32"):
        stage(ids, alone(GPT.positions + 1))


def test_the_last_stage_asks_for_targets():
    with pytest.raises(ValueError, match="needs targets"):
        build(LLAMA, range(0), first=False, last=True)(torch.randn(1, 2, LLAMA.hidden), alone(2))
