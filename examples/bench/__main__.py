"""`make bench`: every figure a ratio, both sides measured in one run, in turn.

python examples/bench            all of them
python examples/bench designer   only the named ones: designer, cuts, engine (memory and actions are
                                 parts of it)
"""

from __future__ import annotations

import sys

import actions
import cuts
import memory
from rich.console import Console

import designer
import engine

PARTS = {
    "designer": (designer.main,),
    "engine": (engine.main, memory.main, actions.main),
    "memory": (memory.main,),
    "actions": (actions.main,),
    "cuts": (cuts.main,),
}


def main(names: list[str]) -> int:
    console = Console()
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        console.print(f"no benchmark {unknown[0]!r}; there are {', '.join(PARTS)}")
        return 2
    for name in names or ("designer", "engine", "cuts"):
        for part in PARTS[name]:
            part(console)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
