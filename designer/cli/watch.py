"""A training run as it is shown: each step as it happens, in the end what was measured beside what was predicted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from contraflow.designer.costs.measured import measured
from contraflow.designer.design import Preview, preview
from contraflow.designer.export.axis import figure
from contraflow.designer.export.text import figures, plural
from contraflow.designer.format.profile import Profile
from contraflow.designer.format.schedule import Schedule
from contraflow.designer.format.trace import Trace

from .output import console, draw, narrate, put_json

if TYPE_CHECKING:
    from contraflow.engine.config import RunConfig
    from contraflow.engine.train import Started, StepReport

LOG_LINES = 10
"""Steps, more or less, that are told where stderr is no terminal, and so has no bar."""


class Watch:
    """Hears what a run reports, and shows it."""

    def __init__(
        self, schedule: Schedule, run: RunConfig, hardware: str, predicted: Preview | None, json: bool
    ) -> None:
        self.steps: list[StepReport] = []
        self.predicted = predicted
        """By the costs that were named, or by the profile that the run reports before its first step."""
        self.trace: Trace | None = None
        self._schedule, self._run, self._hardware, self._json = schedule, run, hardware, json
        self._bar = progress_bar(json)
        self._task = self._bar.add_task("training", total=run.steps, figures="")

    def hear(self, report: Any) -> None:
        """Take in one report of `engine.train`."""
        from contraflow.engine.train import Started, StepReport

        if isinstance(report, Started):
            self._started(report)
        elif isinstance(report, Profile):
            self.predicted = preview(self._schedule, measured(report, "this machine"))
        elif isinstance(report, StepReport):
            self._step(report)
        elif isinstance(report, Trace):
            self.trace = report

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()

    def conclude(self) -> None:
        """Tell how it went. Ranks that are not heard, under torchrun, have nothing to tell."""
        if self.predicted is None or not self.steps:
            return
        found = outcome(self.steps, self.predicted, self._run.accumulate)
        if self._json:
            put_json(found)
        else:
            draw(outcome_table(self.steps, self.predicted, found), "", self.predicted.caption)

    def _started(self, report: Started) -> None:
        layout = self._schedule.layout
        narrate(
            f"{self._schedule.name}: {plural(layout.num_devices, 'process')} on {self._hardware}, "
            f"{report.num_parameters:,} parameters in {self._run.dtype}, attention by {report.attention}"
        )
        if len(layout.directions) > 1:
            owners = ", ".join(map(str, report.owners))
            narrate(f"stages 0 to {layout.num_stages - 1} are updated on devices {owners}")
        self._bar.start()

    def _step(self, report: StepReport) -> None:
        self.steps.append(report)
        self._bar.update(self._task, completed=report.step, figures=in_words(report))
        if self._json:
            put_json(in_json(report))
        elif self._bar.disable and report.step % max(1, self._run.steps // LOG_LINES) == 0:
            narrate(f"step {report.step} of {self._run.steps}: {in_words(report)}")


def progress_bar(json: bool) -> Progress:
    """A bar on stderr, shown on a terminal alone; where JSON goes to the same terminal they would mix."""
    screen = console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
        console=screen,
        disable=not screen.is_terminal or (json and sys.stdout.isatty()),
        redirect_stdout=False,
    )


def in_words(report: StepReport) -> str:
    """A step's figures."""
    return f"loss {report.loss:.4f}, {report.tokens_per_s:,.0f} tokens/s, {figure(report.seconds, 'seconds')}"


def in_json(report: StepReport) -> dict[str, Any]:
    """A step's figures for other programs."""
    return {
        "step": report.step,
        "loss": report.loss,
        "grad_norm": report.norm,
        "tokens_per_s": report.tokens_per_s,
        "step_s": report.seconds,
    }


def outcome(steps: Sequence[StepReport], predicted: Preview, num_passes: int) -> dict[str, float]:
    """The median step, the first left out where there are others, beside the predicted one."""
    expected = predicted.makespan * num_passes + predicted.timeline.prices.after_step
    measured = median(report.seconds for report in steps[1:] or steps)
    return {
        "predicted_s": expected,
        "measured_s": measured,
        "error": measured / expected - 1,
        "peak_activation": predicted.peak,
        "bubble_predicted": predicted.bubble,
    }


def outcome_table(steps: Sequence[StepReport], predicted: Preview, found: dict[str, float]) -> Table:
    """The outcome in words."""
    expected, took = found["predicted_s"], found["measured_s"]
    speed = median(report.tokens_per_s for report in steps[1:] or steps)
    _, bubble, peak = figures(predicted)
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_row("loss", f"{steps[0].loss:.4f} in step 1, {steps[-1].loss:.4f} in step {steps[-1].step}")
    table.add_row(
        "median step",
        f"{figure(took, 'seconds')}, predicted {figure(expected, 'seconds', took)}: {took / expected:.3f}x",
    )
    table.add_row("speed", f"{speed:,.0f} tokens/s")
    table.add_row("predicted", f"{bubble}, {peak}")
    return table
