"""Hugging Face checkpoints, in and out, against Transformers' own logits on tiny random models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contraflow.designer.format.model import ModelShape
from contraflow.engine import huggingface, models
from contraflow.engine.huggingface import CheckpointError, open_weights
from contraflow.engine.kv import KeyValues
from contraflow.engine.models.protocol import Subsequence
from contraflow.kernels.attention import choose

SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LLAMA = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "rope_theta": 5000.0,
    "rms_norm_eps": 1e-6,
}
GPT = {"n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 40, "vocab_size": 101}
KINDS = {
    "llama": ("Llama", LLAMA | {"tie_word_embeddings": False}),
    "llama, tied": ("Llama", LLAMA | {"tie_word_embeddings": True}),
    "llama 3.1": ("Llama", LLAMA | {"rope_scaling": SCALING}),
    "gpt2": ("GPT2", GPT),
}


def published(kind: str, directory: Path, **saving: Any) -> Tensor:
    """A random model of Transformers, saved; returns its logits for `ids()`."""
    transformers = pytest.importorskip("transformers")
    family, config = KINDS[kind]
    torch.manual_seed(0)
    name = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    model = getattr(transformers, family + name)(getattr(transformers, f"{family}Config")(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        logits: Tensor = model(ids()).logits
    model.save_pretrained(directory, **saving)
    return logits


def ids() -> Tensor:
    return torch.arange(70).view(2, 35) * 7 % 101


def logits_of(directory: Path, cut: int = 20) -> Tensor:
    """Our logits for `ids()`, in two subsequences, with the weights of a checkpoint."""
    weights = open_weights(directory)
    layers = range(weights.shape.layers)
    module = models.build(weights.shape, layers, first=True, last=True)
    weights.fill(module.named_parameters())
    found: list[Tensor] = []
    module.head.register_forward_hook(lambda _, __, out: found.append(out.detach()))
    tokens = ids()
    key_values = KeyValues(0, (cut, tokens.shape[1] - cut), choose("cpu", torch.float32))
    for index, (start, stop) in enumerate(((0, cut), (cut, tokens.shape[1]))):
        targets = torch.zeros_like(tokens[:, start:stop])
        module(tokens[:, start:stop], Subsequence(0, index, start, stop, key_values, targets, 70))
    return torch.cat(found, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_of_transformers(kind: str, tmp_path: Path) -> None:
    expected = published(kind, tmp_path)
    assert (logits_of(tmp_path) - expected).abs().max() < 2e-5 * expected.abs().max()


def test_a_checkpoint_in_several_files(tmp_path: Path) -> None:
    expected = published("llama", tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert (logits_of(tmp_path) - expected).abs().max() < 2e-5 * expected.abs().max()


@pytest.mark.parametrize("num_parts", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_out_again(kind: str, num_parts: int, tmp_path: Path) -> None:
    """In, out, and into Transformers: the same logits."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    expected = published(kind, tmp_path / "in")
    weights = open_weights(tmp_path / "in")
    shape, names, num_bytes = weights.shape, {}, 0
    cuts = [0, shape.layers] if num_parts == 1 else [0, 1, shape.layers]
    for part in range(num_parts):
        first, last = part == 0, part == num_parts - 1
        stage = models.build(shape, range(cuts[part], cuts[part + 1]), first=first, last=last)
        weights.fill(stage.named_parameters())
        own = {n: p.detach() for n, p in stage.named_parameters() if first or p is not stage.tied}
        tensors = huggingface.theirs(shape, own)
        names |= dict.fromkeys(tensors, part)
        num_bytes += sum(tensor.nbytes for tensor in tensors.values())
        huggingface.save_part(tmp_path / "out", tensors, part, num_parts)
    huggingface.save_index(tmp_path / "out", shape, names, num_bytes, "float32")
    assert open_weights(tmp_path / "out").shape == shape
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        found = model(ids()).logits
    # GPT-2's key biases are gone, and no logit shows it.
    assert (found - expected).abs().max() < 2e-5 * expected.abs().max()


def test_what_cannot_be_read(tmp_path: Path) -> None:
    def complaint() -> str:
        with pytest.raises(CheckpointError) as caught:
            open_weights(tmp_path)["embedding.weight"]
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "config.json cannot be read" in complaint()
    shape = ModelShape(layers=1, hidden=16, heads=2, kv_heads=1, ffn=24)
    config = huggingface.config_of(shape, "float32")

    def say(**other: Any) -> None:
        (tmp_path / "config.json").write_text(json.dumps(config | other))

    say()
    assert "model.safetensors cannot be read" in complaint()
    for content in (b"", b"garbage", b"\xff" * 100):
        (tmp_path / "model.safetensors").write_bytes(content)
        assert "model.safetensors" in complaint()
    huggingface.save_part(tmp_path, {"other": torch.zeros(2)}, 0, 1)
    assert "no tensor model.embed_tokens.weight" in complaint()
    huggingface.save_part(tmp_path, {"model.embed_tokens.weight": torch.zeros(2, 3)}, 0, 1)
    with pytest.raises(CheckpointError, match=r"embedding.weight has the shape \(2, 3\)"):
        open_weights(tmp_path).fill([("embedding.weight", torch.zeros(256, 16))])
    for index in ("[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', "{"):
        (tmp_path / "model.safetensors.index.json").write_text(index)
        assert "no index of weights" in complaint()
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../secret"}}')
    assert "does not lie beside it" in complaint()


@pytest.mark.parametrize(
    ("other", "hint"),
    [
        ({"model_type": "qwen2"}, "priced, but not run"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding window"),
        ({"attention_bias": True}, "no biases"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
    ],
)
def test_what_our_models_do_not_compute(other: dict[str, Any], hint: str, tmp_path: Path) -> None:
    config = huggingface.config_of(ModelShape(), "float32")
    (tmp_path / "config.json").write_text(json.dumps(config | other))
    with pytest.raises(CheckpointError, match=hint):
        open_weights(tmp_path)
