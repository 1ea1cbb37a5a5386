"""Runs the `contraflow` command inside the test's own process, and makes files for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contraflow.designer.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def contraflow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
    """Runs a command line in an empty folder, 80 columns wide, outside of a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Result:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def seq(contraflow: Callable[..., Result], tmp_path: Path) -> Path:
    """seq1f1b at P=4 M=4 k=2: 16.5 on the unit clock, where device d holds (5 - d) / 2 microbatches."""
    path = tmp_path / "seq.schedule.json"
    assert contraflow("new", "seq1f1b", "--subsequences", 2, "-o", path).code == 0
    return path


@pytest.fixture
def broken(seq: Path, tmp_path: Path) -> Path:
    """The same with an action that is none, and one that stands nowhere."""
    path = tmp_path / "broken.schedule.json"
    path.write_text(seq.read_text().replace("3F1.0", "3F1.0x"))
    return path
