"""`contraflow profile`, as a person types it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contraflow.designer import costs
from contraflow.designer.design import Design, make, preview
from contraflow.designer.format import file, profile
from contraflow.designer.format.trace import Trace, dumps
from contraflow.designer.overlay import predicted

SCHEDULE = make(Design("bsipipe", devices=2, microbatches=2, subsequences=2, sequence=64))


@pytest.mark.processes
def test_a_profile_prices_its_file_and_others(contraflow: Callable[..., Any]) -> None:
    Path("tiny.toml").write_text(
        "[model]\nhidden = 32\nheads = 2\nkv_heads = 1\nffn = 48\n[run]\ntimeout = 30\n"
    )
    file.write(SCHEDULE, "two.json")
    said = contraflow("profile", "two.json", "--config", "tiny.toml", "--repeats", 1, "-o", "p.json")
    assert (said.code, said.out) == (0, "")
    assert "p.json: " in said.err
    found = profile.loads(Path("p.json").read_bytes())
    timed = {(entry.stage, entry.kind, entry.start, entry.stop) for entry in found.actions}
    assert timed == {(s, kind, a, a + 32) for s in range(4) for kind in "FBIW" for a in (0, 32)}
    assert {part[:4] for part in found.parts} == {
        (*made, kind)
        for made in ((1, False, False), (2, False, False), (0, True, False), (0, False, True))
        for kind in "FBIW"
    }
    assert {part.stop - part.start for part in found.parts} == {8, 16, 24, 32}
    assert found.model is not None
    assert (found.model.hidden, found.layers) == (32, (1, 1, 1, 1))
    own = contraflow("simulate", "two.json", "--costs", "p.json", "--json").json
    assert own["clock"] == "seconds"
    assert own["assumptions"].startswith("Seconds measured on")
    contraflow("new", "zb-h1", "--devices", 2, "--sequence", 64, "-o", "other.json")
    other = contraflow("simulate", "other.json", "--costs", "p.json", "--json").json
    assert other["makespan"] > 0
    assert other["assumptions"].startswith("Seconds fitted to measurements on")


def test_a_profile_from_a_trace(contraflow: Callable[..., Any]) -> None:
    file.write(SCHEDULE, "two.json")
    shown = preview(SCHEDULE, costs.named("llama3-1b-h100"))
    Path("t.json").write_text(dumps(Trace(SCHEDULE, 3, "a bench", predicted(shown.timeline), ())))
    said = contraflow("profile", "two.json", "--from", "t.json")
    assert said.code == 0
    assert profile.loads(said.out).machine == "a bench, in step 3 of a run"
    contraflow("new", "1f1b", "--devices", 2, "-o", "other.json")
    said = contraflow("profile", "other.json", "--from", "t.json")
    assert (said.code, said.out) == (2, "")
    assert "of another schedule" in said.err
