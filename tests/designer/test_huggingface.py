"""Models read from a Hugging Face config.json."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contraflow.designer import costs
from contraflow.designer.costs.presets import MODELS
from contraflow.designer.format.huggingface import read_config
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.tables import ConfigError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
GPT: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}


def write(folder: Path, document: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


def test_the_shapes_of_known_models(tmp_path: Path) -> None:
    assert read_config(write(tmp_path, LLAMA)) == MODELS["llama3-8b"]
    assert read_config(write(tmp_path, LLAMA | {"head_dim": 128})) == MODELS["llama3-8b"]
    gpt = ModelShape("gpt", 12, 768, 12, 12, 3072, 50257, tied=True, positions=1024)
    assert read_config(write(tmp_path, GPT)) == gpt
    assert read_config(write(tmp_path, GPT | {"n_inner": None})) == gpt


def test_rotary_positions_and_norms(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    older = LLAMA | {"rms_norm_eps": 1e-6, "rope_theta": 500000.0, "rope_scaling": scaling}
    newer = LLAMA | {"rms_norm_eps": 1e-6, "rope_parameters": scaling | {"rope_theta": 500000.0}}
    for document in (older, newer):
        shape = read_config(write(tmp_path, document))
        assert (shape.norm_eps, shape.rope_base) == (1e-6, 500000.0)
        assert shape.rope_scaling == (8.0, 1.0, 4.0, 8192.0)
    assert read_config(write(tmp_path, LLAMA | {"rope_scaling": None})).rope_scaling == ()
    assert read_config(write(tmp_path, GPT | {"layer_norm_epsilon": 1e-6})).norm_eps == 1e-6


def test_a_config_prices_like_the_preset_it_describes(tmp_path: Path) -> None:
    write(tmp_path, LLAMA)
    model = tmp_path / "mine.toml"
    model.write_text('[model]\nconfig = "config.json"\n[hardware]\npreset = "h100"\n')
    assert costs.named(str(model)).shape == MODELS["llama3-8b"]
    assert costs.named(f"work:{tmp_path / 'config.json'}").shape == MODELS["llama3-8b"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "an object belongs there"),
        ({}, "model_type None is none that is priced"),
        (LLAMA | {"model_type": "mamba"}, "model_type 'mamba' is none that is priced"),
        ({k: v for k, v in LLAMA.items() if k != "hidden_size"}, "hidden_size is None"),
        (LLAMA | {"vocab_size": "many"}, "vocab_size is 'many'"),
        (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        (LLAMA | {"num_attention_heads": 24}, "24 heads do not divide"),
        (LLAMA | {"head_dim": 256}, "head_dim 256 x 32 heads is not the hidden size 4096"),
        (LLAMA | {"head_dim": "wide"}, "head_dim"),
        (LLAMA | {"intermediate_size": None}, "ffn is None"),
        (LLAMA | {"num_key_value_heads": 5}, "kv_heads: 5 do not divide"),
        (LLAMA | {"rms_norm_eps": 0}, "rms_norm_eps is 0"),
        (LLAMA | {"rope_scaling": 3}, "rope_scaling is 3"),
        (LLAMA | {"rope_scaling": {"rope_type": "llama3"}}, "factor is None"),
    ],
)
def test_what_is_no_config_is_answered_in_one_line(document: Any, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path, document)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"[" * 100_000, b"7", b'{"model_type": "llama"'])
def test_garbage_is_answered_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.json") as caught:
        read_config(path)
    assert "\n" not in str(caught.value)


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.lists(st.integers(), max_size=2)
)


@given(
    junk=st.dictionaries(
        st.sampled_from([*LLAMA, "head_dim", "rope_theta", "rope_scaling", "rms_norm_eps"]), JUNK
    )
)
def test_any_values_are_a_shape_or_an_answer(
    junk: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with suppress(ConfigError):
        read_config(write(tmp_path_factory.getbasetemp(), LLAMA | junk))
