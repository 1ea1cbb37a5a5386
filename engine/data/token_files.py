"""Token files, memory-mapped: bare ids as nanoGPT writes them, llm.c's with a header, Megatron's .bin and .idx."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from contraflow.engine.config import DataConfig
from contraflow.engine.data.corpus import Corpus, DataError

BARE_TYPES = {"uint16": np.uint16, "uint32": np.uint32}

# The header of llm.c and of what descends from it: 256 int32, of which magic, version and the number of tokens count.
HEADER_MAGIC = 20240520
HEADER_TYPES = {1: np.uint16, 7: np.uint32}  # by version; 7 is what llm.c writes for Llama-3's vocabulary
HEADER_BYTES = 256 * 4

# Megatron-LM's index: magic, version (uint64), code of the type (uint8), numbers of sequences and of document ends
# (uint64); each sequence's length (int32) and place in bytes (int64); where documents end, in sequences (int64).
INDEX_MAGIC = b"MMIDIDX\x00\x00"
INDEX_HEADER = struct.Struct("<9sQBQQ")
INDEX_TYPES = {1: np.uint8, 4: np.int32, 8: np.uint16}


def is_token_file(path: Path, config: DataConfig) -> bool:
    """Whether the path names one: by its ending, or because the configuration says which type its ids have."""
    return config.tokens is not None or path.suffix in (".bin", ".idx") or path.with_suffix(".idx").is_file()


def read(path: Path, config: DataConfig) -> Corpus:
    """The corpus in a token file. Raises DataError for a file that is absent, damaged or of another kind."""
    index = path if path.suffix == ".idx" else path.with_suffix(".idx")
    try:
        if config.tokens is None and index.is_file():
            return _megatron(index, index.with_suffix(".bin"))
        tokens = _bare(path, config.tokens)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read as tokens: {reason}") from None
    return Corpus(tokens, _documents(tokens, config.separator), str(path))


def _bare(path: Path, named: str | None) -> np.ndarray:
    if named is None:
        with path.open("rb") as file:
            header = np.frombuffer(file.read(12), np.int32)
        if len(header) == 3 and header[0] == HEADER_MAGIC:
            return _with_header(path, int(header[1]), int(header[2]))
    dtype = np.dtype(BARE_TYPES[named or "uint16"])
    size = path.stat().st_size
    if size % dtype.itemsize or not size:
        raise DataError(f"{path} has {size} bytes, which are no whole number of {dtype.name} tokens")
    return np.memmap(path, dtype, mode="r")


def _with_header(path: Path, version: int, num_tokens: int) -> np.ndarray:
    if version not in HEADER_TYPES:
        raise DataError(
            f"{path}: its header has version {version}; known are {', '.join(map(str, HEADER_TYPES))}"
        )
    dtype = np.dtype(HEADER_TYPES[version])
    size = path.stat().st_size - HEADER_BYTES
    if num_tokens < 0 or size != num_tokens * dtype.itemsize:
        raise DataError(
            f"{path}: its header promises {num_tokens} tokens, behind it are {max(size, 0)} bytes"
        )
    return np.memmap(path, dtype, mode="r", offset=HEADER_BYTES)


def _documents(tokens: np.ndarray, separator: int | None) -> np.ndarray:
    """Where documents begin: at 0, and behind every separator but one at the very end."""
    if separator is None:
        return np.zeros(min(len(tokens), 1), np.int64)
    behind = np.flatnonzero(tokens == separator) + 1
    return np.concatenate((np.zeros(min(len(tokens), 1), np.int64), behind[behind < len(tokens)]))


def _megatron(index: Path, data: Path) -> Corpus:
    with index.open("rb") as file:
        head = file.read(INDEX_HEADER.size)
    if len(head) < INDEX_HEADER.size or not head.startswith(INDEX_MAGIC):
        raise DataError(f"{index} is not the index of a Megatron token file")
    _, version, code, num_sequences, num_ends = INDEX_HEADER.unpack(head)
    if version != 1 or code not in INDEX_TYPES:
        known = ", ".join(np.dtype(kind).name for kind in INDEX_TYPES.values())
        raise DataError(f"{index}: version {version} with ids of type {code}; version 1 with {known} is read")
    expected = INDEX_HEADER.size + 12 * num_sequences + 8 * num_ends
    size = index.stat().st_size
    # Multimodal indices have one byte more for each sequence, which says nothing about its tokens.
    if size not in (expected, expected + num_sequences):
        raise DataError(
            f"{index} has {size} bytes, where {num_sequences} sequences and {num_ends} documents need {expected}"
        )
    at = INDEX_HEADER.size
    lengths = np.memmap(index, np.int32, "r", at, num_sequences) if num_sequences else np.empty(0, np.int32)
    places = (
        np.memmap(index, np.int64, "r", at + 4 * num_sequences, num_sequences)
        if num_sequences
        else np.empty(0, np.int64)
    )
    ends = (
        np.memmap(index, np.int64, "r", at + 12 * num_sequences, num_ends)
        if num_ends
        else np.empty(0, np.int64)
    )
    dtype = np.dtype(INDEX_TYPES[code])
    begins = np.zeros(num_sequences + 1, np.int64)
    np.cumsum(lengths, out=begins[1:])
    if not data.is_file():
        raise DataError(f"{index} is there, and {data}, which holds its tokens, is not")
    if (lengths < 0).any() or not np.array_equal(places, begins[:-1] * dtype.itemsize):
        raise DataError(f"{index}: its sequences do not lie one behind the other")
    if data.stat().st_size != begins[-1] * dtype.itemsize:
        raise DataError(
            f"{data} has {data.stat().st_size} bytes, where its index promises {begins[-1]} tokens of {dtype.itemsize}"
        )
    if len(ends) and (ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > num_sequences):
        raise DataError(f"{index}: its documents are not in order")
    tokens = np.memmap(data, dtype, "r") if begins[-1] else np.empty(0, dtype)
    starts = np.unique(begins[ends[:-1]]) if len(ends) > 1 else np.zeros(min(len(tokens), 1), np.int64)
    return Corpus(tokens, starts[starts < len(tokens)], str(data))
