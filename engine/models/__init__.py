"""The models that come with the engine, and the protocol that a user's own follows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from contraflow.designer.format.model import ModelShape
from contraflow.engine.models import gpt, llama
from contraflow.engine.models.decoder import Decoder, initialise
from contraflow.engine.models.protocol import Model

_FAMILIES = {"llama": llama.build, "gpt": gpt.build}


def build(
    shape: ModelShape,
    layers: range,
    *,
    first: bool,
    last: bool,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Decoder:
    """One stage of `shape`: the layers numbered `layers` in the whole model, its embedding if `first`, head if `last`.

    The parameters depend on (seed, name in the whole model) alone.
    """
    stage = _FAMILIES[shape.family](shape, layers, first, last, dtype, torch.device(device))
    initialise(stage, seed, shape.layers)
    return stage


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A model that comes with the engine, as a `Model`."""

    shape: ModelShape
    dtype: torch.dtype
    seed: int

    @property
    def layers(self) -> int:
        return self.shape.layers

    @property
    def hidden(self) -> int:
        return self.shape.hidden

    @property
    def vocabulary(self) -> int:
        return self.shape.vocabulary

    @property
    def tied(self) -> bool:
        return self.shape.tied

    def stage(self, layers: range, *, first: bool, last: bool, device: torch.device) -> Decoder:
        return build(
            self.shape, layers, first=first, last=last, dtype=self.dtype, device=device, seed=self.seed
        )


def as_model(model: ModelShape | Model, dtype: torch.dtype, seed: int) -> Model:
    """The model of a shape, from `dtype` and `seed`; one of your own, which has both, as it is."""
    return BuiltIn(model, dtype, seed) if isinstance(model, ModelShape) else model
