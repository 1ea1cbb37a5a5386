"""Export from inside: a picture, or another tool's format, and the command that would make the same file."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from contraflow.designer.design import Preview
from contraflow.designer.export import html, svg, text
from contraflow.designer.format.file import write_text
from contraflow.designer.interchange import torch_csv

from .chooser import Chooser
from .files import Files
from .questions import Question

WIDTH = 120
"""Columns of exported text."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its files, by what is put behind the chosen name."""

    meaning: str
    suffix: str
    render: Callable[[Preview], dict[str, str]]
    options: tuple[str, ...] = ()
    """Of the command line that makes the same."""
    priced: bool = True
    """Whether costs show in it."""


def _torch(shown: Preview) -> dict[str, str]:
    table, meta = torch_csv.dumps(shown.schedule)
    # The side-car first: a table never stands without one.
    return {".meta.json": meta, "": table}


FORMATS = {
    "text": Format(
        "chart and memory as text",
        ".txt",
        lambda shown: {"": text.dumps(shown, WIDTH)},
        ("--width", f"{WIDTH}"),
    ),
    "svg": Format("a picture for print", ".svg", lambda shown: {"": svg.dumps(shown)}),
    "html": Format("a page to explore", ".html", lambda shown: {"": html.dumps(shown)}),
    "torch-csv": Format("PyTorch's pipeline runtime, with a side-car", ".csv", _torch, priced=False),
}


def command(file: str, to: str, costs: str | None, output: Path) -> str:
    """The command line that makes the same file."""
    words = ["contraflow", "export", file, "--to", to, *FORMATS[to].options]
    if costs and FORMATS[to].priced:
        words += ["--costs", costs]
    return shlex.join([*words, "-o", str(output)])


class Exporting(Files):
    """Asks for format and name, writes, and says how to do so again."""

    def action_export(self) -> None:
        """Write what is shown in another format."""
        if self.session.stale:
            self.say("these knobs give no schedule: there is nothing to export")
            return
        formats = [(name, each.meaning) for name, each in FORMATS.items()]
        self.push_screen(Chooser("export", formats, "text"), self._export)

    def _export(self, to: str | None) -> None:
        if to is not None:
            name = self.proposal.removesuffix(".json").removesuffix(".schedule") + FORMATS[to].suffix
            self.ask_for_file(f"Export as {to}", name, partial(self.export, to))

    def export(self, to: str, path: Path) -> None:
        """Write what is shown; a format that cannot say it is told why."""
        if self.session.waiting:
            self.finish()
        picture = self.session.picture
        assert picture is not None
        try:
            for suffix, content in FORMATS[to].render(picture.preview).items():
                write_text(content, path.with_name(path.name + suffix))
        except (OSError, ValueError) as error:
            self.push_screen(Question(f"{path.name}: {getattr(error, 'strerror', error)}", (("c", "close"),)))
            return
        file = self.session.path.name if self.session.path else self.proposal
        note = "" if self.session.path and not self.session.dirty else f", once it is saved as {file}"
        line = command(file, to, picture.draft.design.costs, path)
        said = f"{path} is written. The same from the shell{note}:\n\n{line}"
        self.push_screen(Question(said, (("c", "close"),)))
