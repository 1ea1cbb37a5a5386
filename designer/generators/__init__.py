"""Families of schedules: each a pure function of a shape. A new one is one file and one line here."""

from __future__ import annotations

from .bsipipe import BSIPIPE
from .gpipe import GPIPE
from .interleaved import INTERLEAVED
from .one_f_one_b import ONE_F_ONE_B
from .request import Generator, Refusal, Request
from .seq1f1b import SEQ1F1B

GENERATORS: dict[str, Generator] = {
    generator.name: generator for generator in (GPIPE, ONE_F_ONE_B, INTERLEAVED, SEQ1F1B, BSIPIPE)
}

__all__ = ["GENERATORS", "Generator", "Refusal", "Request"]
