"""Weights of Hugging Face checkpoints, in and out: Llama and GPT-2, in safetensors.

What differs, beside names: their rotary pairs are (x[i], x[i + head_dim / 2]), ours neighbours; GPT-2 holds its
matrices transposed, and query, key and value as one; its keys have a bias, which softmax does not see and we lack.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from contraflow.designer.format.huggingface import LLAMA3_SCALING, read_config, read_document
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.tables import ConfigError

CONFIG, WHOLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"

_LLAMA = {
    "embedding": "model.embed_tokens",
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
    "norm": "model.norm",
    "head": "lm_head",
}
_GPT = {
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "attention_norm": "ln_1",
    "attention.output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn.up": "mlp.c_fc",
    "ffn.down": "mlp.c_proj",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
_TOGETHER = ("attention.query", "attention.key", "attention.value")
"""What GPT-2 holds side by side, as attn.c_attn."""


class CheckpointError(ValueError):
    """A checkpoint that is absent, damaged or of a model that cannot run here; one line, which names the file."""


@dataclass(frozen=True)
class Weights:
    """A checkpoint on disk, read tensor by tensor."""

    directory: Path
    shape: ModelShape
    files: Mapping[str, str]
    """Of every tensor the file that holds it."""

    def __getitem__(self, name: str) -> Tensor:
        """The parameter called `name` in our models. Raises CheckpointError."""
        part, _, kind = name.rpartition(".")
        layer, part = _layer_of(part)
        if self.shape.family == "gpt" and part in _TOGETHER:
            whole = self._read(f"transformer.h.{layer}.attn.c_attn.{kind}")
            at = _TOGETHER.index(part) * self.shape.hidden
            return whole[..., at : at + self.shape.hidden].t()
        found = self._read(f"{_theirs(self.shape, layer, part)}.{kind}")
        return _turned(found, self.shape, part, kind, to_ours=True)

    def fill(self, parameters: Iterable[tuple[str, Tensor]]) -> None:
        """Put the checkpoint's values into named parameters, in place. Raises CheckpointError."""
        for name, parameter in parameters:
            value = self[name]
            if value.shape != parameter.shape:
                raise CheckpointError(
                    f"{self.directory}: {name} has the shape {tuple(value.shape)}, "
                    f"the model's is {tuple(parameter.shape)}"
                )
            with torch.no_grad():
                parameter.copy_(value)

    def _read(self, name: str) -> Tensor:
        # GPT-2's own checkpoints leave out the first word.
        bare = name.removeprefix("transformer.")
        found = name if name in self.files else bare
        if found not in self.files:
            raise CheckpointError(f"{self.directory}: there is no tensor {name}")
        path = self.directory / self.files[found]
        try:
            with safe_open(path, "pt") as file:
                tensor: Tensor = file.get_tensor(found)
                return tensor
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from None


def open_weights(directory: str | Path) -> Weights:
    """The checkpoint in a directory. Raises CheckpointError for one that is none, or cannot run exactly here."""
    directory = Path(directory)
    try:
        document = read_document(directory / CONFIG)
        shape = read_config(directory / CONFIG)
    except ConfigError as error:
        raise CheckpointError(str(error)) from None
    for reason in _unlike(document):
        raise CheckpointError(f"{directory / CONFIG}: {reason}")
    return Weights(directory, shape, _files(directory))


def _files(directory: Path) -> dict[str, str]:
    path = directory / INDEX
    try:
        if path.is_file():
            names: dict[str, str] = json.loads(path.read_bytes())["weight_map"]
            elsewhere = [file for file in names.values() if Path(file).name != file]
        else:
            path = directory / WHOLE
            with safe_open(path, "pt") as file:
                names, elsewhere = dict.fromkeys(file.keys(), WHOLE), []
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{path} is no index of weights") from None
    if elsewhere:
        raise CheckpointError(f"{path}: {elsewhere[0]!r} does not lie beside it")
    return names


def _unlike(document: Mapping[str, Any]) -> Iterator[str]:
    """What a config.json asks for that our models do not compute."""
    kind = document["model_type"]
    if kind not in ("llama", "mistral", "gpt2"):
        yield f"models of type {kind!r} are priced, but not run"
    if kind == "mistral" and document.get("sliding_window") is not None:
        yield f"a sliding window of {document['sliding_window']} tokens"
    for key in ("attention_bias", "mlp_bias"):
        if document.get(key):
            yield f"{key}: our llama has no biases"
    activation = document.get("activation_function" if kind == "gpt2" else "hidden_act")
    expected = ("gelu_new", "gelu_pytorch_tanh") if kind == "gpt2" else ("silu",)
    if activation is not None and activation not in expected:
        yield f"the activation {activation!r}, where {expected[0]!r} is what is computed"
    if document.get("scale_attn_weights") is False or document.get("scale_attn_by_inverse_layer_idx"):
        yield "attention that is scaled in another way"
    rope = document.get("rope_parameters") or document.get("rope_scaling") or {}
    rope_kind = rope.get("rope_type", rope.get("type", "default"))
    if rope_kind not in ("default", "llama3"):
        yield f"rotary positions scaled by {rope_kind!r}; 'llama3' is known, and none"


