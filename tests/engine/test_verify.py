"""Exactness: one step on any schedule gives the loss and the gradients of the same model in one process."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from contraflow.designer.design import Design, make
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.random_program import shuffled
from contraflow.designer.format.schedule import Direction, Layout, Schedule
from contraflow.designer.generators import GENERATORS
from contraflow.engine import launch
from contraflow.engine.verify import Comparison, Trial, verify, verify_member

LLAMA = ModelShape("llama", 8, 16, 4, 2, 24, 31)
GPT = ModelShape("gpt", 8, 16, 4, 4, 24, 31, positions=64)
SHAPES = {
    "llama": LLAMA,
    "gpt": GPT,
    "llama-tied": replace(LLAMA, tied=True),
    "gpt-tied": replace(GPT, tied=True),
}
SPLITS = {"even": "even", "unequal": (7, 3, 1, 5)}
CUTS = [
    (name, split) for name, kind in GENERATORS.items() for split in SPLITS if kind.cuts or split == "even"
]


def design(name: str, devices: int, split: str, microbatches: int | None = None) -> Design:
    return Design(name, devices, microbatches, sequence=16, split=SPLITS[split])  # type: ignore[arg-type]


def exact(comparison: Comparison) -> None:
    assert comparison.ok, comparison
    assert comparison.max_relative_error <= 1e-12
    assert comparison.loss_error <= 1e-12


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize(("name", "split"), CUTS)
def test_every_generator_is_exact(name: str, devices: int, shape: ModelShape, split: str) -> None:
    exact(verify(make(design(name, devices, split)), Trial(shape)))


@pytest.mark.parametrize("name", ["1f1b", "seq1f1b", "bsipipe"])
def test_one_microbatch_is_exact(name: str) -> None:
    exact(verify(make(design(name, 4, "even", microbatches=1)), Trial(LLAMA)))


def test_layers_that_the_stages_do_not_divide_are_exact() -> None:
    exact(verify(make(design("seq1f1b", 4, "even")), Trial(replace(LLAMA, layers=10))))
    uneven = replace(design("seq1f1b", 4, "even"), layers=(5, 0, 4, 1))
    exact(verify(make(uneven), Trial(replace(LLAMA, layers=10))))


def different_lengths() -> Schedule:
    """Two directions, microbatches of 16, 9 and 4 tokens in 3, 1 and 2 subsequences."""
    layout = Layout(
        2,
        (16, 9, 4),
        ((9, 2, 5), (9,), (3, 1)),
        (Direction("down", (0, 1, 1, 0), (0, 2)), Direction("up", (1, 0, 0, 1), (1,))),
    )
    cells = [(m, q) for m, split in enumerate(layout.splits) for q in range(len(split))]
    backs = [(m, q) for m, split in enumerate(layout.splits) for q in reversed(range(len(split)))]
    order = [layout.action(s, "F", m, q) for s in range(4) for m, q in cells]
    order += [layout.action(s, "B", m, q) for s in reversed(range(4)) for m, q in backs]
    program = tuple(
        tuple(
            a for a in order if a.microbatch is not None and layout.device_of(a.stage, a.microbatch) == device
        )
        for device in range(2)
    )
    return Schedule("by hand", layout, program)


def test_microbatches_of_different_lengths_and_cuts_are_exact() -> None:
    schedule = different_lengths()
    exact(verify(schedule, Trial(LLAMA)))
    rng = Random(0)
    for _ in range(5):
        exact(verify(shuffled(schedule, rng), Trial(replace(GPT, tied=True))))


@pytest.mark.parametrize("shape", [LLAMA, SHAPES["gpt-tied"]], ids=["llama", "gpt-tied"])
@pytest.mark.parametrize("name", ["1f1b", "seq1f1b", "bsipipe"])
def test_accumulation_clipping_and_updates_are_exact(name: str, shape: ModelShape) -> None:
    comparison = verify(make(design(name, 4, "even")), Trial(shape, accumulate=3, clip=0.1, steps=5))
    assert comparison.max_relative_error <= 1e-9
    assert comparison.loss_error <= 1e-9


def test_a_wrong_gradient_is_found() -> None:
    # In float32 no run is exact to 1e-12, so the measure itself must say so.
    comparison = verify(make(design("seq1f1b", 2, "even")), Trial(LLAMA, dtype="float32"))
    assert comparison.max_relative_error > 1e-12
    assert comparison.worst.split(".")[0] in ("embedding", "layers", "norm", "head")
    assert comparison.ok


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "devices", "shape"),
    [
        ("bsipipe", 2, "llama-tied"),
        ("bsipipe", 4, "gpt"),
        ("seq1f1b", 4, "gpt-tied"),
        ("interleaved-1f1b", 2, "llama"),
    ],
)
def test_real_processes_are_exact(name: str, devices: int, shape: str) -> None:
    schedule = make(design(name, devices, "unequal" if GENERATORS[name].cuts else "even"))
    # A random order with I and W besides the published one, over the same lanes.
    for order in (schedule, shuffled(schedule, Random(3))):
        heard: list[Comparison] = []
        arguments = {"schedule": order, "trial": Trial(SHAPES[shape])}
        launch.run(verify_member, arguments, devices, heard.append, timeout=30)
        (comparison,) = heard
        exact(comparison)
