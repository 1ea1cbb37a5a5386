"""The batches of a run, each a pure function of its number: resuming is counting on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from contraflow.engine.batch import IGNORED, Batch
from contraflow.engine.data.corpus import Corpus, DataError


class Batches:
    """Batch number n, from 0, of a run; any process makes the same one, in any order.

    `sequences[m]` is the length of microbatch m; it holds `batch_size` of them. For every length the corpus is cut into
    windows, which are drawn in an order that differs from epoch to epoch, each once before any comes twice; an epoch's
    first window begins at another token. The last token of a document does not predict the next one's first.
    With `num_replicas` pipelines beside one another, number `replica` of them draws its own share.

    Raises DataError where the corpus has fewer tokens than one sequence needs.
    """

    def __init__(
        self,
        corpus: Corpus,
        sequences: Sequence[int],
        batch_size: int,
        vocabulary: int,
        seed: int,
        *,
        replica: int = 0,
        num_replicas: int = 1,
    ) -> None:
        longest = max(sequences)
        if len(corpus) < longest + 1:
            raise DataError(
                f"{corpus.name} holds {len(corpus)} tokens; a sequence of {longest} needs {longest + 1}"
            )
        self._corpus, self._sequences, self._seed = corpus, tuple(sequences), seed
        self._batch_size, self._vocabulary = batch_size, vocabulary
        self._replica, self._num_replicas = replica, num_replicas
        self._per_batch = {length: batch_size * count for length, count in Counter(sequences).items()}

    def batch(self, number: int) -> Batch:
        """Batch `number`. Raises DataError for a token that the model's vocabulary does not have."""
        draws = {length: self._draws(number, length) for length in self._per_batch}
        ids, targets = [], []
        for length in self._sequences:
            rows = np.empty((self._batch_size, length + 1), np.int64)
            ends = np.zeros((self._batch_size, length), bool)
            for row in range(self._batch_size):
                begin = next(draws[length])
                rows[row] = self._corpus.tokens[begin : begin + length + 1]
                first, last = np.searchsorted(self._corpus.starts, (begin + 1, begin + length + 1))
                ends[row, self._corpus.starts[first:last] - begin - 1] = True
            most = int(rows.max())
            if most >= self._vocabulary or rows.min() < 0:
                wrong = most if most >= self._vocabulary else int(rows.min())
                raise DataError(
                    f"{self._corpus.name} holds token {wrong}; the model's vocabulary has {self._vocabulary}"
                )
            ids.append(torch.from_numpy(rows[:, :-1].copy()))
            targets.append(torch.from_numpy(np.where(ends, IGNORED, rows[:, 1:])))
        return Batch(ids, targets)

    def _draws(self, number: int, length: int) -> Iterator[int]:
        """First tokens of the windows of one length in a batch."""
        num_windows = (len(self._corpus) - 1) // length
        slack = len(self._corpus) - num_windows * length  # places where the first window may begin
        first = (number * self._num_replicas + self._replica) * self._per_batch[length]
        for index in range(first, first + self._per_batch[length]):
            epoch, place = divmod(index, num_windows)
            key = f"{self._seed}:{length}:{epoch}"
            yield _digest(f"{key}:begin") % slack + length * shuffled(place, num_windows, key)


def shuffled(place: int, count: int, key: str) -> int:
    """Where `place` of `count` goes in the shuffle named `key`: a permutation without a table, however large.

    Four rounds of a Feistel network over the next power of four, walked until the number is below `count`.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for turn in range(4):
            left, right = right, left ^ _digest(f"{key}:{turn}:{right}") & mask
        place = left << half | right
        if place < count:
            return place


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
