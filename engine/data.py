"""Where tokens come from: any text by its bytes, memory-mapped token files, or Python's own standard library."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from contraflow.engine.batch import Batch
from contraflow.engine.config import DataConfig

TOKEN_TYPES = {"uint16": np.uint16, "uint32": np.uint32}


class DataError(ValueError):
    """Data that is not there, or too little of it; the message names the path."""


class Tokens(Protocol):
    """An array of token ids."""

    def __len__(self) -> int: ...
    def __getitem__(self, span: slice) -> np.ndarray: ...


def open_tokens(config: DataConfig) -> Tokens:
    """The token ids that the configuration names. Raises DataError."""
    if config.tokens is not None:
        assert config.path is not None
        try:
            return np.memmap(config.path, dtype=TOKEN_TYPES[config.tokens], mode="r")
        except (OSError, ValueError) as error:
            raise DataError(f"{config.path} cannot be read as {config.tokens} tokens: {error}") from None
    if config.path is None:
        library = Path(sysconfig.get_path("stdlib"))
        files = sorted(library.glob("*.py")) + sorted(library.glob("[a-z]*/*.py"))
        files = [file for file in files if file.parent.name not in ("site-packages", "test", "idlelib")]
    else:
        path = Path(config.path)
        files = sorted(path.rglob(f"*{config.suffix}")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{config.path} holds no files that end in {config.suffix!r}")
    try:
        return np.frombuffer(b"\n".join(file.read_bytes() for file in files), dtype=np.uint8)
    except OSError as error:
        raise DataError(f"{error.filename or config.path} cannot be read: {error.strerror}") from None


class Batches:
    """Batches of a run, each a pure function of (seed, number): any process makes the same ones, in any order.

    `sequences[m]` is the length of microbatch m; it holds `batch_size` sequences drawn anywhere in the tokens.
    Raises DataError where the tokens are fewer than one sequence needs, or exceed the vocabulary.
    """

    def __init__(
        self, tokens: Tokens, sequences: Sequence[int], batch_size: int, vocabulary: int, seed: int
    ) -> None:
        longest = max(sequences)
        if len(tokens) < longest + 1:
            raise DataError(
                f"the data holds {len(tokens)} tokens; a sequence of {longest} needs {longest + 1}"
            )
        self._tokens, self._sequences = tokens, tuple(sequences)
        self._batch_size, self._vocabulary, self._seed = batch_size, vocabulary, seed

    def batch(self, number: int) -> Batch:
        """Batch `number`, from 0."""
        digest = hashlib.sha256(f"{self._seed}:{number}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        ids, targets = [], []
        for length in self._sequences:
            starts = generator.integers(0, len(self._tokens) - length, self._batch_size)
            rows = [
                np.asarray(self._tokens[int(start) : int(start) + length + 1], dtype=np.int64)
                for start in starts
            ]
            drawn = torch.from_numpy(np.stack(rows))
            most = int(drawn.max())
            if most >= self._vocabulary:
                raise DataError(f"the data holds token {most}; the model's vocabulary has {self._vocabulary}")
            ids.append(drawn[:, :-1].contiguous())
            targets.append(drawn[:, 1:].contiguous())
        return Batch(ids, targets)
