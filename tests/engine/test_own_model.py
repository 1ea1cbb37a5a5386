"""A user's own model and training script: the examples run, and are exact."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from contraflow.designer.design import Design, make
from contraflow.designer.format import file
from contraflow.engine.batch import Batch
from contraflow.engine.models.protocol import Subsequence
from contraflow.engine.pipeline import Pipeline
from contraflow.engine.topology import Place
from contraflow.engine.verify import Trial, verify

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples"
HERE = Place((0, 1), torch.device("cpu"))


@pytest.fixture
def schedule_file(tmp_path: Path) -> Path:
    path = tmp_path / "t.schedule.json"
    path.write_text(file.dumps(make(Design("bsipipe-zb", 2, 2, 2, sequence=32))))
    return path


def test_the_example_in_the_readme_is_the_file() -> None:
    code = (EXAMPLES / "own_training.py").read_text(encoding="utf-8")
    _, _, body = code.partition("\n\n")
    assert f"```python\n{body}```" in (PROJECT / "README.md").read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line]) < 30


@pytest.mark.processes
@pytest.mark.parametrize("starter", [[], ["-m", "torch.distributed.run", "--nproc-per-node", "2"]])
def test_the_example_trains(schedule_file: Path, starter: list[str]) -> None:
    command = [sys.executable, *starter, str(EXAMPLES / "own_training.py"), str(schedule_file)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", said.stdout)]
    assert len(losses) == 20
    assert losses[-1] < 0.9 * losses[0]


def test_the_example_of_a_model_is_exact(schedule_file: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "own_model.py"), str(schedule_file)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert {"gradients", "weights", "optimizer state"} <= set(
        re.findall(r"^(.*\S)  +\S+ of", said.stdout, re.M)
    )


@dataclass(frozen=True)
class Careless:
    """A model of plain layers, whose stages are drawn anew each time, with dropout where it is asked for."""

    dropout: float = 0.0
    layers: int = 4
    hidden: int = 8
    vocabulary: int = 13
    tied: bool = False
    dtype: torch.dtype = torch.float64

    def stage(self, layers: range, *, first: bool, last: bool, device: torch.device) -> CarelessStage:
        return CarelessStage(self, layers, first, last).to(self.dtype)


class CarelessStage(nn.Module):
    def __init__(self, model: Careless, layers: range, first: bool, last: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(model.vocabulary, model.hidden) if first else None
        self.layers = nn.ModuleDict({str(n): nn.Linear(model.hidden, 3 * model.hidden) for n in layers})
        self.head = nn.Linear(model.hidden, model.vocabulary) if last else None
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, x: Tensor, context: Subsequence) -> Tensor:
        if self.table is not None:
            x = self.table(x)
        for number, layer in self.layers.items():
            q, k, v = layer(x).unflatten(-1, (3, 2, 4)).unbind(dim=2)
            x = x + self.dropout(context.attend(int(number), q, k, v).flatten(-2))
        if self.head is None:
            return x
        assert context.targets is not None
        assert context.num_targets is not None
        lost = nn.functional.cross_entropy(
            self.head(x).flatten(0, 1), context.targets.flatten(), reduction="sum"
        )
        return lost / context.num_targets


def batch(pipeline: Pipeline) -> Batch:
    layout = pipeline.schedule.layout
    ids = torch.randint(
        13, (layout.num_microbatches, layout.longest + 1), generator=torch.Generator().manual_seed(0)
    )
    return Batch.of(layout, ids)


def test_copies_of_a_stage_start_alike_whatever_the_model_draws() -> None:
    pipeline = Pipeline(make(Design("bsipipe", 2, 2, 2, sequence=8)), Careless(), HERE)
    copies: dict[str, list[Tensor]] = {}
    for name, value in pipeline.named_parameters():
        copies.setdefault(name, []).append(value)
    assert all(len(found) == 2 for found in copies.values())
    assert all(torch.equal(*found) for found in copies.values())


def test_layers_that_cannot_wait_for_a_w_are_named_once_and_stay_exact() -> None:
    expected = r"^stage 0: .* layers\.0 \(Linear\) and of 4 other layers .*weight_grads\.Linear in place"
    with pytest.warns(UserWarning, match=expected) as said:
        waiting = Pipeline(make(Design("bsipipe-zb", 2, 2, 2, sequence=8)), Careless(), HERE)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = Pipeline(make(Design("1f1b", 2, 2, sequence=8)), Careless(), HERE)
    weights = dict(waiting.named_parameters())
    for name, value in plain.named_parameters():
        value.copy_(weights[name])
    for pipeline in waiting, plain:
        pipeline.gradients([batch(pipeline)])
    right = dict(plain.named_gradients())
    for name, grad in waiting.named_gradients():
        assert (grad - right[name]).abs().max() <= 1e-12 * right[name].abs().max(), name


def test_evaluation_switches_dropout_off_and_on_again() -> None:
    pipeline = Pipeline(make(Design("seq1f1b", 2, 2, 2, sequence=8)), Careless(dropout=0.5), HERE)
    data = batch(pipeline)
    assert pipeline.evaluate(data) == pipeline.evaluate(data)
    assert pipeline.gradients([data]) != pipeline.gradients([data])


def test_a_model_of_another_precision_than_the_trial_is_refused() -> None:
    with pytest.raises(ValueError, match=r"of float32, the model of torch\.float64"):
        verify(make(Design("1f1b", 2, 2, sequence=8)), Trial(Careless(), dtype="float32"))
    pipeline = Pipeline(make(Design("1f1b", 2, 2, sequence=8)), Careless(), HERE)
    with pytest.raises(TypeError, match="Careless has no ModelShape"):
        pipeline.shape  # noqa: B018
