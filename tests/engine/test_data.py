"""Where tokens come from: each reader against files written here by other means, and what batches promise of them."""

from __future__ import annotations

import json
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contraflow.engine.batch import IGNORED
from contraflow.engine.config import DataConfig
from contraflow.engine.data import Batches, Corpus, DataError, open_corpus
from contraflow.engine.data.batches import shuffled


def documents(corpus: Corpus) -> list[list[int]]:
    borders = [*corpus.starts.tolist(), len(corpus)]
    return [corpus.tokens[a:b].tolist() for a, b in pairwise(borders)]


def write_megatron(
    prefix: Path, docs: list[list[list[int]]], code: int = 8, letter: str = "H", modes: bool = False
) -> None:
    """A pair as Megatron-LM lays it out, from documents of sequences, by struct alone."""
    sequences = [sequence for document in docs for sequence in document]
    size = struct.calcsize(letter)
    prefix.with_suffix(".bin").write_bytes(b"".join(struct.pack(f"<{len(s)}{letter}", *s) for s in sequences))
    places, ends = [0], [0]
    for sequence in sequences:
        places.append(places[-1] + size * len(sequence))
    for document in docs:
        ends.append(ends[-1] + len(document))
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sequences), len(ends))
    index += struct.pack(f"<{len(sequences)}i", *map(len, sequences))
    index += struct.pack(f"<{len(sequences)}q", *places[:-1]) + struct.pack(f"<{len(ends)}q", *ends)
    prefix.with_suffix(".idx").write_bytes(index + bytes(len(sequences)) * modes)


DOCUMENTS = [[[5, 6, 7]], [[8], [9, 10]], [[11, 12, 13, 60000]]]


@pytest.mark.parametrize("ending", ["", ".bin", ".idx"])
def test_megatron_pair(tmp_path: Path, ending: str) -> None:
    write_megatron(tmp_path / "corpus", DOCUMENTS)
    corpus = open_corpus(DataConfig(str(tmp_path / f"corpus{ending}")))
    assert documents(corpus) == [[5, 6, 7], [8, 9, 10], [11, 12, 13, 60000]]


def test_megatron_pair_of_int32_and_modes(tmp_path: Path) -> None:
    write_megatron(tmp_path / "corpus", [[[70000, 1]], [[2]]], code=4, letter="i", modes=True)
    assert documents(open_corpus(DataConfig(str(tmp_path / "corpus")))) == [[70000, 1], [2]]


@pytest.mark.parametrize(
    ("harm", "hint"),
    [
        (lambda i, b: i.write_bytes(i.read_bytes()[:20]), "not the index"),
        (lambda i, b: i.write_bytes(b"x" + i.read_bytes()[1:]), "not the index"),
        (lambda i, b: i.write_bytes(i.read_bytes()[:-3]), "bytes, where"),
        (lambda i, b: b.write_bytes(b.read_bytes()[:-2]), "promises 10 tokens"),
        (lambda i, b: b.unlink(), "is not"),
        (lambda i, b: i.write_bytes(i.read_bytes()[:9] + struct.pack("<Q", 2) + i.read_bytes()[17:]), "version 2"),
        (lambda i, b: i.write_bytes(i.read_bytes()[:34] + struct.pack("<i", 4) + i.read_bytes()[38:]), "one behind"),
        (lambda i, b: i.write_bytes(i.read_bytes()[:-8] + struct.pack("<q", 9)), "not in order"),
    ],
)  # fmt: skip
def test_damaged_megatron_pair(tmp_path: Path, harm: object, hint: str) -> None:
    write_megatron(tmp_path / "corpus", DOCUMENTS)
    harm(tmp_path / "corpus.idx", tmp_path / "corpus.bin")  # type: ignore[operator]
    with pytest.raises(DataError, match=hint) as caught:
        open_corpus(DataConfig(str(tmp_path / "corpus.idx")))
    assert "\n" not in str(caught.value)
    assert "corpus" in str(caught.value)


def test_nanogpt_file(tmp_path: Path) -> None:
    ids = [50256, 1, 2, 3, 50256, 4, 50256]
    (tmp_path / "train.bin").write_bytes(struct.pack(f"<{len(ids)}H", *ids))
    path = str(tmp_path / "train.bin")
    assert documents(open_corpus(DataConfig(path))) == [ids]
    assert documents(open_corpus(DataConfig(path, separator=50256))) == [
        [50256],
        [1, 2, 3, 50256],
        [4, 50256],
    ]


def test_file_with_a_header(tmp_path: Path) -> None:
    for version, letter in ((1, "H"), (7, "I")):
        head = struct.pack("<256i", 20240520, version, 3, *[0] * 253)
        path = tmp_path / f"v{version}.bin"
        path.write_bytes(head + struct.pack(f"<3{letter}", 7, 8, 9))
        assert documents(open_corpus(DataConfig(str(path)))) == [[7, 8, 9]]
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(DataError, match="promises 3 tokens"):
            open_corpus(DataConfig(str(path)))
    path.write_bytes(struct.pack("<256i", 20240520, 3, 3, *[0] * 253))
    with pytest.raises(DataError, match="version 3"):
        open_corpus(DataConfig(str(path)))


