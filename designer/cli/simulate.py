"""`contraflow simulate`: how long a schedule takes, how idle and how full each device is."""

from __future__ import annotations

from .arguments import Cap, Costs, File, Json
from .exit import Exit
from .output import draw, narrate, put_json


def simulate(file: File, costs: Costs = "unit", cap: Cap = None, json: Json = False) -> Exit:
    """Makespan, idle time and peak memory, device by device."""
    from contraflow.designer.costs import named

    from . import report

    shown = report.read(file, named(costs))
    over = [] if cap is None else report.over_cap(shown, cap)
    if json:
        put_json(report.facts(shown) | ({} if cap is None else {"cap": cap.amount, "over_cap": over}))
    else:
        draw(report.headline(shown), report.device_table(shown, over), "", shown.caption)
    if cap is not None and over:
        narrate(f"{file}: {report.excess(shown, cap, over)}")
        return Exit.FINDINGS
    return Exit.FINE
