"""Families of schedules: each a pure function of a shape. A new one is one file and one line here."""

from __future__ import annotations

from .bitpipe import BITPIPE
from .bsipipe import BSIPIPE
from .bsipipe_zb import BSIPIPE_ZB
from .chimera import CHIMERA
from .controllable_memory import V_HALF, V_MIN
from .dualpipe import DUALPIPE
from .dualpipe_v import DUALPIPE_V
from .gpipe import GPIPE
from .interleaved import INTERLEAVED, SEQ1F1B_INTERLEAVED
from .one_f_one_b import ONE_F_ONE_B
from .request import Generator, Refusal, Request
from .seq1f1b import SEQ1F1B
from .terapipe import TERAPIPE
from .v_shaped import ZB_V
from .zero_bubble import SEQ1F1B_ZB, ZB_H1, ZB_H2

GENERATORS: dict[str, Generator] = {
    generator.name: generator
    for generator in (
        GPIPE,
        ONE_F_ONE_B,
        INTERLEAVED,
        TERAPIPE,
        SEQ1F1B,
        SEQ1F1B_INTERLEAVED,
        ZB_H1,
        ZB_H2,
        SEQ1F1B_ZB,
        ZB_V,
        V_HALF,
        V_MIN,
        DUALPIPE_V,
        CHIMERA,
        BITPIPE,
        DUALPIPE,
        BSIPIPE,
        BSIPIPE_ZB,
    )
}

__all__ = ["GENERATORS", "Generator", "Refusal", "Request"]
