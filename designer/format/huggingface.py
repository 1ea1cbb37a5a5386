"""The shape of a model from a Hugging Face config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .model import NORM_EPS, ROPE_BASE, ModelShape
from .tables import ConfigError

# Our field: the names that it goes by, the first that is there counts.
KEYS = {
    "layers": ("num_hidden_layers", "n_layer"),
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "num_attention_heads", "n_head"),
    "ffn": ("intermediate_size", "n_inner"),
    "vocabulary": ("vocab_size",),
}
LLAMA3_SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
"""Of `ModelShape.rope_scaling`, in its order."""
GPT = ("gpt2",)
LLAMA = ("llama", "mistral", "qwen2", "qwen3")
"""Model types whose layers have the matrices of a LLaMA; small biases and norms beside them are not counted."""


def read_config(path: str | Path) -> ModelShape:
    """The shape in a config.json. Raises ConfigError, in one line, for all else and for models of another build."""
    document = read_document(path)
    kind = document.get("model_type")
    if kind not in LLAMA + GPT:
        raise ConfigError(
            f"{path}: model_type {kind!r} is none that is priced ({', '.join(LLAMA + GPT)}); "
            "give its sizes in a model.toml, as the nearest of llama and gpt"
        )
    try:
        return _shape(document, kind in GPT)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_document(path: str | Path) -> dict[str, Any]:
    """What a config.json says. Raises ConfigError, in one line, for what is no object."""
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {str(error)[:200]}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is no config.json of a model: an object belongs there")
    return document


def _shape(document: Mapping[str, Any], gpt: bool) -> ModelShape:
    sizes: dict[str, Any] = {
        field: _size(document, field, names) for field, names in KEYS.items() if field != "ffn"
    }
    ffn = next((document[name] for name in KEYS["ffn"] if document.get(name) is not None), None)
    if ffn is None and gpt:
        ffn = 4 * sizes["hidden"]
    head_dim = document.get("head_dim")
    if head_dim is not None and sizes["heads"] and head_dim * sizes["heads"] != sizes["hidden"]:
        raise ValueError(
            f"head_dim {head_dim} x {sizes['heads']} heads is not the hidden size {sizes['hidden']}, "
            "as all models priced here have it"
        )
    positions = _size(document, "positions", ("n_positions", "max_position_embeddings")) if gpt else 0
    tied = document.get("tie_word_embeddings", gpt)
    eps = _number(document, "layer_norm_epsilon" if gpt else "rms_norm_eps", NORM_EPS)
    rotary: dict[str, Any] = {} if gpt else _rotary(document)
    return ModelShape(
        "gpt" if gpt else "llama",
        **sizes,
        ffn=_whole(ffn, "ffn"),
        tied=bool(tied),
        positions=positions,
        norm_eps=eps,
        **rotary,
    )


def _rotary(document: Mapping[str, Any]) -> dict[str, Any]:
    """Base and scaling of rotary positions: under one key since Transformers 5, under two before."""
    given = document.get("rope_parameters") or document.get("rope_scaling") or {}
    if not isinstance(given, dict):
        raise ValueError(f"rope_scaling is {given!r}, where an object belongs")
    base = _number({**document, **given}, "rope_theta", ROPE_BASE)
    kind = given.get("rope_type", given.get("type", "default"))
    if kind != "llama3":
        return {"rope_base": base}  # other scalings cost the same; the engine refuses them
    return {"rope_base": base, "rope_scaling": tuple(_number(given, key, None) for key in LLAMA3_SCALING)}


def _number(document: Mapping[str, Any], name: str, default: float | None) -> float:
    value = document.get(name, default)
    if type(value) not in (int, float) or not 0 < value < 1e30:
        raise ValueError(f"{name} is {value!r}, where a number above 0 belongs")
    return float(value)


def _size(document: Mapping[str, Any], field: str, names: tuple[str, ...]) -> int:
    return _whole(next((document[name] for name in names if document.get(name) is not None), None), names[0])


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 < value < 2**40:
        raise ValueError(f"{name} is {value!r}, where a whole number belongs")
    return value
