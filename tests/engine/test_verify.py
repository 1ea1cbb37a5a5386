"""Exactness: one step on any schedule gives the loss and the gradients of the same model in one process."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch

from contraflow.designer.design import Design, make
from contraflow.designer.format.lowering import Lowered
from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.random_program import shuffled
from contraflow.designer.format.schedule import Direction, Layout, Schedule
from contraflow.designer.generators import GENERATORS
from contraflow.engine import launch, mirror
from contraflow.engine.executor import Executor
from contraflow.engine.flat import FlatParameters
from contraflow.engine.optimizer import named_state, squared_norm
from contraflow.engine.verify import Case, Comparison, Trial, verify, verify_member

LLAMA = ModelShape("llama", 8, 8, 4, 2, 12, 17)
GPT = ModelShape("gpt", 8, 8, 4, 4, 12, 17, positions=64)
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
    assert comparison.errors["gradients"].tolerance == comparison.errors["loss"].tolerance == 1e-12


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize(("name", "split"), CUTS)
def test_every_generator_is_exact(name: str, devices: int, split: str) -> None:
    schedule = make(design(name, devices, split))
    # Over two and four devices each meets every model.
    turn = CUTS.index((name, split)) + devices
    for shape in (list(SHAPES.values()) * 2)[turn % 4 :][:2]:
        exact(verify(schedule, Trial(replace(shape, layers=schedule.layout.num_stages))))


@pytest.mark.parametrize("name", ["1f1b", "seq1f1b", "bsipipe"])
@pytest.mark.parametrize("microbatches", [1, 3])
def test_fewer_microbatches_than_devices_are_exact(name: str, microbatches: int) -> None:
    exact(verify(make(design(name, 4, "even", microbatches)), Trial(LLAMA)))


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


def everything(name: str, devices: int, shape: ModelShape, rng: Random | None = None) -> Case:
    """Uneven layers, none in some stages, unequal cuts, two passes to a step, clipping; with `rng` another order."""
    split = "unequal" if GENERATORS[name].cuts else "even"
    schedule = make(design(name, devices, split, None if name in ("zb-h2", "dualpipe-v") else devices))
    layers = tuple((2, 0, 1)[stage % 3] for stage in range(schedule.layout.num_stages))
    schedule = replace(schedule, layout=replace(schedule.layout, layers=layers))
    if rng is not None:
        schedule = shuffled(schedule, rng)
    return Case(schedule, Trial(replace(shape, layers=sum(layers)), accumulate=2, clip=0.05, steps=2))


@pytest.mark.parametrize(
    ("name", "shape"), [("1f1b", "llama"), ("seq1f1b-zb", "gpt-tied"), ("bsipipe", "llama-tied")]
)
def test_accumulation_clipping_and_updates_are_exact(name: str, shape: str) -> None:
    comparison = verify(*everything(name, 4, SHAPES[shape]))
    exact(comparison)
    assert {"norms of steps", "weights", "optimizer state"} < comparison.errors.keys()


def test_packed_documents_are_exact() -> None:
    for shape in SHAPES.values():
        exact(verify(different_lengths(), Trial(shape, packed=True)))


def test_float32_is_measured_by_its_own_rounding() -> None:
    # No run in float32 is exact to 1e-12, so the measure itself must say so.
    comparison = verify(make(design("seq1f1b", 2, "even")), Trial(LLAMA, dtype="float32"))
    assert comparison.errors["gradients"].value > 1e-12
    assert comparison.errors["gradients"].worst.split(".")[0] in ("embedding", "layers", "norm", "head")
    assert comparison.ok


def twice(lowered: Lowered, executor: Executor) -> list[FlatParameters]:
    """Every copy of a stage at its own optimizer."""
    return mirror.held(executor)


def scrambled(optimizer: Any, groups: Any) -> list[tuple[str, torch.Tensor]]:
    """Another rate of forgetting."""
    return [(name, 1.01 * state) for name, state in named_state(optimizer, groups)]


@pytest.mark.parametrize(
    ("place", "planted", "quantity", "worst"),
    [
        ("mirror.return_weights", lambda *_: None, "weights", "on device"),
        ("mirror.owned", twice, "gradients", "which 2 devices have"),
        ("mirror.owned", lambda *_: [], "gradients", "which no device has"),
        ("pipeline.named_state", scrambled, "optimizer state", "exp_avg"),
        ("pipeline.clip", lambda *_: None, "optimizer state", "exp_avg"),
        ("pipeline.squared_norm", lambda groups: 4 * squared_norm(groups), "norm", "step 1"),
    ],
)
def test_what_is_wrong_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch, place: str, planted: Any, quantity: str, worst: str
) -> None:
    trial = Trial(replace(LLAMA, layers=4), clip=0.05, steps=2)
    monkeypatch.setattr(f"contraflow.engine.{place}", planted)
    found = verify(make(Design("bsipipe", 2, 2, 1, sequence=8)), trial).errors[quantity]
    assert not found.ok
    assert worst in found.worst


@pytest.mark.processes
@pytest.mark.parametrize("devices", [2, 4])
def test_real_processes_are_exact(devices: int) -> None:
    """One start of processes for all: every generator on two devices, some on four."""
    names = GENERATORS if devices == 2 else ("seq1f1b", "zb-v", "bsipipe-zb")
    rng = Random(3)
    cases = [
        # Every other one in a random order, with I and W, over the same lanes.
        everything(name, devices, list(SHAPES.values())[turn % 4], rng if turn % 2 else None)
        for turn, name in enumerate(names)
    ]
    heard: list[Comparison] = []
    launch.run(verify_member, {"cases": cases}, devices, heard.append, timeout=60)
    assert len(heard) == len(cases)
    for comparison in heard:
        exact(comparison)
