"""`make demo`: design three schedules, look at them, train on each, and hold the prediction against the run.

Everything here is the `contraflow` command; each line that is run is shown first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

DEVICES, MICROBATCHES, SEQUENCE = 2, 2, 2048
CONFIG = Path(__file__).with_name("demo.toml")
SCHEDULES = {
    "1f1b": ["1f1b"],
    "seq1f1b": ["seq1f1b", "--subsequences", "4"],
    "bsipipe": ["bsipipe", "--subsequences", "2"],
}


@dataclass(frozen=True)
class Outcome:
    """What a run said: its steps, and the summary behind them."""

    losses: list[float]
    summary: dict[str, Any]


class Demo:
    """Runs commands in a folder of its own and shows them."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console, self.folder = console, folder
        self.command = Path(sys.executable).with_name("contraflow")

    def show(self, *arguments: str) -> None:
        """Run a command for the person to read."""
        self._announce(arguments)
        sys.stdout.flush()
        subprocess.run([self.command, *arguments], cwd=self.folder, check=True)

    def train(self, file: str) -> Outcome:
        """Run a schedule; its progress is on stderr, its figures come back."""
        arguments = ("run", file, "--config", str(CONFIG), "--json")
        self._announce(("run", file, "--config", f"examples/{CONFIG.name}"))
        done = subprocess.run(
            [self.command, *arguments], cwd=self.folder, check=True, stdout=subprocess.PIPE, text=True
        )
        *steps, summary = map(json.loads, done.stdout.splitlines())
        return Outcome([step["loss"] for step in steps], summary)

    def _announce(self, arguments: tuple[str, ...]) -> None:
        self.console.print(
            f"\n$ contraflow {' '.join(arguments)}",
            style="bold",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def main() -> int:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="contraflow-demo-") as folder:
        demo = Demo(console, Path(folder))
        try:
            outcomes = _play(console, demo)
        except subprocess.CalledProcessError as error:
            console.print(
                f"the demo ends here: {Path(error.cmd[0]).name} {error.cmd[1]} gave exit code {error.returncode}"
            )
            return error.returncode
    console.print()
    console.print(_table(outcomes))
    spread = max(
        abs(a - b) / abs(a)
        for other in outcomes.values()
        for a, b in zip(outcomes["1f1b"].losses, other.losses, strict=True)
    )
    console.print(
        f"The losses of the three runs agree to {spread:.1e} at every step: same model, same text, other orders."
    )
    console.print("Next: contraflow design    (turn the knobs yourself)")
    return 0


def _play(console: Console, demo: Demo) -> dict[str, Outcome]:
    size = ["--devices", str(DEVICES), "--microbatches", str(MICROBATCHES), "--sequence", str(SEQUENCE)]
    files = {name: f"{name}.schedule.json" for name in SCHEDULES}
    console.rule("1. Design: three schedules of the same shape")
    for name, arguments in SCHEDULES.items():
        demo.show("new", *arguments, *size, "-o", files[name])
        demo.show("check", files[name])
    console.rule("2. Look: the order on the unit clock, where a backward costs two forwards")
    for file in files.values():
        demo.show("show", file)
    demo.show("compare", *files.values())
    console.rule("3. Run: exactly these files, on two processes, on real text")
    return {name: demo.train(file) for name, file in files.items()}


def _table(outcomes: dict[str, Outcome]) -> Table:
    table = Table(
        title="A training step: predicted from times taken before the first one, and measured (median)",
        caption="Speed-ups over 1f1b. Peak activation in whole microbatches through a device's share; bsipipe "
        "holds the weights twice: of two devices each has the whole model.",
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
    )
    step, speed_up = (
        ("step\npredicted", "step\nmeasured", "\nratio"),
        ("speed-up\npredicted", "speed-up\nmeasured"),
    )
    columns = ("", *step, *speed_up, "\npeak", "loss\nfirst", "loss\nlast")
    for column in columns:
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    base = outcomes["1f1b"].summary
    for name, outcome in outcomes.items():
        predicted, measured = outcome.summary["predicted_s"], outcome.summary["measured_s"]
        table.add_row(
            name,
            f"{predicted:.2f} s",
            f"{measured:.2f} s",
            f"{measured / predicted:.2f}",
            f"{base['predicted_s'] / predicted:.2f}",
            f"{base['measured_s'] / measured:.2f}",
            f"{outcome.summary['peak_activation']:g}",
            f"{outcome.losses[0]:.2f}",
            f"{outcome.losses[-1]:.2f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
