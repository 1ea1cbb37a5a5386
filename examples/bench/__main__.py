"""`make bench`: every figure a ratio, both sides measured in one run, in turn.

python examples/bench            all of them
python examples/bench designer   only the named ones: designer, engine, cuts
"""

from __future__ import annotations

import sys

import cuts
from rich.console import Console

import designer
import engine

PARTS = {"designer": designer.main, "engine": engine.main, "cuts": cuts.main}


def main(names: list[str]) -> int:
    console = Console()
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        console.print(f"no benchmark {unknown[0]!r}; there are {', '.join(PARTS)}")
        return 2
    for name in names or PARTS:
        PARTS[name](console)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
