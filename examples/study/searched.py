"""Makes the searched programs of bounds.md anew: minutes each, one after the other."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from bounds import PROVEN, SEARCHED, Shape

from contraflow.designer.costs.unit import unit
from contraflow.designer.format.check import load
from contraflow.designer.format.file import write
from contraflow.designer.search import Cap, search

SECONDS = 120
WANTED = (
    ("bsipipe", Shape(4, 4, 2), (2.0, 2.25, 2.5)),
    ("bsipipe", Shape(4, 4, 4), (2.0,)),
    ("bsipipe", Shape(8, 4, 4), (2.75, 3.0)),
    ("bsipipe", Shape(8, 4, 8), (2.0,)),
    ("bsipipe", Shape(8, 8, 4), (2.0, 2.75)),
)
"""Where the generators leave something to find."""


def main() -> None:
    """Search on from what is there, or else from what the generator gives; keep what is better."""
    SEARCHED.mkdir(exist_ok=True)
    proven = json.loads(PROVEN.read_text()) if PROVEN.exists() else {}
    for generator, shape, caps in WANTED:
        for cap in caps:
            name = shape.searched(generator, cap)
            path = SEARCHED / f"{name}.schedule.json"
            shown = shape.shown(generator, cap)
            assert shown is not None
            begin = load(path) if path.exists() else replace(shown.schedule, name=name)
            for progress in search(begin, unit, Cap(cap), seconds=SECONDS):
                if progress.better:
                    write(progress.shown.schedule, path)
            proven[name] = max(progress.bound, proven.get(name, 0))
            PROVEN.write_text(json.dumps(proven, indent=1) + "\n")
            print(
                f"{name}: {progress.shown.makespan:g}, at least {proven[name]:g}", file=sys.stderr, flush=True
            )


if __name__ == "__main__":
    main()
