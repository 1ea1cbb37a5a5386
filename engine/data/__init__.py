"""Where tokens come from, and how a run draws its batches from them.

A `Corpus` is token ids and where its documents begin; `open_corpus` reads one from text or a token file, memory-mapped.
`Batches` cuts sequences from it: any process makes the same ones, in any order, from the number of a batch alone.
"""

from contraflow.engine.data.batches import Batches
from contraflow.engine.data.corpus import Corpus, DataError, open_corpus

__all__ = ["Batches", "Corpus", "DataError", "open_corpus"]
