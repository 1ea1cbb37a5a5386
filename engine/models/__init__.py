"""The models that come with the engine, and the protocol that a user's own follows."""

from __future__ import annotations

import torch

from contraflow.designer.format.model import ModelShape
from contraflow.engine.models import gpt, llama
from contraflow.engine.models.decoder import Decoder, initialise

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
