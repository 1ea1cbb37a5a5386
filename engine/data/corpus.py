"""Token ids and the documents that they form, from whatever holds them."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from contraflow.engine.config import DataConfig


class DataError(ValueError):
    """Data that is not there, is damaged, or is too little; the one-line message names the path."""


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Token ids, of an unsigned or int32 type, and the place of every document's first one: ascending, from 0."""

    tokens: np.ndarray
    starts: np.ndarray
    name: str

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, begin: int, end: int) -> Corpus:
        """Tokens [begin, end), and the documents in them: the first may have lost its beginning."""
        first, last = np.searchsorted(self.starts, (begin, end), side="left")
        starts = self.starts[first:last] - begin
        if end > begin and (not len(starts) or starts[0]):
            starts = np.concatenate(([0], starts))
        return Corpus(self.tokens[begin:end], starts, self.name)


def open_corpus(config: DataConfig) -> Corpus:
    """What the configuration names. Raises DataError."""
    # Each reader needs what the others do not: a tokenizer is imported only for text that is cut by one.
    from contraflow.engine.data import text, token_files

    if config.path is None:
        return text.read(_standard_library(), config, "Python's standard library")
    path = Path(config.path)
    if token_files.is_token_file(path, config):
        return token_files.read(path, config)
    files = sorted(path.rglob(f"*{config.suffix}")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} holds no files that end in {config.suffix!r}")
    return text.read(files, config, str(path))


def _standard_library() -> Sequence[Path]:
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(library.glob("*.py")) + sorted(library.glob("[a-z]*/*.py"))
    return [file for file in files if file.parent.name not in ("site-packages", "test", "idlelib")]
