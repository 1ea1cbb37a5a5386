"""A training run's configuration: one TOML file, every key with a default that works."""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout
from contraflow.designer.format.tables import ConfigError, from_table, known_keys, read_toml

DTYPES = ("float32", "float64", "bfloat16")
SCHEDULES = ("constant", "cosine", "linear", "wsd")
"""Of the learning rate."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Keys of the table [run]."""

    steps: int = 20
    """Training steps."""
    batch_size: int = 1
    """Sequences in a microbatch."""
    accumulate: int = 1
    """Passes over the schedule for each step."""
    seed: int = 0
    """Of weights and data order."""
    dtype: str = "float32"
    """float32, float64 or bfloat16."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there are as many GPUs as devices."""
    attention: str | None = None
    """An attention backend by name; the fastest that fits by default."""
    timeout: float = 120.0
    """Seconds that a process waits for a message before it gives up."""
    label_messages: bool = False
    """Send with each message the name of its action, and check it on arrival; slower, to find faults."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: at least 1 belongs there")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype: {self.dtype!r} is not one of {', '.join(DTYPES)}")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device: {self.device!r} is not one of auto, cpu, cuda")
        if not self.timeout > 0:
            raise ValueError("timeout: must be more than 0")


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """Keys of the table [optimizer]: AdamW (1711.05101), with a rate that warms up, and may go down again."""

    learning_rate: float = 1e-3
    """The highest."""
    schedule: str = "constant"
    """After the warm-up: constant; cosine or linear down to the last step; wsd, level, then linear (2404.06395)."""
    warmup_steps: int = 0
    """Steps in which the rate rises from 0."""
    decay_steps: int | None = None
    """Of wsd: the last so many steps go down; a fifth of all by default."""
    final_learning_rate: float = 0.0
    """Where the rate goes down to."""
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    """Of matrices; norms and biases have none."""
    clip: float = 1.0
    """The largest global gradient norm; 0 clips none."""

    def __post_init__(self) -> None:
        for name in (
            "learning_rate",
            "warmup_steps",
            "final_learning_rate",
            "epsilon",
            "weight_decay",
            "clip",
        ):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: must not be less than 0")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: {self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        if self.decay_steps is not None and (self.schedule != "wsd" or self.decay_steps < 1):
            raise ValueError("decay_steps: at least 1, and for the schedule wsd alone")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 0 and less than 1")


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Keys of the table [data]. Without a path: the sources of Python's standard library, which every Python has."""

    path: str | None = None
    """A text file, a directory of them, or a token file: nanoGPT's or llm.c's .bin, Megatron's .bin and .idx."""
    tokens: str | None = None
    """uint16 or uint32: the type of a token file that does not say so itself; a bare .bin has uint16."""
    tokenizer: str | None = None
    """A Hugging Face tokenizer.json to cut text with; without one a token is a byte."""
    separator: int | None = None
    """The token that ends a document: found in a token file, put behind every file of text."""
    suffix: str = ".txt"
    """Of the files that are read from a directory."""

    def __post_init__(self) -> None:
        if self.tokens not in (None, "uint16", "uint32"):
            raise ValueError(f"tokens: {self.tokens!r} is neither uint16 nor uint32")
        if self.tokens is not None and self.path is None:
            raise ValueError("tokens: a token file needs its path")
        if self.tokens is not None and self.tokenizer is not None:
            raise ValueError("tokenizer: a token file is cut already")
        if self.separator is not None and not 0 <= self.separator < 2**32:
            raise ValueError("separator: a token's number belongs there")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """The whole file: [model], [run], [optimizer], [data]."""

    model: ModelShape = field(default_factory=ModelShape)
    run: RunConfig = field(default_factory=RunConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    data: DataConfig = field(default_factory=DataConfig)


def default_layers(layout: Layout) -> int:
    """Layers of a model that fits a schedule: what the file lists, or one for each stage."""
    return layout.num_stages if layout.layers is None else max(sum(layout.layers), 1)


def load(path: str | Path | None, layout: Layout) -> TrainConfig:
    """The configuration in a file, or without one the defaults, held against the schedule's layout.

    Without a [model] it is a small LLaMA over bytes, with as many layers as the layout lists, or one for each stage.
    Raises ConfigError, naming file, key and the nearest valid key.
    """
    document: dict[str, Any] = {} if path is None else read_toml(path)
    where = "the configuration" if path is None else str(path)
    known_keys(document, [entry.name for entry in fields(TrainConfig)], where)
    model_table = document.get("model", {})
    if isinstance(model_table, dict) and "layers" not in model_table:
        model_table = {"layers": default_layers(layout), **model_table}
    config = TrainConfig(
        from_table(ModelShape, model_table, f"{where} [model]"),
        from_table(RunConfig, document.get("run", {}), f"{where} [run]"),
        from_table(OptimizerConfig, document.get("optimizer", {}), f"{where} [optimizer]"),
        from_table(DataConfig, document.get("data", {}), f"{where} [data]"),
    )
    _fits(config, layout, where)
    return config


def _fits(config: TrainConfig, layout: Layout, where: str) -> None:
    try:
        layout.layer_ranges(config.model.layers)
    except ValueError as error:
        raise ConfigError(f"{where} [model]: layers: {error}") from None
    if config.model.family == "gpt" and config.model.positions < layout.longest:
        raise ConfigError(
            f"{where} [model]: positions: {config.model.positions} learned positions "
            f"for sequences of {layout.longest} tokens"
        )


def describe() -> str:
    """Every table and key with its type, default and meaning, as TOML with comments."""
    lines = []
    defaults = TrainConfig()
    for entry in fields(TrainConfig):
        part = getattr(defaults, entry.name)
        kind = type(part)
        about = (inspect.getdoc(kind) or "").partition("\n\nRaises")[0]
        lines += [f"[{entry.name}]", *(f"# {line}" for line in about.splitlines() if line)]
        notes = _notes(inspect.getsource(kind))
        for key in fields(kind):
            value = getattr(part, key.name)
            if kind is ModelShape and key.name == "layers":
                value, notes[key.name] = None, "As the schedule lists them, or one for each stage."
            text = json.dumps(value)
            line = f"# {key.name} = ..." if value is None else f"{key.name} = {text}"
            note = notes.get(key.name)
            lines.append(f"{line}  # {note}" if note else line)
        lines.append("")
    return "\n".join(lines)


def _notes(source: str) -> dict[str, str]:
    """The string under each field of a class's source."""
    (klass,) = ast.parse(source).body
    assert isinstance(klass, ast.ClassDef)
    notes = {}
    for entry, behind in pairwise(klass.body):
        if (
            isinstance(entry, ast.AnnAssign)
            and isinstance(behind, ast.Expr)
            and isinstance(entry.target, ast.Name)
        ):
            value = behind.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                notes[entry.target.id] = " ".join(value.value.split())
    return notes
