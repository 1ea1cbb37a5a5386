"""Text files as tokens: by their bytes, or by a Hugging Face tokenizer.json. Every file is one document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from contraflow.engine.config import DataConfig
from contraflow.engine.data.corpus import Corpus, DataError


def read(files: Sequence[Path], config: DataConfig, name: str) -> Corpus:
    """The files one behind the other, each ended by the configuration's `separator`, or else by a line break.

    Raises DataError for what cannot be read, and for a tokenizer that is none.
    """
    encode = _bytes if config.tokenizer is None else _tokenizer(config.tokenizer)
    dtype = np.dtype(np.uint8 if config.tokenizer is None else np.uint32)
    if config.separator is not None:
        dtype = np.promote_types(dtype, np.min_scalar_type(config.separator))
        end = np.array([config.separator], dtype)
    else:
        end = encode(b"\n").astype(dtype)
    pieces: list[np.ndarray] = []
    starts: list[int] = []
    length = 0
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}") from None
        if content:
            document = encode(content)
            starts.append(length)
            pieces += [document.astype(dtype, copy=False), end]
            length += len(document) + len(end)
    # A line break parts documents; behind the last there is nothing to part.
    if pieces and config.separator is None:
        pieces.pop()
    tokens = np.concatenate(pieces) if pieces else np.empty(0, dtype)
    return Corpus(tokens, np.array(starts, np.int64), name)


def _bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def _tokenizer(path: str) -> Callable[[bytes], np.ndarray]:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise DataError(
            f"{path}: a tokenizer needs the package tokenizers (pip install tokenizers)"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the package raises bare ones
        raise DataError(f"{path} is not a tokenizer.json: {str(error)[:200]}") from None

    def encode(content: bytes) -> np.ndarray:
        ids = tokenizer.encode(content.decode(errors="replace"), add_special_tokens=False).ids
        return np.array(ids, np.uint32)

    return encode
