"""What a training loop asks of a pipeline: batches that fit, evaluation at any time, packed documents, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from contraflow.designer.design import Design, make
from contraflow.designer.format import file
from contraflow.designer.format.lowering import forwards, lower
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Direction, Layout, Schedule
from contraflow.engine import launch
from contraflow.engine.batch import IGNORED, Batch
from contraflow.engine.config import RunConfig, TrainConfig
from contraflow.engine.member import Refused
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.topology import Place
from contraflow.engine.train import train
from contraflow.kernels.attention import choose

LLAMA = ModelShape("llama", 4, 8, 2, 2, 12, 13)
GPT = replace(LLAMA, family="gpt", positions=32)
HERE = Place((0, 1), torch.device("cpu"))


def pipeline_of(schedule: Schedule, shape: ModelShape = LLAMA, batch_size: int = 1) -> Pipeline:
    return Pipeline(schedule, shape, HERE, batch_size=batch_size, dtype=torch.float64)


def lengths(*sequences: int) -> Schedule:
    """On two devices, microbatches of these lengths, one after the other, each in two subsequences."""
    return by_hand(sequences, tuple((n - 2, 2) for n in sequences))


def uncut(*sequences: int) -> Schedule:
    """The same, each microbatch whole."""
    return by_hand(sequences, tuple((n,) for n in sequences))


def by_hand(sequences: tuple[int, ...], splits: tuple[tuple[int, ...], ...]) -> Schedule:
    layout = Layout(2, sequences, splits, (Direction("down", (0, 1), tuple(range(len(sequences)))),))
    program = tuple(
        tuple(
            layout.action(s, kind, m, q)
            for m, split in enumerate(splits)
            for kind, q in (
                *(("F", q) for q in range(len(split))),
                *(("B", q) for q in reversed(range(len(split)))),
            )
        )
        for s in range(2)
    )
    return Schedule("by hand", layout, program)


def drawn(*size: int) -> torch.Tensor:
    return torch.randint(13, size, generator=torch.Generator().manual_seed(sum(size)))


def test_evaluation_changes_nothing_at_any_time() -> None:
    schedule = make(Design("bsipipe", 2, 2, 2, sequence=8))
    data = Batch.of(schedule.layout, drawn(2, 9))
    silent, asked = pipeline_of(schedule), pipeline_of(schedule)
    before = asked.evaluate(data)
    for _ in range(3):
        expected = asked.evaluate(data)
        update = asked.step([data])
        assert update.loss == silent.step([data]).loss
        assert expected == pytest.approx(update.loss, rel=1e-14)
    for (name, value), (_, other) in zip(asked.named_parameters(), silent.named_parameters(), strict=True):
        assert torch.equal(value, other), name
    assert asked.evaluate(data) < before
    assert asked.num_steps == 3


def test_an_evaluation_sends_activations_alone() -> None:
    lowered = lower(forwards(make(Design("bsipipe", 4, 4, 2, sequence=8))))
    assert {step.action.kind for program in lowered.programs for step in program} == {"F"}
    assert {lane.purpose for lane in lowered.lanes} == {"data"}


def test_engines_one_after_the_other_do_not_know_of_each_other() -> None:
    schedule = make(Design("seq1f1b", 2, 2, 2, sequence=8))
    data = Batch.of(schedule.layout, drawn(2, 9))
    losses = []
    for shape in (LLAMA, replace(GPT, tied=True), LLAMA):
        pipeline = pipeline_of(schedule, shape)
        losses.append([pipeline.step([data]).loss for _ in range(2)])
        pipeline.close()
    assert losses[0] == losses[2] != losses[1]


def test_a_tensor_is_dealt_to_the_microbatches_in_turn() -> None:
    layout = make(Design("1f1b", 2, 3, sequence=8)).layout
    tokens = drawn(6, 9)
    batch = Batch.of(layout, tokens)
    assert torch.equal(torch.cat(list(batch.ids)), tokens[:, :-1])
    assert torch.equal(torch.cat(list(batch.targets)), tokens[:, 1:])
    given = Batch.of(layout, tokens[:, :-1], tokens[:, 1:])
    assert all(map(torch.equal, given.targets, batch.targets))


def test_documents_have_no_target_behind_their_end() -> None:
    layout = lengths(8, 5).layout
    batch = Batch.of(layout, [drawn(1, 9), drawn(1, 6)], documents=[(3, 1, 4), (5,)])
    assert batch.starts[0].tolist() == [[0, 0, 0, 3, 4, 4, 4, 4]]
    assert (batch.targets[0] == IGNORED).tolist() == [[n in (2, 3) for n in range(8)]]
    assert not (batch.targets[1] == IGNORED).any()


@pytest.mark.parametrize(
    ("tokens", "documents", "complaint"),
    [
        (drawn(7, 9), None, r"7 sequences cannot be dealt evenly to 2 microbatches; give a multiple of 2"),
        (drawn(2, 9), None, r"microbatch 1: token ids are \[1, 8\]; .* \[1, 5\]: 1 sequence of 5 tokens"),
        ([drawn(1, 9)], None, r"token ids of 1 microbatches; the schedule has 2"),
        ([drawn(1, 9), drawn(2, 6)], None, r"microbatch 1: token ids are \[2, 5\]; .* \[1, 5\]"),
        ([drawn(1, 9), drawn(1, 6).float()], None, r"microbatch 1: token ids are torch\.float32"),
        ([drawn(1, 9), drawn(1, 6)], [(8,)], r"documents of 1 sequences are given; the batch has 2"),
        (
            [drawn(1, 9), drawn(1, 6)],
            [(8,), (3, 3)],
            r"microbatch 1, sequence 0: .* \[3, 3\] tokens .* its 5",
        ),
        ([drawn(1, 9), drawn(1, 6)], [(8,), (5, 0)], r"microbatch 1, sequence 0: .* \[5, 0\] tokens"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(tokens: object, documents: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Batch.of(lengths(8, 5).layout, tokens, documents=documents)  # type: ignore[arg-type]


def test_a_step_refuses_a_batch_for_another_schedule_before_it_begins() -> None:
    pipeline = pipeline_of(lengths(8, 5), batch_size=2)
    fewer_rows = Batch.of(lengths(8, 5).layout, [drawn(1, 9), drawn(1, 6)])
    other_lengths = Batch([drawn(2, 8)] * 2, [drawn(2, 8)] * 2)
    for batch in (fewer_rows, other_lengths):
        with pytest.raises(ValueError, match="the schedule's microbatch is"):
            pipeline.step([batch])
        with pytest.raises(ValueError, match="the schedule's microbatch is"):
            pipeline.evaluate(batch)
    # The pipeline goes on with one that fits.
    assert pipeline.step([Batch.of(lengths(8, 5).layout, [drawn(2, 9), drawn(2, 6)])]).loss > 0


@pytest.mark.parametrize("shape", [LLAMA, GPT], ids=["llama", "gpt"])
def test_packed_documents_give_what_each_gives_alone(shape: ModelShape) -> None:
    documents = [drawn(1, n) for n in (4, 5, 3, 6)]
    tokens = [document[:, :-1] for document in documents]
    targets = [document[:, 1:] for document in documents]
    # Packed, two to a microbatch of 7 tokens each; borders of documents are not those of subsequences.
    packed = pipeline_of(lengths(7, 7), shape)
    pairs = [[torch.cat(part[m : m + 2], dim=1) for m in (0, 2)] for part in (tokens, targets)]
    loss = packed.gradients([Batch.of(packed.schedule.layout, *pairs, [(3, 4), (2, 5)])])
    alone = pipeline_of(uncut(3, 4, 2, 5), shape)
    assert loss == pytest.approx(alone.gradients([Batch(tokens, targets)]), rel=1e-13)
    right = dict(alone.named_gradients())
    for name, grad in packed.named_gradients():
        assert (grad - right[name]).abs().max() <= 1e-12 * right[name].abs().max(), name


def test_attention_that_cannot_keep_documents_apart_is_refused() -> None:
    layout = lengths(8, 5).layout
    attention = replace(choose("cpu", torch.float64), documents=False)
    pipeline = Pipeline(lengths(8, 5), LLAMA, HERE, attention, dtype=torch.float64)
    with pytest.raises(ValueError, match="cannot keep documents apart"):
        pipeline.evaluate(Batch.of(layout, [drawn(1, 9), drawn(1, 6)], documents=[(3, 5), (5,)]))


@pytest.mark.processes
def test_more_devices_than_processes_are_refused_in_words() -> None:
    config = TrainConfig(model=LLAMA, run=RunConfig(steps=1, timeout=30))
    arguments = {"text": file.dumps(lengths(8, 5)), "config": config, "profile": False}
    with pytest.raises(Refused, match="the schedule has 2 devices, there are 1 processes"):
        launch.run(train, arguments, 1, lambda report: None, timeout=30)
