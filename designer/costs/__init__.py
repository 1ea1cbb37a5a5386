"""The only pricing there is: what an action and a message cost, on which clock.

`named` turns what a person writes after --costs into a cost model: a pure function from a layout to `Prices`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from contraflow.designer.format import huggingface, profile, tables
from contraflow.designer.format.model import ModelShape

from .error import CostError
from .hardware import model_on_hardware
from .measured import measured
from .presets import DEFAULT, HARDWARE, MODELS, Hardware
from .prices import CostModel, Prices
from .training import Training
from .unit import unit
from .work import work

T = TypeVar("T", ModelShape, Hardware)

__all__ = ["CostError", "CostModel", "Prices", "model_behind", "model_shape", "named"]


def named(name: str) -> CostModel:
    """The cost model for `unit`, `work:MODEL`, a preset `MODEL-HARDWARE`, a model.toml or a profile.json.

    Raises CostError, in one line, for anything else.
    """
    if name == "unit":
        return unit
    if name.startswith("work:"):
        return work(model_shape(name[5:]), name[5:])
    if name.endswith(".json"):
        try:
            return measured(profile.loads(Path(name).read_bytes(), name), name)
        except OSError as error:
            raise CostError(f"{name} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise CostError(str(error)) from None
    if name.endswith(".toml"):
        try:
            document = _document(name)
            shape = _shape(document, name)
            training = tables.from_table(Training, document.get("training", {}), f"{name} [training]")
            hardware = _preset_or_table(
                document.get("hardware", {}), HARDWARE, Hardware, f"{name} [hardware]"
            )
        except tables.ConfigError as error:
            raise CostError(str(error)) from None
        return model_on_hardware(shape, hardware, training, Path(name).stem)
    model, _, hardware_name = name.rpartition("-")
    if model in MODELS and hardware_name in HARDWARE:
        return model_on_hardware(MODELS[model], HARDWARE[hardware_name], Training(), name)
    known = ["unit", *(f"work:{model}" for model in MODELS), *(f"{m}-{h}" for m in MODELS for h in HARDWARE)]
    near = get_close_matches(name, known, 1, 0.0)[0]
    raise CostError(
        f"no cost model {name!r}; did you mean {near!r}? There are unit, work:MODEL, MODEL-HARDWARE, "
        f"a model.toml and a profile.json, with MODEL one of {', '.join(MODELS)} and HARDWARE of {', '.join(HARDWARE)}"
    )


def model_behind(name: str) -> ModelShape:
    """The model that the cost model `name` prices; the default's for the unit clock. Raises CostError."""
    shape = named(DEFAULT if name == "unit" else name).shape
    if shape is None:
        raise CostError(f"{name} holds times and no model; name one as work:MODEL")
    return shape


def model_shape(name: str) -> ModelShape:
    """The shape of a preset model, of a TOML file's [model], or of a Hugging Face config.json. Raises CostError."""
    if name in MODELS:
        return MODELS[name]
    try:
        if name.endswith(".json"):
            return huggingface.read_config(name)
        if name.endswith(".toml"):
            return _shape(_document(name), name)
    except tables.ConfigError as error:
        raise CostError(str(error)) from None
    near = get_close_matches(name, MODELS, 1, 0.0)[0]
    raise CostError(
        f"no model {name!r}; did you mean {near!r}? There are {', '.join(MODELS)}, a model.toml, "
        "or a Hugging Face config.json"
    )


def _document(name: str) -> dict[str, Any]:
    document = tables.read_toml(name)
    tables.known_keys(document, ["model", "hardware", "training"], name)
    if "model" not in document:
        raise tables.ConfigError(f"{name}: [model] is missing")
    return document


def _shape(document: Mapping[str, Any], name: str) -> ModelShape:
    """The model of a TOML file, its config.json looked for beside it. Raises ConfigError."""
    table, where = document["model"], f"{name} [model]"
    if isinstance(table, dict) and "config" in table:
        tables.known_keys(table, ["config"], where)
        if not isinstance(table["config"], str):
            raise tables.ConfigError(
                f"{where}: config is {table['config']!r}, where the path of a file belongs"
            )
        return huggingface.read_config(Path(name).parent / table["config"])
    return _preset_or_table(table, MODELS, ModelShape, where)


def _preset_or_table(table: object, presets: Mapping[str, T], kind: type[T], where: str) -> T:
    """`preset = "NAME"` with fields that differ from it, or all fields themselves."""
    if not (isinstance(table, dict) and "preset" in table):
        return tables.from_table(kind, table, where)
    preset = table["preset"]
    if not isinstance(preset, str) or preset not in presets:
        raise tables.ConfigError(f"{where}: preset {preset!r} is none of {', '.join(presets)}")
    values: dict[str, Any] = asdict(presets[preset])
    tables.known_keys(table, ["preset", *values], where)
    own = {key: value for key, value in table.items() if key != "preset"}
    return tables.from_table(kind, values | own, where)