def theirs(shape: ModelShape, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters by their names and in their form; layers are given whole, a tied head is left out."""
    found = {}
    for name, value in parameters.items():
        part, _, kind = name.rpartition(".")
        layer, part = _layer_of(part)
        if shape.family == "gpt" and part in _TOGETHER:
            if part != _TOGETHER[0]:
                continue
            pieces = [parameters.get(f"layers.{layer}.{other}.{kind}") for other in _TOGETHER]
            filled = [torch.zeros_like(value) if piece is None else piece for piece in pieces]
            found[f"transformer.h.{layer}.attn.c_attn.{kind}"] = torch.cat(
                [piece.t() for piece in filled], -1
            )
        elif not (shape.tied and part == "head"):
            turned = _turned(value, shape, part, kind, to_ours=False)
            found[f"{_theirs(shape, layer, part)}.{kind}"] = turned
    return {name: value.contiguous() for name, value in found.items()}


def save_part(directory: Path, tensors: dict[str, Tensor], part: int, num_parts: int) -> None:
    """Write one of the files of a checkpoint; parts are counted from 0."""
    save_file(tensors, directory / part_name(part, num_parts), metadata={"format": "pt"})


def part_name(part: int, num_parts: int) -> str:
    """What a file of weights is called."""
    return WHOLE if num_parts == 1 else f"model-{part + 1:05}-of-{num_parts:05}.safetensors"


def save_index(
    directory: Path, shape: ModelShape, names: Mapping[str, int], num_bytes: int, dtype: str
) -> None:
    """Write what belongs beside the weights: config.json, and where each tensor is. `names`: of every one the part."""
    num_parts = max(names.values(), default=0) + 1
    if num_parts > 1:
        files = {name: part_name(part, num_parts) for name, part in sorted(names.items())}
        index = {"metadata": {"total_size": num_bytes}, "weight_map": files}
        (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")
    (directory / CONFIG).write_text(json.dumps(config_of(shape, dtype), indent=2) + "\n")


def config_of(shape: ModelShape, dtype: str) -> dict[str, Any]:
    """The config.json of a model."""
    if shape.family == "gpt":
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu_new",
            "n_embd": shape.hidden,
            "n_head": shape.heads,
            "n_inner": shape.ffn,
            "n_layer": shape.layers,
            "n_positions": shape.positions,
            "layer_norm_epsilon": shape.norm_eps,
            "tie_word_embeddings": shape.tied,
            "torch_dtype": dtype,
            "vocab_size": shape.vocabulary,
            # Ours has none.
            "attn_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "resid_pdrop": 0.0,
        }
    scaling = dict(zip(LLAMA3_SCALING, shape.rope_scaling, strict=True)) if shape.rope_scaling else {}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_base,
        "rope_scaling": {"rope_type": "llama3", **scaling} if scaling else None,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": dtype,
        "vocab_size": shape.vocabulary,
    }


def _layer_of(part: str) -> tuple[str, str]:
    """layers.3.ffn.up -> 3, ffn.up; norm -> "", norm."""
    if not part.startswith("layers."):
        return "", part
    _, layer, rest = part.split(".", 2)
    return layer, rest


def _theirs(shape: ModelShape, layer: str, part: str) -> str:
    if shape.family == "gpt":
        return f"transformer.h.{layer}.{_GPT[part]}" if layer else _GPT[part]
    return f"model.layers.{layer}.{_LLAMA[part]}" if layer else _LLAMA[part]


def _turned(value: Tensor, shape: ModelShape, part: str, kind: str, *, to_ours: bool) -> Tensor:
    """A parameter in the other form."""
    if shape.family == "gpt":
        matrix = kind == "weight" and part.startswith(("attention.", "ffn."))
        return value.t() if matrix else value
    if part not in ("attention.query", "attention.key"):
        return value
    # Rows of a head: halves one behind the other there, neighbours here.
    halves = (2, shape.head_dim // 2) if to_ours else (shape.head_dim // 2, 2)
    return value.view(-1, *halves, value.shape[-1]).transpose(1, 2).flatten(0, 2)