def test_bare_tokens_of_a_named_type(tmp_path: Path) -> None:
    (tmp_path / "ids").write_bytes(struct.pack("<3I", 1, 2**31, 3))
    assert documents(open_corpus(DataConfig(str(tmp_path / "ids"), tokens="uint32"))) == [[1, 2**31, 3]]
    (tmp_path / "ids").write_bytes(b"12345")
    for tokens in ("uint16", "uint32"):
        with pytest.raises(DataError, match="5 bytes"):
            open_corpus(DataConfig(str(tmp_path / "ids"), tokens=tokens))
    with pytest.raises(DataError, match="No such file"):
        open_corpus(DataConfig(str(tmp_path / "absent.bin")))


def test_text_by_bytes(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "c.md").write_text("left out")
    (tmp_path / "d.txt").write_text("")
    found = open_corpus(DataConfig(str(tmp_path)))
    assert [bytes(document) for document in documents(found)] == [b"one\n", b"two"]
    ended = open_corpus(DataConfig(str(tmp_path), separator=256))
    assert documents(ended) == [[*b"one", 256], [*b"two", 256]]
    with pytest.raises(DataError, match=r"no files that end in '\.rst'"):
        open_corpus(DataConfig(str(tmp_path), suffix=".rst"))


def test_text_by_a_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}
    # The file's format, written by hand rather than by the package that reads it.
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [],
                "pre_tokenizer": {"type": "Whitespace"},
                "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
            }
        )
    )
    (tmp_path / "a.txt").write_text("the cat sat")
    (tmp_path / "b.txt").write_text("the dog sat")
    config = DataConfig(str(tmp_path), tokenizer=str(tmp_path / "tokenizer.json"), separator=4)
    assert documents(open_corpus(config)) == [[1, 2, 3, 4], [1, 0, 3, 4]]
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        open_corpus(config)


@given(st.integers(1, 300), st.text(max_size=4))
def test_a_shuffle_is_a_permutation(count: int, key: str) -> None:
    assert sorted(shuffled(place, count, key) for place in range(count)) == list(range(count))


def test_a_shuffle_shuffles() -> None:
    places = [shuffled(place, 1000, "a") for place in range(1000)]
    assert places != [shuffled(place, 1000, "b") for place in range(1000)]
    # Of a random permutation about one place stays, and neighbours part.
    assert sum(place == index for index, place in enumerate(places)) < 10
    assert sum(abs(a - b) == 1 for a, b in pairwise(places)) < 20


def counting(length: int, starts: tuple[int, ...] = (0,)) -> Corpus:
    """A corpus whose tokens are their own places."""
    return Corpus(np.arange(length, dtype=np.uint32), np.array(starts), "counting")


def test_an_epoch_has_every_window_once() -> None:
    batches = Batches(counting(1001), [10, 20, 10], 2, 2000, seed=3)
    seen: dict[int, Counter[int]] = {10: Counter(), 20: Counter()}
    for number in range(25):
        for ids, targets in zip(batches.batch(number).ids, batches.batch(number).targets, strict=True):
            assert torch.equal(targets, ids + 1)
            seen[ids.shape[1]].update(ids.flatten().tolist())
    # 25 batches of 4 windows of 10 are the 100 windows of the corpus, 25 of 2 of 20 its 50.
    for counts in seen.values():
        assert set(counts.values()) == {1}
        assert len(counts) == 1000


def test_batches_depend_on_seed_and_number_alone() -> None:
    def drawn(seed: int, number: int) -> list[int]:
        return Batches(counting(5000), [16], 4, 5000, seed).batch(number).ids[0].flatten().tolist()

    assert drawn(1, 7) == drawn(1, 7)
    assert len({tuple(drawn(seed, number)) for seed in (1, 2) for number in (0, 7, 100_000)}) == 6


def test_replicas_share_the_windows() -> None:
    whole = Batches(counting(641), [16], 4, 5000, seed=1)
    parts = [Batches(counting(641), [16], 2, 5000, seed=1, replica=r, num_replicas=2) for r in (0, 1)]
    for number in range(10):
        rows = torch.cat([part.batch(number).ids[0] for part in parts])
        assert torch.equal(rows, whole.batch(number).ids[0])


def test_a_document_does_not_predict_the_next() -> None:
    batches = Batches(counting(41, (0, 7, 8, 30)), [10], 4, 100, seed=0)
    for number in range(3):
        batch = batches.batch(number)
        ids, targets = batch.ids[0], batch.targets[0]
        last = torch.isin(ids, torch.tensor([6, 7, 29]))
        assert torch.equal(targets == IGNORED, last)
        assert torch.equal(targets[~last], ids[~last] + 1)


def test_too_few_tokens_and_too_large_ones() -> None:
    with pytest.raises(DataError, match="holds 10 tokens; a sequence of 10 needs 11"):
        Batches(counting(10), [10], 1, 100, 0)
    with pytest.raises(DataError, match=r"holds token \d+; the model's vocabulary has 5"):
        Batches(counting(11), [10], 1, 5, 0).batch(0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_a_part_of_a_corpus(sizes: list[int], data: st.DataObject) -> None:
    borders = np.cumsum([0, *sizes])
    corpus = counting(int(borders[-1]), tuple(borders[:-1].tolist()))
    begin = data.draw(st.integers(0, len(corpus)))
    end = data.draw(st.integers(begin, len(corpus)))
    part = corpus.part(begin, end)
    expected = [[t for t in document if begin <= t < end] for document in documents(corpus)]
    assert documents(part) == [document for document in expected if document]
